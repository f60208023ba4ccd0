"""Golden ids of a SentencePiece vocabulary as a GGUF stores it.

    python scripts/golden/ggufspm.py

Writes model/tokenizer/testdata/spm.json: tokens, scores and types; the merges are
those that transformers' generate_merges derives from them, the ids the tokenizers
library's with the components of Llama 2's and Gemma's tokenizer.json.
"""
import json, os

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import Metaspace
from transformers.tokenization_utils_base import generate_merges

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "tokenizer", "testdata")
CORPUS = ["The quick brown fox jumps over the lazy dog; it's 12 o'clock.", "Der schnelle Fuchs läuft über den Hund.", "def add(a, b):\n    return a + b\n", "the then than that this there these", "素早い茶色の狐 狐"] * 3
TEXTS = ["", " ", "the fox", "  two  spaces\n\nand lines ", "größe über ñ", "漢字 狐の素早い", "🤗 a\u0301", "<s>x</s> <unk>", "def f(a,  b):\n\treturn  a", "<0x41>", "there there", "▁▁x"]


def main():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = Metaspace()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=170, show_progress=False))
    learned = [k for k, _ in sorted(t.get_vocab().items(), key=lambda kv: kv[1])]
    words = [k for k in learned if len(k) > 1] + ["▁▁", "▁▁▁▁", "s>"]
    letters = [k for k in learned if len(k) == 1]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + words + letters
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))] + [-1000.0 - i for i in range(len(letters))]
    # Scores that are equal, where the order of the parts decides.
    scores[262] = scores[261]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(words) + len(letters))
    vocab = {k: i for i, k in enumerate(tokens)}
    plain = {k for k, ty in zip(tokens, types) if ty != 1}
    cases = []
    for arch, model, prefix, given in (("llama", "llama", True, False), ("llama", "llama", False, False), ("gemma2", "llama", False, False), ("gemma4", "gemma4", False, True)):
        order = dict(zip(tokens, scores)) if arch == "llama" else {k: -i for i, k in enumerate(tokens)}
        merges = [m for m in generate_merges(vocab, order) if m[0] + m[1] not in plain]
        t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        steps = [normalizers.Prepend("▁")] if prefix else []
        t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if prefix else []))
        t.add_special_tokens([AddedToken(k, normalized=False, special=True) for k in tokens[:3]])
        ids = [t.encode(s, add_special_tokens=False).ids for s in TEXTS]
        cases.append({"Arch": arch, "Model": model, "Prefix": prefix, "Merges": [" ".join(m) for m in merges] if given else None, "ids": ids, "back": [t.decode(i, skip_special_tokens=False) for i in ids]})
    with open(os.path.join(HERE, "spm.json"), "w", encoding="utf-8") as f:
        json.dump({"tokens": tokens, "scores": scores, "types": types, "texts": TEXTS, "cases": cases}, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
