"""What the tokenizers library makes of the hard strings, for the opt-in test of
real tokenizers:

    python scripts/golden/hard.py TOKENIZER.json HARD.json > out.json
"""
import json, random, sys

from tokenizers import Tokenizer


def main():
    t = Tokenizer.from_file(sys.argv[1])
    t.no_truncation(), t.no_padding()
    texts = json.load(open(sys.argv[2], encoding="utf-8"))
    rng = random.Random(5)
    ids = [t.encode(s, add_special_tokens=False).ids for s in texts[:100]] + [[rng.randrange(t.get_vocab_size()) for _ in range(rng.choice([1, 5, 30]))] for _ in range(400)]
    out = {"encode": [t.encode(s, add_special_tokens=False).ids for s in texts], "special": [t.encode(s, add_special_tokens=True).ids for s in texts],
           "ids": ids, "decode": [t.decode(i, skip_special_tokens=False) for i in ids], "decode_skip": [t.decode(i, skip_special_tokens=True) for i in ids]}
    t.encode_special_tokens = True
    out["ordinary"] = [t.encode(s, add_special_tokens=False).ids for s in texts]
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
