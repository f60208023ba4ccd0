"""Golden ids of chat templates, from transformers' apply_chat_template(tokenize=True).

    python scripts/golden/templateids.py

Reads the templates and the conversations of scripts/golden/templates.py from where it writes them.
Their own tokenizers are in no package, so each template has one of ours: bytes with 2,000 merges that
the library has learned from the texts, and the tokens that the template spells. Those between bars and
brackets are special, the others (<think>, <tool_call>) are added tokens, as in Qwen's tokenizers.
Made with transformers 5.23.0, tokenizers 0.23.

Writes model/chat/testdata/templateids.json.gz: the tokenizer, and for each template its tokens and the
first 8 hex digits of the SHA-256 of each conversation's ids; "" where transformers raises an error, and
where a message spells a special token, alone or with the template: it is text here, and a token there.
"""
import gzip, json, os, re

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import templates as corpus

SPECIAL = re.compile(r"<\|[^<>|\s'\"]{1,40}\|>|<｜[^<>\s'\"]{1,40}｜>|\[/?[A-Z_]{3,30}\]")
SPELLED = ("llama.cpp MiniMax-M3", 26)  # its "<" and ">" about an argument's name, "s", are the token <s>
ADDED = re.compile(r"</?[a-z_]{3,30}>")


def strings(x):
    if isinstance(x, str):
        yield x
    elif isinstance(x, dict):
        for k, v in x.items():
            yield k
            yield from strings(v)
    elif isinstance(x, list):
        for v in x:
            yield from strings(v)


def main():
    testdata = os.path.join(corpus.ROOT, "model", "chat", "testdata")
    with gzip.open(os.path.join(testdata, "corpus.json.gz"), "rt", encoding="utf-8") as f:
        data = json.load(f)
    with open(corpus.CACHE, encoding="utf-8") as f:
        foreign = {corpus.digest(t): t for t in json.load(f).values()}  # some have several names
    foreign.update((corpus.digest(t["template"]), t["template"]) for t in data["templates"].values() if "template" in t)
    texts = {name: t.get("template") or foreign[t["sha"]] for name, t in data["templates"].items()}
    base = Tokenizer(models.BPE())
    base.pre_tokenizer, base.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    base.train_from_iterator(list(texts.values()) + [json.dumps(c, ensure_ascii=False) for c in data["conversations"]], trainers.BpeTrainer(
        vocab_size=2256, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    table, compared = {}, 0
    for name, template in texts.items():
        special = sorted(set(SPECIAL.findall(template)) | set(data["special"].values()))
        added = sorted(set(ADDED.findall(template)) - set(special))
        one = Tokenizer.from_str(base.to_str())
        one.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
        one.add_tokens([AddedToken(s, special=False, normalized=False) for s in added])
        tok = PreTrainedTokenizerFast(tokenizer_object=one, **data["special"])
        ids = []
        for i, c in enumerate(data["conversations"]):
            if (name, i) == SPELLED or any(s in said for said in strings([c["messages"], c["tools"]]) for s in special):
                ids.append("")
                continue
            try:
                got = tok.apply_chat_template(c["messages"], tools=c["tools"], chat_template=template, tokenize=True, return_dict=False, **c["kwargs"])
                ids.append(corpus.digest(",".join(map(str, got)))[:8])
                compared += 1
            except Exception:
                ids.append("")
        tokens = json.loads(one.to_str())["added_tokens"]
        table[name] = {"tokens": tokens, "ids": ids}
    with open(os.path.join(testdata, "templateids.json.gz"), "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(json.dumps({"tokenizer": json.loads(base.to_str()), "templates": table}, ensure_ascii=True, separators=(",", ":")).encode())
    print(compared, "conversations of", len(table), "templates")


if __name__ == "__main__":
    main()
