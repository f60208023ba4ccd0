"""Golden tensors of quantised safetensors.

    python scripts/golden/quantised.py AUTOAWQ

AUTOAWQ is the folder of autoawq's unpacked source (pip download autoawq). Writes
model/weights/testdata/quantised/NAME.safetensors with the tensors of one module in
each format, and quantised.json: the fields of config.json, and what the weights
are: by transformers (fp8, mxfp4), compressed-tensors and autoawq; those of GPTQ by
the published packing (AutoGPTQ's qlinear_cuda_old, restated below).
"""
import base64, hashlib, importlib.util, json, os, sys

import torch
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "weights", "testdata", "quantised")
G = torch.Generator().manual_seed(1)
rnd = lambda *s: torch.randn(*s, generator=G)
bits32 = lambda *s: torch.randint(-(2**31), 2**31 - 1, s, generator=G, dtype=torch.int64).to(torch.int32)


def fp8(scale):
    w = torch.arange(64 * 48, dtype=torch.int64).remainder(256).to(torch.uint8)
    w[(w & 0x7F) == 0x7F] = 3
    w = w.view(torch.float8_e4m3fn).reshape(64, 48)
    return {"m.weight": w, "m.weight_scale_inv": scale}, "m.weight", Fp8Dequantize(None)._dequantize_one(w, scale)


def mxfp4():
    b = torch.randint(0, 256, (2, 12, 3, 16), generator=G, dtype=torch.uint8)
    s = torch.randint(110, 140, (2, 12, 3), generator=G, dtype=torch.uint8)
    return {"m.gate_up_proj_blocks": b, "m.gate_up_proj_scales": s}, "m.gate_up_proj", convert_moe_packed_tensors(b.clone(), s.clone())


def compressed(bits, symmetric, strategy, group, dtype=torch.bfloat16, pack=True, shape=(24, 64)):
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy=strategy, group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    groups = shape[1] // group if group else 1
    scale = (rnd(shape[0], groups).abs() * 0.01 + 0.001).to(dtype)
    zero = torch.zeros(shape[0], groups, dtype=torch.int8) if symmetric else torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (shape[0], groups), generator=G).to(torch.int8)
    state = {"weight": rnd(*shape).mul(0.05).to(dtype), "weight_scale": scale, "weight_zero_point": zero}
    c = PackedQuantizationCompressor if pack else NaiveQuantizationCompressor
    packed = c.compress(state, scheme)
    if symmetric:
        packed.pop("weight_zero_point", None)
    want = c.decompress(packed, scheme)["weight"]
    return {"m." + k: v.contiguous() for k, v in packed.items()}, "m.weight", want


def ordered():
    """Columns in groups of any order, which the library read until version 0.19: by its rule."""
    packed, name, _ = compressed(4, True, "group", 16)
    g = torch.randperm(64, generator=G).div(16, rounding_mode="floor").to(torch.int32)
    q = unpack_from_int32(packed["m.weight_packed"], 4, torch.Size([24, 64]))
    scale = packed["m.weight_scale"]
    return dict(packed, **{"m.weight_g_idx": g}), name, q.to(scale.dtype) * scale[:, g.long()]


def float_channel():
    w = (rnd(16, 32)).to(torch.float8_e4m3fn)
    scale = (rnd(16, 1).abs() + 0.1).to(torch.bfloat16)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="channel"))
    want = NaiveQuantizationCompressor.decompress({"weight": w, "weight_scale": scale}, scheme)["weight"]
    return {"m.weight": w, "m.weight_scale": scale}, "m.weight", want


def awq(path):
    spec = importlib.util.spec_from_file_location("packing_utils", os.path.join(path, "awq", "utils", "packing_utils.py"))
    lib = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lib)
    q, z, s = bits32(64, 3), bits32(2, 3), (rnd(2, 24).abs() * 0.01).to(torch.float16)
    return {"m.qweight": q, "m.qzeros": z, "m.scales": s, "m.bias": rnd(24).to(torch.float16)}, "m.weight", lib.dequantize_gemm(q, z, s, 4, 32).T.contiguous()


def gptq(bits, version, order=False, groups=2):
    per, ins, outs = 32 // bits, 64, 32
    q, z, s = bits32(ins // per, outs), bits32(groups, outs // per), (rnd(groups, outs).abs() * 0.01).to(torch.float16)
    g = torch.arange(ins) // (ins // groups)
    if order:
        g = g[torch.randperm(ins, generator=G)]
    mask = 2**bits - 1
    shifts = torch.arange(0, 32, bits)
    zeros = ((z.unsqueeze(2) >> shifts) & mask).reshape(groups, outs)
    if version == 1:
        zeros = (zeros + 1) & mask
    weight = ((q.unsqueeze(1) >> shifts.reshape(1, -1, 1)) & mask).reshape(ins, outs)
    want = (s[g] * (weight - zeros[g]).to(torch.float16)).T.contiguous()
    return {"m.qweight": q, "m.qzeros": z, "m.scales": s, "m.g_idx": g.to(torch.int32)}, "m.weight", want


def main():
    os.makedirs(HERE, exist_ok=True)
    ct = lambda f: {"quant_method": "compressed-tensors", "format": f}
    cases = {
        "fp8": ({"quant_method": "fp8", "weight_block_size": [16, 16]}, fp8(rnd(4, 3).abs() * 0.1)), "fp8_tensor": ({"quant_method": "fp8"}, fp8(rnd(1, 1).abs().to(torch.bfloat16))),
        "mxfp4": ({"quant_method": "mxfp4"}, mxfp4()),
        "int4": (ct("pack-quantized"), compressed(4, True, "group", 16)), "int4_zero": (ct("pack-quantized"), compressed(4, False, "group", 16)), "int4_channel": (ct("pack-quantized"), compressed(4, False, "channel", None, shape=(20, 36))),
        "int4_order": (ct("pack-quantized"), ordered()), "int8_packed": (ct("pack-quantized"), compressed(8, True, "group", 32, dtype=torch.float16)),
        "int8": (ct("int-quantized"), compressed(8, True, "channel", None, pack=False)), "int8_zero": (ct("int-quantized"), compressed(8, False, "channel", None, pack=False, dtype=torch.float32)), "float8": (ct("float-quantized"), float_channel()),
        "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": 32, "zero_point": True}, awq(sys.argv[1])),
        "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}, gptq(4, 1)), "gptq_order": ({"quant_method": "gptq", "bits": 4, "desc_act": True}, gptq(4, 1, order=True, groups=4)),
        "gptq_v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, gptq(4, 2)), "gptq8": ({"quant_method": "gptq", "bits": 8}, gptq(8, 1)), "gptq2": ({"quant_method": "gptq", "bits": 2}, gptq(2, 1)),
    }
    out = {}
    for name, (conf, (tensors, plain, want)) in cases.items():
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(HERE, name + ".safetensors"))
        want = want.detach().contiguous()
        raw = want.view(torch.int16 if want.element_size() == 2 else torch.int32).numpy().tobytes()
        out[name] = {"config": conf, "name": plain, "dtype": {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[want.dtype], "shape": list(want.shape), "sha256": hashlib.sha256(raw).hexdigest(),
                     "first": want.flatten()[:8].float().tolist()}
    with open(os.path.join(HERE, "quantised.json"), "w") as f:
        json.dump(out, f, indent=0)


if __name__ == "__main__":
    main()
