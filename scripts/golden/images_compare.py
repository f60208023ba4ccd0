"""Image files by agentcli model preprocess and by Pillow 13, each byte.

    images_compare.py AGENTCLI FOLDER...

takes all image files below the folders (images.py FOLDER 500 makes some; any others are
welcome), and prints for each format how many have equal pixels, and the names of those that
have not or that only one of the two refuses.
"""
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import PIL
from PIL import Image

from images import rgb

ENDINGS = {".png", ".bmp", ".gif", ".jpg", ".jpeg", ".webp"}


def by_pillow(path):
    try:
        im = rgb(Image.open(path, formats=["PNG", "BMP", "GIF", "JPEG", "WEBP"]))
        return [im.width, im.height, hashlib.sha256(im.tobytes()).hexdigest()]
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def by_agentcli(program, paths):
    """The answers in order. The command ends at a file that it refuses, and is started again behind it."""
    answers = []
    with tempfile.TemporaryDirectory() as model:
        (pathlib.Path(model) / "preprocessor_config.json").write_text("{}")
        while len(answers) < len(paths):
            lines = "\n".join(json.dumps({"image": str(p)}) for p in paths[len(answers):])
            run = subprocess.run([program, "model", "preprocess", model], input=lines, capture_output=True, text=True)
            answers += [[a["width"], a["height"], a["pixels_sha256"]] for a in map(json.loads, run.stdout.splitlines())]
            if len(answers) < len(paths):
                answers.append(run.stderr.strip())
    return answers


def main():
    warnings.simplefilter("ignore")
    program, folders = sys.argv[1], sys.argv[2:]
    paths = sorted(p for f in folders for p in pathlib.Path(f).rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
    counts = collections.defaultdict(collections.Counter)
    for path, ours in zip(paths, by_agentcli(program, paths)):
        theirs = by_pillow(path)
        if ours == theirs:
            result = "equal"
        elif isinstance(ours, str) and isinstance(theirs, str):
            result = "both refuse"
        else:
            result = "only we refuse" if isinstance(ours, str) else "only Pillow refuses" if isinstance(theirs, str) else "different"
            print(f"{result}: {path}: {ours if isinstance(ours, str) else theirs}")
        counts[path.suffix.lower().replace("jpeg", "jpg")][result] += 1
    print(f"Pillow {PIL.__version__}")
    for kind in sorted(counts):
        print(kind, dict(counts[kind]))


main()
