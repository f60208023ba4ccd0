"""Golden numbers for package weights.

    python scripts/golden/weights.py SmolLM2.gguf

Writes model/weights/testdata/dequant.json (random blocks of every GGUF type, decoded
by the gguf package; sha256 of the float32 bytes) and smollm2.json (sha256 of
every tensor as transformers loads it, under its Hugging Face name).
"""
import base64, hashlib, json, os, sys

import numpy as np
from gguf import GGUFReader, quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Q

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "weights", "testdata")


def blocks():
    rng = np.random.default_rng(5)
    out = {}
    for q in [Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K]:
        values, size = GGML_QUANT_SIZES[q]
        n = 4 if values > 1 else 64
        raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
        # The scales are float16: keep infinities and NaN out, and reach subnormals.
        at = {Q.Q6_K: [208]}.get(q, [0, 2] if q in (Q.Q4_1, Q.Q5_1, Q.Q4_K, Q.Q5_K) else [0])
        for a in at:
            raw[:, a + 1] &= 0xBB
            raw[0, a + 1] &= 0x83
        f = quants.dequantize(raw, q).astype(np.float32)
        out[q.name] = {"raw": base64.b64encode(raw.tobytes()).decode(), "f32": base64.b64encode(f.tobytes()).decode()}
    return out


def main():
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "dequant.json"), "w") as f:
        json.dump(blocks(), f, indent=0)
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
