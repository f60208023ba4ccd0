"""Golden splits of the patterns that have hand-written matchers.

    python scripts/golden/splits.py

Writes model/tokenizer/testdata/splits.json: for each pattern the digest of the pieces
that the tokenizers library cuts 4,000 random strings into. The strings are those
of a linear congruential generator, which the test has too.
"""
import hashlib, json, os

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "tokenizer", "testdata")
ALPHABET = "aabtsSTLlrevVEmdDMABZ'''  \t\n\r\n 0123½٣Ⅷ.,!?/-_$€+<>()\"\u2019ſé\u0301\u0300ñÑßǅʰªºאبक\u094dअ中文漢字かなカナー한글🤗👩\u200d\ufe0f\u00a0\u3000\u2028\u0085\x00\x1f\u200b"
FOLD = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
TAIL200 = TAIL.replace("[\\r\\n]*", "[\\r\\n/]*", 1)
LOW = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
UP = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
PATTERNS = {
    "GPT2": "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "Qwen2": FOLD + "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" + TAIL, "Llama3": FOLD + "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" + TAIL,
    "Qwen3.5": FOLD + "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "o200k": f"{LOW}{FOLD}?|{UP}{FOLD}?|\\p{{N}}{{1,3}}|{TAIL200}", "tekken": f"{LOW}|{UP}|\\p{{N}}|{TAIL200}",
    "Seed-Coder": FOLD + "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "digits≤3": "\\p{N}{1,3}", "digit": "\\p{N}", "Han": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "DeepSeek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}


def strings():
    x = 1
    for _ in range(4000):
        s = []
        for _ in range(24):
            x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
            s.append(ALPHABET[(x >> 8) % len(ALPHABET)])
        yield "".join(s)


def main():
    out = {"alphabet": ALPHABET, "patterns": {}}
    for name, p in PATTERNS.items():
        split, h = Split(Regex(p), "isolated"), hashlib.sha256()
        for s in strings():
            for piece, _ in split.pre_tokenize_str(s):
                h.update(piece.encode() + b"\xff")
        out["patterns"][name] = {"pattern": p, "sha256": h.hexdigest()}
    with open(os.path.join(HERE, "splits.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=True, indent=0)


if __name__ == "__main__":
    main()
