"""Golden ids of small tokenizers put together from every component of the
tokenizers library: models, normalisers, pre-tokenizers, post-processors, decoders.

    python scripts/golden/tokenizerkinds.py [SEED COUNT FILE]

Writes model/tokenizer/testdata/kinds.json: small models made by the library's own
trainers, tokenizers that combine them with components drawn by the seed, texts,
ids, and what ids decode to. The opt-in test runs it with other seeds.
"""
import base64, json, os, random, struct, sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "tokenizer", "testdata")
CORPUS = ["The quick brown fox jumps over the lazy dog; it's 12 o'clock, isn't it?", "Der schnelle Fuchs läuft über den faulen Hund. Größe!", "El niño comió piñas en 1999.",
          "素早い茶色の狐が怠け者の犬を飛び越える。", "快速的棕色狐狸跳过懒狗。", "Быстрая лиса прыгает через собаку.", "def add(a, b):\n    return a + b\n", "for (int i = 0; i < 10; i++) { x[i] += 2; }",
          "the the the there then than that this those these", "an and any are as at be been being", "don't can't won't I'm you're we've they'll", "http://example.org/path?q=1&r=2"] * 3
TEXTS = ["", " ", "the fox isn't  there", "  Two  spaces and\ttab\n\nlines \n", "Größe ñ é e\u0301 Å \ufb01 ½ ①", "漢字かなカナ한국어 ,ok。", "İstanbul ΣΊΣΥΦΟΣ DŽ ſ", "a\u200bb\u00a0c\u3000d\ufeffe\x07f\x00g", "x🤗y 👩\u200d👩\u200d👧 🇩🇪",
         "[CLS] a [SEP] <s>b</s><mask> <mask>", "hello<|sp|> world<|sp|>  <nrm>x <NRM>", "1234567 3.14 1e-5 Ⅷ ٣", "don't do not we 've . , ? ' n't", "abcabcabcabcabc" * 8, "ーア漢a ж1 ,", "▁under ▁▁score_x <0x41><0xE2>"]
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "<s>", "</s>"]


def text_model(kind, rng):
    """The field model of a tokenizer.json, from the library's own trainer."""
    m = {"BPE": models.BPE(unk_token="[UNK]"), "Unigram": models.Unigram(), "WordPiece": models.WordPiece(unk_token="[UNK]"), "WordLevel": models.WordLevel(unk_token="[UNK]")}[kind]
    t = Tokenizer(m)
    t.pre_tokenizer = pre_tokenizers.Metaspace() if kind in ("BPE", "Unigram") else pre_tokenizers.Whitespace()
    kw = dict(special_tokens=SPECIAL, show_progress=False)
    tr = {"BPE": lambda: trainers.BpeTrainer(vocab_size=220, **kw), "Unigram": lambda: trainers.UnigramTrainer(vocab_size=230, unk_token="[UNK]", **kw),
          "WordPiece": lambda: trainers.WordPieceTrainer(vocab_size=220, **kw), "WordLevel": lambda: trainers.WordLevelTrainer(vocab_size=90, **kw)}[kind]()
    t.train_from_iterator(CORPUS, tr)
    return json.loads(t.to_str())["model"]


def suffix_model():
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=260, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False))
    return json.loads(t.to_str())["model"]


def prefix_model():
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=260, special_tokens=SPECIAL, continuing_subword_prefix="##", show_progress=False))
    return json.loads(t.to_str())["model"]


def letters_model():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(t.to_str())["model"]


def with_bytes(m, drop=()):
    m = json.loads(json.dumps(m))
    names = [f"<0x{b:02X}>" for b in range(256) if b not in drop]
    if isinstance(m["vocab"], list):
        m["vocab"] += [[n, -9.0] for n in names]
    else:
        for n in names:
            m["vocab"].setdefault(n, len(m["vocab"]))
    m["byte_fallback"] = True
    return m


def charsmap(pairs):
    """A SentencePiece table of replacements: a double-array trie of Darts-clone's layout."""
    text, values = b"", {}
    for k, v in pairs:
        values[k.encode()] = len(text)
        text += v.encode() + b"\0"
    trie = {}
    for k, v in values.items():
        node = trie
        for b in k:
            node = node.setdefault(b, {})
        node[None] = v
    units, used = {0: 0}, {0}

    def place(node, at):
        labels = [b for b in node if b is not None]
        base = 1
        while True:
            spots = [base ^ b for b in labels] + ([base] if None in node else [])
            if not any(s in used for s in spots) and (base ^ at) < 1 << 21:
                break
            base += 1
        used.update(spots)
        offset = base ^ at
        units[at] = units.get(at, 0) | offset << 10 | ((1 << 8) if None in node else 0)
        if None in node:
            units[base] = node[None] | 1 << 31
        for b in labels:
            units[base ^ b] = b
        for b in labels:
            place(node[b], base ^ b)

    place(trie, 0)
    n = max(units) + 256
    trie_bytes = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(n))
    return base64.b64encode(struct.pack("<I", len(trie_bytes)) + trie_bytes + text).decode()


MAP = charsmap([("ﬁ", "fi"), ("½", "1/2"), ("\u3000", " "), ("e\u0301", "é"), ("①", "1"), ("\u200b", ""), ("Å", "Å")])
S = lambda t, **kw: dict(kw, type=t)
SPLIT = lambda p, b, inv=False, k="Regex": S("Split", pattern={k: p}, behavior=b, invert=inv)
NORMALIZERS = [None, None, S("NFC"), S("NFKC"), S("Lowercase"), S("StripAccents"), S("Nmt"), S("Strip", strip_left=True, strip_right=False), S("Strip", strip_left=False, strip_right=True), S("Prepend", prepend="▁"), S("ByteLevel"),
               S("Replace", pattern={"String": " "}, content="▁"), S("Replace", pattern={"Regex": "[0-9]+| {2,}"}, content="#"), S("Precompiled", precompiled_charsmap=MAP),
               S("Sequence", normalizers=[S("Prepend", prepend="▁"), S("Replace", pattern={"String": " "}, content="▁")]), S("Sequence", normalizers=[S("Precompiled", precompiled_charsmap=MAP), S("Replace", pattern={"Regex": " {2,}"}, content=" ")]),
               S("Sequence", normalizers=[S("NFD"), S("StripAccents"), S("Lowercase")]), S("Sequence", normalizers=[])]
for clean in (True, False):
    for strip in (None, True, False):
        NORMALIZERS.append(S("BertNormalizer", clean_text=clean, handle_chinese_chars=not clean or strip is None, strip_accents=strip, lowercase=strip is not True))
PRE = [None, S("BertPreTokenizer"), S("Whitespace"), S("WhitespaceSplit"), S("Digits", individual_digits=True), S("UnicodeScripts"), S("CharDelimiterSplit", delimiter="a"), S("FixedLength", length=3),
       S("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True), S("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False), SPLIT(" ", "MergedWithPrevious", False, "String"), SPLIT("\\s+", "Removed"), SPLIT("\\w+|[^\\w\\s]+", "Removed", True), SPLIT("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|(?>\\h\\H)*+|[\\W\\]]+", "Isolated")]
PRE += [S("Metaspace", replacement="▁", prepend_scheme=p, split=s) for p in ("always", "first", "never") for s in (True, False)]
PRE += [S("Punctuation", behavior=b) for b in ("Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext")]
PRE += [S("Sequence", pretokenizers=[S("WhitespaceSplit"), S("Metaspace", replacement="▁", prepend_scheme="first", split=True)]), S("Sequence", pretokenizers=[S("UnicodeScripts"), S("Metaspace", replacement="▁", prepend_scheme="always", split=True)]),
        S("Sequence", pretokenizers=[S("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True), S("Digits", individual_digits=False)]), S("Sequence", pretokenizers=[])]
POST = [None, S("BertProcessing", sep=["[SEP]", 2], cls=["[CLS]", 1]), S("RobertaProcessing", sep=["</s>", 4], cls=["<s>", 3], trim_offsets=True, add_prefix_space=True), S("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)]
TEMPLATE = S("TemplateProcessing", single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
             special_tokens={"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [4], "tokens": ["</s>"]}})
POST += [TEMPLATE, S("Sequence", processors=[POST[3], TEMPLATE]), S("Sequence", processors=[POST[1], TEMPLATE]), S("Sequence", processors=[POST[2], POST[1]])]
BYTES = S("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)
DECODERS = [None, BYTES, S("WordPiece", prefix="##", cleanup=True), S("WordPiece", prefix="##", cleanup=False), S("BPEDecoder", suffix="</w>"), S("CTC", pad_token="a", word_delimiter_token="▁", cleanup=True), S("Fuse"), S("ByteFallback"),
            S("Replace", pattern={"String": "▁"}, content=" "), S("Replace", pattern={"Regex": "▁|e"}, content="_"), S("Strip", content="▁", start=1, stop=0), S("Strip", content="e", start=1, stop=1)]
DECODERS += [S("Metaspace", replacement="▁", prepend_scheme=p, split=True) for p in ("always", "first", "never")]
LLAMA = [S("Replace", pattern={"String": "▁"}, content=" "), S("ByteFallback"), S("Fuse")]
DECODERS += [S("Sequence", decoders=LLAMA), S("Sequence", decoders=LLAMA + [S("Strip", content=" ", start=1, stop=0)]), S("Sequence", decoders=LLAMA + [S("Strip", content=" ", start=2, stop=1)]), S("Sequence", decoders=LLAMA + [S("Strip", content="t", start=1, stop=0), S("Replace", pattern={"String": "he"}, content="HE")]),
             S("Sequence", decoders=[BYTES, S("Strip", content=" ", start=1, stop=0)]), S("Sequence", decoders=[S("Metaspace", replacement="▁", prepend_scheme="always", split=True), S("ByteFallback")]), S("Sequence", decoders=[S("Fuse"), BYTES])]


def added(rng, n):
    flags = lambda p: rng.random() < p
    out = [dict(id=i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, c in enumerate(SPECIAL)]
    for i, c in enumerate(["<mask>", "<|sp|>", "<nrm>"]):
        out.append(dict(id=n + i, content=c, single_word=flags(0.3), lstrip=flags(0.3), rstrip=flags(0.3), normalized=i == 2, special=i < 2 and flags(0.5)))
    return out


def tokenizers(rng, count):
    base = {k: text_model(k, rng) for k in ("BPE", "Unigram", "WordPiece", "WordLevel")}
    pool = dict(base, Suffix=suffix_model(), Prefix=prefix_model(), Letters=letters_model())
    pool["BPEBytes"], pool["UnigramBytes"], pool["BPESomeBytes"] = with_bytes(base["BPE"]), with_bytes(base["Unigram"]), with_bytes(base["BPE"], drop=range(0x80, 0x90))
    # The vocabulary by id, for a file that is the same from run to run.
    for m in pool.values():
        if isinstance(m["vocab"], dict):
            m["vocab"] = dict(sorted(m["vocab"].items(), key=lambda kv: kv[1]))
    decks = {}

    def draw(name, options):
        if not decks.get(name):
            decks[name] = list(range(len(options)))
            rng.shuffle(decks[name])
        return options[decks[name].pop()]

    out = []
    while len(out) < count:
        norm, pre = draw("n", NORMALIZERS), draw("p", PRE)
        # What a normaliser drops at the start moves the first piece of a later step; that is not followed.
        if norm and norm["type"] not in ("NFC", "NFKC", "Lowercase", "Prepend", "ByteLevel") and "first" in json.dumps(pre):
            continue
        name = draw("model", sorted(pool))
        m = pool[name]
        change = {}
        if m["type"] == "BPE":
            change = {"fuse_unk": rng.random() < 0.5, "ignore_merges": rng.random() < 0.3, "unk_token": rng.choice(["[UNK]", None]) if name != "BPESomeBytes" else "[UNK]"}
        out.append({"model": name, "change": change, "added": added(rng, len(m["vocab"])), "normalizer": norm, "pre_tokenizer": pre,
                    "post_processor": draw("post", POST), "decoder": draw("d", DECODERS)})
    return pool, out


def main():
    seed, count, path = (int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) if len(sys.argv) > 3 else (1, 64, os.path.join(HERE, "kinds.json"))
    rng = random.Random(seed)
    pool, toks = tokenizers(rng, count)
    rows = []
    for spec in toks:
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": spec["added"], "normalizer": spec["normalizer"], "pre_tokenizer": spec["pre_tokenizer"],
                 "post_processor": spec["post_processor"], "decoder": spec["decoder"], "model": dict(pool[spec["model"]], **spec["change"])}
        t = Tokenizer.from_str(json.dumps(whole))
        n = t.get_vocab_size()
        row = dict(spec, encode=[], ids=[], decode=[], decode_skip=[])
        texts = TEXTS + ["".join(rng.choice(" ab\u0301é漢the<s>▁1.'İ🤗\n") for _ in range(12)) for _ in range(4)] if len(sys.argv) > 3 else TEXTS
        row["texts"] = texts if len(sys.argv) > 3 else None
        for s in texts:
            try:
                row["encode"].append([t.encode(s, add_special_tokens=a).ids for a in (False, True)])
            except BaseException as e:  # a panic of the library is one of these
                row["encode"].append(None)
        for _ in range(4):
            row["ids"].append([rng.randrange(n) for _ in range(rng.choice([1, 6, 14]))])
        row["ids"] += [e[1] for e in row["encode"][2:8] if e]
        for ids in row["ids"]:
            for key, skip in (("decode", False), ("decode_skip", True)):
                try:
                    row[key].append(t.decode(ids, skip_special_tokens=skip))
                except BaseException:
                    row[key].append(None)
        rows.append(row)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"texts": TEXTS, "models": pool, "tokenizers": rows}, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
