"""What transformers does on this machine, and what the machine itself can do.

    python bench/peers.py FOLDER [FILE.gguf] [--repeats 5] [--quick]

Opens SmolLM2 from the GGUF in FOLDER and prints one JSON object: tokens a
second of `generate` at batch 1, 8, 32 and 128, of prompts of 512 and 4,096 tokens, and of forward
and backward over 8 × 256 tokens, in bfloat16 and float32; the speed of reading
memory and of matrix products; and the model's size, from which limits follow.
Each figure is the median of several repeats after a warm-up; `runs` has all of
them. The same work as policy/bench_test.go: run both with bench/compare.sh, on
a machine that does nothing else. --quick is a check that the script works.
"""
import argparse, glob, json, os, platform, statistics, sys, time

os.environ["TQDM_DISABLE"] = "1"  # stderr is for the figures as they come

import torch
import transformers
from transformers import AutoModelForCausalLM

RUNS = {}


def median(name, work, units, repeats, scale=1.0):
    """units a second of work(), after one run that is not counted. A first run of over a minute is the only one, and counts."""
    t = time.perf_counter()
    work()
    first = time.perf_counter() - t
    runs = [units / first / scale] if first > 60 else []
    for _ in range(0 if runs else repeats):
        t = time.perf_counter()
        work()
        runs.append(units / (time.perf_counter() - t) / scale)
    RUNS[name] = [round(r, 2) for r in runs]
    print(f"{name}: {statistics.median(runs):.1f}", file=sys.stderr)
    return round(statistics.median(runs), 2)


def decode(m, batch, new, name, repeats):
    """Whole vocabulary, temperature 1, 7 prompt tokens, none stops early. As in
    BenchmarkDecode the time of the prompts is part of it."""
    ids = torch.tensor([[1, 4093, 198, 1000 + i, 1724, 314, 216] for i in range(batch)])

    def work():
        out = m.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                         min_new_tokens=new, max_new_tokens=new, pad_token_id=0)
        assert out.shape == (batch, ids.shape[1] + new), out.shape

    return median(name, work, batch * new, repeats)


def prefill(m, n, name, repeats):
    ids = torch.tensor([[1000 + j * 104729 % 40000 for j in range(n)]])

    def work():
        with torch.inference_mode():
            m(ids, use_cache=True, logits_to_keep=1)

    return median(name, work, n, repeats)


def train(m, batch, n, name, repeats):
    """Cross-entropy of the last n - 129 tokens of each sequence (BenchmarkTrainStep
    trains on positions 129 on); logits of those positions only."""
    ids = torch.tensor([[1000 + (i * 7919 + j * 104729) % 40000 for j in range(n)] for i in range(batch)])
    want = n - n // 2 - 1

    def work():
        m.zero_grad(set_to_none=True)
        logits = m(ids, use_cache=False, logits_to_keep=want + 1).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), ids[:, -want:].reshape(-1)).backward()

    tok = median(name, work, batch * n, repeats)
    m.zero_grad(set_to_none=True)
    return tok


def limits(repeats, quick):
    out = {}
    n = (64 if quick else 1024) * 1024 * 1024 // 4  # bytes far beyond every cache
    x = torch.ones(n)
    out["memory_GBps"] = median("memory", lambda: x.sum(), 4 * n, repeats, 1e9)
    del x
    shapes = [(2048, 576, 3072)] + ([(256, 256, 256)] if quick else [(4096, 4096, 4096)])
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        for m, k, p in shapes:
            a, b = torch.randn(m, k).to(dtype), torch.randn(p, k).to(dtype)
            key = f"matmul {name} {m}x{k}x{p}"
            out[key + "_GFLOPs"] = median(key, lambda: torch.nn.functional.linear(a, b), 2 * m * k * p, repeats, 1e9)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder", help="the folder with the GGUF")
    p.add_argument("gguf", nargs="?", help="the file, where the folder has several")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    p.add_argument("--works", nargs="+", default=["decode", "prefill", "train"], help="which of these are measured")
    p.add_argument("--quick", action="store_true", help="tiny sizes: only to see that it works")
    a = p.parse_args()
    found = sorted(os.path.basename(f) for f in glob.glob(os.path.join(a.folder, "*.gguf")))
    if not a.gguf and len(found) != 1:
        p.error(f"{a.folder} has {len(found)} .gguf files {found}: name one")
    name = a.gguf or found[0]
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    new, prompts, rows, length = (4, (32, 64), 1, 32) if a.quick else (64, (512, 4096), 8, 256)
    batches = (1, 2) if a.quick else (1, 8, 32, 128)
    repeats = 1 if a.quick else a.repeats

    out = {"model": name, "torch": torch.__version__, "transformers": transformers.__version__, "threads": a.threads,
           "cpu": next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor()),
           "quick": a.quick, "limits": limits(repeats, a.quick)}
    for dtype in a.dtypes:
        m = AutoModelForCausalLM.from_pretrained(a.folder, gguf_file=name, dtype=getattr(torch, dtype)).eval()
        # sdpa is transformers' default and its fastest on a CPU.
        r = out[dtype] = {}
        if "parameters" not in out:
            body = sum(x.numel() for x in m.model.layers.parameters())
            head = m.lm_head.weight.numel()
            c = m.config
            out["parameters"] = {"layers": body, "head": head, "hidden": c.hidden_size, "n_layers": c.num_hidden_layers,
                                 "heads": c.num_attention_heads, "kv_heads": c.num_key_value_heads, "head_dim": m.model.layers[0].self_attn.head_dim}
        for b in batches if "decode" in a.works else ():
            r[f"decode batch={b}"] = decode(m, b, new, f"{dtype} decode {b}", repeats)
        for n in prompts if "prefill" in a.works else ():
            r[f"prefill length={n}"] = prefill(m, n, f"{dtype} prefill {n}", repeats)
        m.train()
        if "train" in a.works:
            r["train"] = train(m, rows, length, f"{dtype} train", repeats)
        del m
    out["runs"] = RUNS
    print(json.dumps(out))


if __name__ == "__main__":
    main()
