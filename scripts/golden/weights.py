"""Golden numbers for package weights.

    python scripts/golden/weights.py [SmolLM2.gguf]

Writes model/weights/testdata/dequant.json (random blocks of every GGUF type, decoded
by the gguf package), quantise.json (values, encoded by it) and smollm2.json (sha256 of
every tensor as transformers loads it, under its Hugging Face name).
"""
import base64, hashlib, json, os, sys

import numpy as np
from gguf import GGUFReader, quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Q

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "weights", "testdata")


# Where a block has float16 scales: infinities and NaN are kept out, and
# subnormals reached. IQ1_M has its scale in four parts: see below.
SCALES = {Q.F16: [0], Q.BF16: [0], Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.Q2_K: [80, 82], Q.Q3_K: [108],
          Q.IQ2_XXS: [0], Q.IQ2_XS: [0], Q.IQ2_S: [0], Q.IQ3_XXS: [0], Q.IQ3_S: [0], Q.IQ1_S: [0], Q.IQ1_M: [], Q.IQ4_NL: [0], Q.IQ4_XS: [0], Q.TQ1_0: [52], Q.TQ2_0: [64], Q.MXFP4: [], Q.NVFP4: []}


def many(size, n=1024, seed=1):
    """n blocks of the bytes of a linear congruential generator, which the test has too."""
    x, out = seed, bytearray()
    for _ in range(n * size):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(x >> 24)
    return np.frombuffer(bytes(out), dtype=np.uint8).reshape(n, size).copy()


def finite(q, raw):
    for a in SCALES[q]:
        raw[:, a + 1] &= 0xBB
    if q == Q.IQ1_M:
        raw[:, 55] &= 0xBF
    return raw


def blocks():
    rng = np.random.default_rng(5)
    out = {}
    for q, at in SCALES.items():
        values, size = GGML_QUANT_SIZES[q]
        n = 4 if values > 1 else 64
        if q in (Q.MXFP4, Q.NVFP4):
            n = 16
        raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
        raw = finite(q, raw)
        for a in at:
            raw[0, a + 1] &= 0x83
        if q == Q.MXFP4:
            raw[:4, 0] = [0, 1, 2, 254]
        if q == Q.NVFP4:
            raw[0, :4] = [0, 0x7F, 0xFF, 0x01]
        f = quants.dequantize(raw, q).astype(np.float32)
        out[q.name] = {"raw": base64.b64encode(raw.tobytes()).decode(), "f32": base64.b64encode(f.tobytes()).decode(), "scales": at}
        f = quants.dequantize(finite(q, many(size)), q).astype(np.float32)
        out[q.name]["many"] = hashlib.sha256(f.tobytes()).hexdigest()
    return out


def encoded():
    """Values of many sizes, ties and zeros among them, as Q8_0."""
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((40, 32)) * 10.0 ** rng.integers(-7, 5, (40, 1))).astype(np.float32)
    x[0] = 0
    x[1] = np.arange(32) - 15.5
    x[2, 0] = 127
    x[2, 1:] = np.arange(31) / 2
    return {"f32": base64.b64encode(x.tobytes()).decode(), "q8_0": base64.b64encode(quants.quantize(x, Q.Q8_0).tobytes()).decode()}


def main():
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "quantise.json"), "w") as f:
        json.dump(encoded(), f, indent=0)
    with open(os.path.join(HERE, "dequant.json"), "w") as f:
        json.dump(blocks(), f, indent=0)
    if len(sys.argv) < 2:
        return  # the blocks only
    import torch
    from transformers import AutoModelForCausalLM

    d, name = os.path.split(os.path.abspath(sys.argv[1]))
    m = AutoModelForCausalLM.from_pretrained(d, gguf_file=name, dtype=torch.float32)
    sums = {k: hashlib.sha256(v.detach().contiguous().numpy().tobytes()).hexdigest()[:16]
            for k, v in m.state_dict().items() if k != "lm_head.weight"}
    with open(os.path.join(HERE, "smollm2.json"), "w") as f:
        json.dump(sums, f, indent=0)


if __name__ == "__main__":
    main()
