"""Golden ids of small tokenizers with every option that package tokenizer knows.

    python scripts/golden/variants.py

Writes model/tokenizer/testdata/variants.json (whole tokenizer.json files of 300
tokens, texts, ids and what they decode to) and marks.json (normal forms).
"""
import json, os, random, unicodedata

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "tokenizer", "testdata")
LETTERS = sorted(ByteLevel.alphabet())
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "Ġ"), ("ĠĠ", "ĠĠ"), ("1", "2"), ("12", "3"), ("'", "s"), ("in", "g"), ("a", "b"), ("ab", "c"), ("b", "c"), ("l", "l"), ("Ċ", "Ċ"), ("Ã", "©")]
BYTE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = dict(BYTE, use_regex=True)
O200K = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
DEEPSEEK = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
TEXTS = ["", " ", "the thing", " the  the   the    the", "abc bcd ab c 123 1234 12 3", "it's 'S the'll 'LL x'\u017f", "caf\u00e9 cafe\u0301 \u212b", "a<A>b <B> c  <L>  d<R>   e<W> <W>x x<W> _<W> <W>", "<N\u00e9> <Ne\u0301>",
         "\n\n\nx\n \n", "HelloWorld fooBAR McDonald's \u4e2d\u6587abc", "x--y--z-- --", "  12 3\u00bd \u0664\u0665", "<A><A> <B>\n<B>\t<R>\n\n<L>", "sing ing in-g", "\u4e00\u4e8cabc123\u3042!?", "end "]


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def seq(*p):
    return {"type": "Sequence", "pretokenizers": list(p)}


def added(**kw):
    return [dict({"id": 290 + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}, **k)
            for i, (c, k) in enumerate([("<A>", {}), ("<B>", {"lstrip": True, "rstrip": True}), ("<L>", {"lstrip": True}), ("<R>", {"rstrip": True}), ("<W>", {"single_word": True, "special": False}), ("<N\u00e9>", {"normalized": True, "special": False}), ("<A><A>", {})])]


VARIANTS = {
    "gpt2": {"pre": GPT2},
    "prefix space": {"pre": dict(GPT2, add_prefix_space=True)},
    "no regex": {"pre": BYTE},
    "digits each": {"pre": seq({"type": "Digits", "individual_digits": True}, GPT2)},
    "digits run": {"pre": seq({"type": "Digits", "individual_digits": False}, GPT2)},
    "nfc": {"pre": GPT2, "norm": {"type": "NFC"}},
    "nfd sequence": {"pre": GPT2, "norm": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "NFD"}]}},
    "o200k": {"pre": seq(split(O200K, "Isolated"), BYTE)},
    "o200k removed invert": {"pre": seq(split(O200K, "Removed", True), BYTE)},
    "deepseek": {"pre": seq(split("\\p{N}{1,3}", "Isolated"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "Isolated"), split(DEEPSEEK, "Isolated"), BYTE)},
    "ignore merges": {"pre": seq(split(O200K, "Isolated"), BYTE), "ignore": True},
    "pairs": {"pre": GPT2, "pairs": True},
    "missing bytes": {"pre": GPT2, "drop": "xyz\u00c3"},
    "unk": {"pre": GPT2, "drop": "xyz\u00c3", "unk": True},
    "fuse unk": {"pre": GPT2, "drop": "xyz\u00c3", "unk": True, "fuse": True},
    "template": {"pre": GPT2, "post": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<A>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<B>", "type_id": 0}}],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<A>": {"id": "<A>", "ids": [290], "tokens": ["<A>"]}, "<B>": {"id": "<B>", "ids": [291], "tokens": ["<B>"]}}}},
}
for b in ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]:
    for inv in [False, True]:
        VARIANTS[f"split - {b} {inv}"] = {"pre": seq(split("-", b, inv, "String"), BYTE)}
        VARIANTS[f"split regex {b} {inv}"] = {"pre": seq(split("[a-c]|\\s", b, inv), BYTE)}


def marks():
    """Texts with many combining marks, and their four normal forms."""
    rng = random.Random(3)
    few = [chr(c) for c in range(0x300, 0x370)] + ["\u0591", "\u05b0", "\u064b", "\u0e38", "\u3099", "\u0483", "\u20d0"]
    base = list("aeoAZ \u00e9\u00f1\u4e2d\uac00") + ["\u1100\u1161\u11a8", "\u304b", "\u0344", "\ufb01", "\u212b"]
    rows = []
    for _ in range(60):
        s = "".join(rng.choice(base) + "".join(rng.choice(few) for _ in range(rng.choice([0, 1, 5, 27, 31, 40, 70]))) for _ in range(rng.randint(1, 4)))
        rows.append([s] + [unicodedata.normalize(f, s) for f in ("NFC", "NFD", "NFKC", "NFKD")])
    with open(os.path.join(HERE, "marks.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f, ensure_ascii=True, separators=(",", ":"))


def main():
    os.makedirs(HERE, exist_ok=True)
    marks()
    out = []
    for name, v in VARIANTS.items():
        letters = [c for c in LETTERS if c not in v.get("drop", "")]
        merges = [m for m in MERGES if not set("".join(m)) & set(v.get("drop", ""))]
        vocab = {}
        for s in letters + ["".join(m) for m in merges] + ["[UNK]"] + (["thing", "Ġthing"] if v.get("ignore") else []):
            vocab.setdefault(s, len(vocab))
        adds = [dict(a, id=len(vocab) + i) for i, a in enumerate(added())]
        post = v.get("post")
        if post:
            post = json.loads(json.dumps(post))
            for k, t in post["special_tokens"].items():
                t["ids"] = [next(a["id"] for a in adds if a["content"] == k)]
        tok = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": adds, "normalizer": v.get("norm"), "pre_tokenizer": v["pre"], "post_processor": post,
               "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
               "model": {"type": "BPE", "dropout": None, "unk_token": "[UNK]" if v.get("unk") else None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": v.get("fuse", False),
                         "byte_fallback": False, "ignore_merges": v.get("ignore", False), "vocab": vocab, "merges": [list(m) if v.get("pairs") else " ".join(m) for m in merges]}}
        t = Tokenizer.from_str(json.dumps(tok))
        enc = [t.encode(s, add_special_tokens=False).ids for s in TEXTS]
        row = {"name": name, "tokenizer": tok, "encode": enc, "special": [t.encode(s, add_special_tokens=True).ids for s in TEXTS],
               "decode": [t.decode(i, skip_special_tokens=False) for i in enc], "decode_skip": [t.decode(i, skip_special_tokens=True) for i in enc]}
        t.encode_special_tokens = True
        row["ordinary"] = [t.encode(s, add_special_tokens=False).ids for s in TEXTS]
        out.append(row)
    with open(os.path.join(HERE, "variants.json"), "w", encoding="utf-8") as f:
        json.dump({"texts": TEXTS, "variants": out}, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
