"""Golden values and gradients for package internal/torch, from PyTorch 2.11.

    python scripts/golden/torchops.py

Writes internal/torch/testdata/ops.json. Inputs are random float32; each case is
computed by plain PyTorch formulas (none of our fused forms), all in float64:
  f64   from the inputs as they are: what float64 and float32 are measured by,
  bf16  from inputs rounded to bfloat16: the exact answer that a bfloat16
        kernel's output is measured by (values only),
with the gradient of sum(out * cot) over all differentiable outputs. Arrays are
base64 of little-endian bytes: f4, f8, or i8 for integers.
"""
import base64, json, math, os

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "internal", "torch", "testdata")
G = torch.Generator().manual_seed(11)
CASES = []


def randn(*shape, scale=1.0):
    return torch.randn(shape, generator=G) * scale


def pack(t, kind):
    a = t.detach().contiguous().numpy().astype({"f4": "<f4", "f8": "<f8", "i8": "<i8"}[kind])
    return {"shape": list(a.shape), "kind": kind, "data": base64.b64encode(a.tobytes()).decode()}


def case(name, op, f, inputs, acc=(), nograd=(), attrs=None, fixed_outputs=(), grad=True):
    """inputs: name → float32 or int64 tensor. acc: inputs in the accumulation
    type (float32 for a bfloat16 op). nograd: no gradient is taken of these.
    fixed_outputs: outputs without gradient."""
    out = {"name": name, "op": op, "attrs": attrs or {}, "in": {}, "acc": list(acc), "nograd": list(nograd), "fixed": list(fixed_outputs)}
    for k, v in inputs.items():
        out["in"][k] = pack(v, "i8" if v.dtype == torch.int64 else "f4")
    cots = {}
    dtype = torch.float64
    for kind in ("f64", "bf16"):
        x = {}
        for k, v in inputs.items():
            if v.dtype == torch.int64:
                x[k] = v
                continue
            if kind == "bf16" and k not in acc:
                v = v.bfloat16()
            x[k] = v.to(dtype).clone()
            if grad and kind != "bf16" and k not in acc and k not in nograd:
                x[k].requires_grad_()
        r = f(x, attrs or {})
        out[kind] = {"out": {k: pack(v, "f8" if kind == "f64" else "f4") for k, v in r.items()}, "grad": {}}
        if kind == "bf16" or not grad:
            continue
        loss = 0
        for k, v in r.items():
            if k in fixed_outputs:
                continue
            if k not in cots:
                cots[k] = randn(*v.shape)
            loss = loss + (v * cots[k].to(dtype)).sum()
        loss.backward()
        out[kind]["grad"] = {k: pack(v.grad, "f8" if kind == "f64" else "f4") for k, v in x.items() if v.requires_grad}
    out["cot"] = {k: pack(v, "f4") for k, v in cots.items()}
    CASES.append(out)


def rms(x, w, eps):
    return w * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def masked(q, k, v, mask):
    """Plain attention: q [L, Hq, D], k, v [C, Hkv, D], mask [L, C] True where seen."""
    rep = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
    s = torch.einsum("lhd,chd->hlc", q, k) / math.sqrt(q.shape[-1])
    s = s.masked_fill(~mask, float("-inf"))
    return torch.einsum("hlc,chd->lhd", s.softmax(-1), v)


def tree(x, a):
    """Token i sees token j if j lies on i's path (own node or an ancestor), not
    later, and at most window - 1 path positions back."""
    nodes, window, t = a["nodes"], a["window"], x["q"].shape[0]
    mask = torch.zeros(t, t, dtype=torch.bool)
    for n, (start, length, _) in enumerate(nodes):
        path, m = [], n
        while m >= 0:
            path = list(range(nodes[m][0], nodes[m][0] + nodes[m][1])) + path
            m = nodes[m][2]
        for i in range(start, start + length):
            upto = path[: path.index(i) + 1]
            mask[i, upto[-window:] if window > 0 else upto] = True
    return {"out": masked(x["q"], x["k"], x["v"], mask)}


def cached(x, a):
    """Rows of each segment against its whole context, gathered from the blocks."""
    kp, vp, bs, window = x["kpool"].clone(), x["vpool"].clone(), x["kpool"].shape[1], a["window"]
    out = torch.zeros_like(x["q"])
    ctxs = []
    for start, length, ctx, first in a["segs"]:
        slots = [(a["blocks"][first + t // bs], t % bs) for t in range(ctx)]
        for i in range(length):
            b, o = slots[ctx - length + i]
            kp[b, o], vp[b, o] = x["k"][start + i], x["v"][start + i]
        ctxs.append(slots)
    for (start, length, ctx, _), slots in zip(a["segs"], ctxs):
        k = torch.stack([kp[b, o] for b, o in slots])
        v = torch.stack([vp[b, o] for b, o in slots])
        i, j = torch.arange(ctx - length, ctx)[:, None], torch.arange(ctx)[None, :]
        mask = j <= i
        if window > 0:
            mask &= j > i - window
        out[start : start + length] = masked(x["q"][start : start + length], k, v, mask)
    return {"out": out}


def head(x, a):
    z = x["h"] @ x["w"].T
    lp = z.log_softmax(-1)
    return {"logprobs": lp.gather(1, x["y"][:, None])[:, 0], "entropy": -(lp.exp() * lp).sum(-1)}


def ops():
    case("add broadcasts", "add", lambda x, a: {"out": x["a"] + x["b"]}, {"a": randn(3, 5), "b": randn(5)})
    case("mul broadcasts", "mul", lambda x, a: {"out": x["a"] * x["b"]}, {"a": randn(3, 5), "b": randn(3, 1)})
    case("matmul", "matmul", lambda x, a: {"out": x["a"] @ x["b"]}, {"a": randn(4, 7), "b": randn(7, 5)})
    for dim in (0, 1):
        case(f"index_select of dimension {dim}, ids repeated", "index_select", lambda x, a: {"out": x["x"].index_select(a["dim"], x["i"])},
             {"x": randn(6, 4), "i": torch.tensor([3, 0, 0, 2])}, attrs={"dim": dim})
    case("sum", "sum", lambda x, a: {"out": x["x"].sum()}, {"x": randn(5, 9)})
    case("linear", "linear", lambda x, a: {"out": F.linear(x["x"], x["w"])}, {"x": randn(5, 12), "w": randn(7, 12)})
    case("linear with bias, three dimensions", "linear", lambda x, a: {"out": F.linear(x["x"], x["w"], x["b"])},
         {"x": randn(2, 3, 12), "w": randn(7, 12), "b": randn(7)})
    for n, scale in ((37, 1.0), (5, 1e-3), (64, 30.0)):
        case(f"rms_norm of {n} values of size {scale}", "rms_norm", lambda x, a: {"out": rms(x["x"], x["w"], a["eps"])},
             {"x": randn(3, n, scale=scale), "w": randn(n)}, attrs={"eps": 1e-5})

    def addrms(x, a):
        s = x["x"] + x["y"]
        return {"sum": s, "out": rms(s, x["w"], a["eps"])}

    case("add_rms_norm", "add_rms_norm", addrms, {"x": randn(3, 37), "y": randn(3, 37), "w": randn(37)}, attrs={"eps": 1e-6})
    case("embedding with a repeated id", "embedding", lambda x, a: {"out": F.embedding(x["i"], x["w"])},
         {"w": randn(11, 6), "i": torch.tensor([[0, 10, 3, 3], [5, 3, 0, 1]])})
    ang = torch.rand(5, 9, generator=G) * 6
    case("rope", "rope", lambda x, a: {"out": rope(x["x"], x["cos"], x["sin"])},
         {"x": randn(5, 2, 18), "cos": ang.cos(), "sin": ang.sin()}, acc=("cos", "sin"))
    case("silu_mul", "silu_mul", lambda x, a: {"out": F.silu(x["x"].chunk(2, -1)[0]) * x["x"].chunk(2, -1)[1]}, {"x": randn(3, 38, scale=4)})
    edge = torch.tensor([0, 1e-20, -1e-20, 15, -15, 60, -60, 86, -86, 88, -88, 90, -90, 200, -200, 1e4, -1e4], dtype=torch.float32)
    case("silu_mul at the ends of exp", "silu_mul", lambda x, a: {"out": F.silu(x["x"].chunk(2, -1)[0]) * x["x"].chunk(2, -1)[1]},
         {"x": torch.cat([edge, torch.ones(17)])[None]})

    chain = [[0, 7, -1]]
    branchy = [[0, 3, -1], [3, 2, 0], [5, 2, 0], [7, 2, 1], [9, 1, 1], [10, 3, -1], [13, 1, 5]]
    for label, nodes, hq, hkv, d, window in (("one sequence", chain, 2, 2, 8, 0), ("one sequence, window 3", chain, 2, 1, 8, 3),
                                             ("branches, GQA", branchy, 4, 2, 6, 0), ("branches, GQA, window 2", branchy, 4, 2, 4, 2),
                                             ("branches, window 4", branchy, 2, 2, 4, 4), ("a window wider than all", branchy, 2, 1, 4, 99)):
        t = sum(n[1] for n in nodes)
        case("tree_attention: " + label, "tree_attention", tree, {"q": randn(t, hq, d), "k": randn(t, hkv, d), "v": randn(t, hkv, d)},
             attrs={"nodes": nodes, "window": window})

    mixes = {"decode of three": ([[0, 1, 9, 0], [1, 1, 1, 3], [2, 1, 4, 4]], [5, 0, 3, 2, 6]),
             "prefill of two": ([[0, 6, 6, 0], [6, 3, 3, 2]], [4, 1, 0]),
             "decode, prefill and a later chunk": ([[0, 1, 5, 0], [1, 4, 4, 2], [5, 3, 10, 3]], [6, 2, 1, 0, 3, 5])}
    for label, (segs, blocks) in mixes.items():
        for hq, hkv, d, window in ((4, 2, 18 if "three" in label else 4, 0), (3, 1, 6, 3)):
            t = sum(s[1] for s in segs)
            case(f"cached_attention: {label}, {hq}/{hkv} heads, window {window}", "cached_attention", cached,
                 {"q": randn(t, hq, d), "k": randn(t, hkv, d), "v": randn(t, hkv, d), "kpool": randn(7, 4, hkv, d), "vpool": randn(7, 4, hkv, d)},
                 attrs={"segs": segs, "blocks": blocks, "window": window}, grad=False)
    h, w, y = randn(9, 10), randn(33, 10), torch.randint(0, 33, (9,), generator=G)
    case("head_logprobs", "head_logprobs", head, {"h": h, "w": w, "y": y}, fixed_outputs=("entropy",))

    case("narrow", "narrow", lambda x, a: {"out": x["x"].narrow(1, 2, 3)}, {"x": randn(3, 7)})
    case("reshape", "reshape", lambda x, a: {"out": x["x"].reshape(3, 4)}, {"x": randn(2, 6)})
    case("cat", "cat", lambda x, a: {"out": torch.cat([x["a"], x["b"], x["a"]], 1)}, {"a": randn(2, 3), "b": randn(2, 1)})
    case("clone", "clone", lambda x, a: {"out": x["x"].clone()}, {"x": randn(2, 3)})


def adamw():
    out = {}
    cfg = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
    start, grads = [randn(4, 3), randn(5)], [[randn(4, 3), randn(5)] for _ in range(5)]
    for kind, dtype, fmt in (("f32", torch.float32, "f4"), ("f64", torch.float64, "f8")):
        ps = [torch.nn.Parameter(p.to(dtype).clone()) for p in start]
        opt = torch.optim.AdamW(ps, foreach=False, fused=False, **cfg)
        steps = []
        for g in grads:
            for p, x in zip(ps, g):
                p.grad = x.to(dtype).clone()
            opt.step()
            steps.append([pack(p, fmt) for p in ps])
        out[kind] = steps
    return {"lr": 3e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1, "start": [pack(p, "f4") for p in start],
            "grads": [[pack(x, "f4") for x in g] for g in grads], **out}


def clip():
    out = []
    for scale, limit in ((3.0, 1.0), (0.01, 1.0)):  # above the limit, and below it
        gs = [randn(4, 3, scale=scale), randn(7, scale=scale)]
        ps = [torch.nn.Parameter(torch.zeros_like(g)) for g in gs]
        for p, g in zip(ps, gs):
            p.grad = g.clone()
        norm = torch.nn.utils.clip_grad_norm_(ps, limit).item()
        out.append({"limit": limit, "in": [pack(g, "f4") for g in gs], "norm": norm, "out": [pack(p.grad, "f4") for p in ps]})
    return out


def sampling():
    """The sets that transformers' processors keep, in generate's own order, and
    the distribution over them."""
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    z = randn(201, scale=1.5)
    rows = []
    for t, k, p, m in ((1, 0, 0, 0), (0.7, 0, 0, 0), (1, 1, 0, 0), (1, 7, 0, 0), (1, 500, 0, 0), (1, 0, .5, 0), (1, 0, .9, 0), (1, 0, 1e-6, 0), (1, 0, 1, 0),
                       (1, 0, 0, .1), (1, 0, 0, 1), (1.3, 30, .8, 0), (.8, 40, .95, .05), (2, 0, .97, .02), (.5, 60, 0, .01)):
        s = z[None].double()
        s = TemperatureLogitsWarper(float(t))(None, s)
        if k:
            s = TopKLogitsWarper(k)(None, s)
        if p:
            s = TopPLogitsWarper(float(p))(None, s)
        if m:
            s = MinPLogitsWarper(m)(None, s)
        keep = (s[0] > float("-inf")).nonzero()[:, 0]
        rows.append({"temperature": t, "top_k": k, "top_p": p, "min_p": m, "keep": keep.tolist(), "probs": pack(s[0].softmax(-1)[keep], "f4")})
    return {"logits": pack(z, "f4"), "logprobs": pack(z.double().log_softmax(-1), "f4"), "rows": rows}


def rounding():
    """float32 → bfloat16, with ties, carries, denormals and the ends."""
    bits = [0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x3FFFFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x00008000, 0x00018000, 0x007FFFFF]
    x = torch.from_numpy(np.array(bits, dtype=np.uint32).view(np.float32).copy())
    return {"in": pack(x, "f4"), "bits": x.bfloat16().view(torch.int16).to(torch.int32).bitwise_and(0xFFFF).tolist()}


def main():
    torch.set_num_threads(1)
    os.makedirs(HERE, exist_ok=True)
    ops()
    path = os.path.join(HERE, "ops.json")
    with open(path, "w") as f:
        json.dump({"torch": torch.__version__, "cases": CASES, "adamw": adamw(), "clip": clip(), "sampling": sampling(), "rounding": rounding()}, f, separators=(",", ":"))
        f.write("\n")
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
