"""The peer's half of bench/tokenizer.sh."""
import glob, gettext, json, os, random, struct, sys, time


def documents(pieces, size):
    out, doc, n = [], [], 0
    for p in pieces:
        doc.append(p)
        n += len(p)
        if n > 4000:
            out.append("".join(doc))
            size -= len(out[-1].encode())
            doc, n = [], 0
            if size < 0:
                break
    return out


def corpus(work, megabytes, sources):
    size, rng = int(float(megabytes) * 1e6), random.Random(1)
    files = sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"))
    rng.shuffle(files)

    def languages():
        for f in files:
            try:
                t = gettext.GNUTranslations(open(f, "rb"))
            except Exception:
                continue
            for v in t._catalog.values():
                if isinstance(v, str):
                    yield v + "\n"

    def code():
        files = glob.glob(sources + "/**/*.go", recursive=True) + glob.glob(os.path.dirname(os.__file__) + "/*.py")
        files.sort()
        rng.shuffle(files)
        for f in files:
            if not os.path.isfile(f):
                continue
            text = open(f, encoding="utf-8", errors="replace").read()
            for i in range(0, min(len(text), 40000), 4100):
                yield text[i : i + 4100]

    for name, pieces in (("languages", languages()), ("code", code())):
        with open(os.path.join(work, name + ".jsonl"), "w", encoding="utf-8") as f:
            for d in documents(pieces, size):
                f.write(json.dumps(d) + "\n")


def run(path, texts, out):
    from tokenizers import Tokenizer

    t = Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()
    docs = [json.loads(line) for line in open(texts, encoding="utf-8")]
    start = time.perf_counter()
    ids = [e.ids for d in docs for e in t.encode_batch_fast([d], add_special_tokens=False)]
    encode = time.perf_counter() - start
    start = time.perf_counter()
    back = [t.decode(i, skip_special_tokens=False) for i in ids]
    decode = time.perf_counter() - start
    with open(out, "wb") as f:
        for i in ids:
            f.write(struct.pack(f"<I{len(i)}I", len(i), *i))
    with open(out + ".json", "w") as f:
        json.dump({"encode": encode, "decode": decode, "text": back}, f)


if __name__ == "__main__":
    if sys.argv[1] == "corpus":
        corpus(*sys.argv[2:])
    else:
        run(*sys.argv[2:])
