"""What transformers does on this device, and what the device itself can do: the peer of
BenchmarkShape (policy/shape_bench_test.go). bench/gpu.sh calls it.

    gpu_peers.py make SHAPE FOLDER TOKENIZER   a random model: tiny, 0.5b, 1.5b or 4b
    gpu_peers.py run FOLDER [--device cuda] [--batches 1,32] [--length 1024]
    gpu_peers.py logprobs FOLDER [--device cuda]   float32 log-probs of a fixed text, as JSON
    gpu_peers.py table FILE...   what run and BenchmarkShape printed, beside the device's limits

`run` prints one line a figure: name, value, unit. Figures are the median of three runs (or of
RUNS) after one that is not counted.
"""
import argparse, json, os, re, shutil, statistics, sys, time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from transformers import AutoModelForCausalLM

RUNS = int(os.environ.get("RUNS", "3"))
SHAPES = {
    "tiny": ("qwen2", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                           vocab_size=49152, tie_word_embeddings=True)),
    "0.5b": ("qwen2", dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                           vocab_size=151936, tie_word_embeddings=True)),
    "1.5b": ("qwen2", dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
                           vocab_size=151936, tie_word_embeddings=True)),
    "4b": ("qwen3", dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=128, vocab_size=151936, tie_word_embeddings=True)),
}


def make(shape, folder, tokenizer, device):
    kind, sizes = SHAPES[shape]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, max_position_embeddings=8192, **sizes)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    shutil.copy(tokenizer, os.path.join(folder, "tokenizer.json"))


def sync(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def median(name, unit, device, work, units):
    work()
    runs = []
    for _ in range(RUNS):
        sync(device)
        t = time.perf_counter()
        work()
        sync(device)
        runs.append(units / (time.perf_counter() - t))
    print(f"{name}\t{statistics.median(runs):.4g}\t{unit}", flush=True)


def run(folder, device, batches, length):
    small = not device.startswith("cuda")
    n = (1 << 24) if small else (1 << 31)
    x = torch.empty(n, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    median("copy", "GB/s", device, lambda: y.copy_(x), 2 * n / 1e9)
    del x, y
    m = 512 if small else 8192
    a, b = (torch.randn(m, m, device=device, dtype=torch.bfloat16) for _ in range(2))
    median("matmul", "TFLOP/s", device, lambda: a @ b, 2 * m**3 / 1e12)
    del a, b
    t = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").to(device).eval()
    sync(device)
    print(f"transformers open\t{time.perf_counter() - t:.4g}\ts", flush=True)
    sizes(model)
    new = min(128, length)
    for batch in batches:
        ids = torch.randint(1000, 40000, (batch, 16), device=device)

        def work():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
                           min_new_tokens=new, max_new_tokens=new, pad_token_id=0)

        median(f"transformers decode/batch={batch}", "tok/s", device, work, batch * new)
    for n in (length, 4 * length):
        ids = torch.randint(1000, 40000, (1, n), device=device)

        def prefill():
            with torch.inference_mode():
                model(ids, use_cache=True, logits_to_keep=1)

        median(f"transformers prefill/length={n}", "tok/s", device, prefill, n)
    model.train()

    def train(rows, at_once):
        model.zero_grad(set_to_none=True)
        for row in rows.split(at_once):  # logits of the whole batch would not fit beside the rest
            logits = model(row, use_cache=False).logits[:, :-1]
            torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), row[:, 1:].flatten()).backward()

    rows = torch.randint(1000, 40000, (8, length), device=device)
    median("transformers train", "tok/s", device, lambda: train(rows, 4 if not small else 8), 8 * length)
    # Two groups of eight replies; a plain loop computes the prompt for each of them.
    groups = torch.randint(1000, 40000, (16, 9 * (length // 4)), device=device)
    median("transformers train-groups", "tok/s", device, lambda: train(groups, 2), groups.numel())
    model.zero_grad(set_to_none=True)
    continuous(model.eval(), batches, new, device)  # the last one: on an H200 a first batch did not end within a minute


def sizes(model):
    """What a step reads and multiplies at least: the limits of `table` follow from it."""
    c = model.config
    head = c.vocab_size * c.hidden_size  # the embedding of these shapes, too
    width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    layers = sum(p.numel() for p in model.parameters()) - head
    print(f"weights\t{2 * (layers + head) / 1e9:.6g}\tGB")
    print(f"keys and values\t{4 * c.num_hidden_layers * c.num_key_value_heads * width}\tB a position")
    print(f"layers\t{2 * layers}\tFLOP a token")
    print(f"head\t{2 * head}\tFLOP a token")
    print(f"attention\t{4 * c.num_hidden_layers * c.num_attention_heads * width}\tFLOP a token and position", flush=True)


def limit(what, figures):
    """Tokens a second if the device did nothing but read (decoding: weights once a step, each sequence's
    keys and values) or multiply (the rest: causal attention, forward once, backward twice); None where it has none."""
    name, _, n = what.partition("=")
    if name == "decode/batch":
        positions = 16 + min(128, figures["length"]) / 2
        return int(n) * figures["copy"] / (figures["weights"] + int(n) * positions * figures["keys and values"] / 1e9)
    if name == "prefill/length":
        return figures["matmul"] * 1e12 / (figures["layers"] + figures["attention"] * int(n) / 2)
    if name == "train":
        return figures["matmul"] * 1e12 / 3 / (figures["layers"] + figures["head"] + figures["attention"] * figures["length"] / 2)
    return None


def table(paths):
    for path in paths:
        ours, theirs, figures, seconds = {}, {}, {}, set()
        for line in open(path):
            fields = line.rstrip("\n").split("\t")
            if m := re.match(r"BenchmarkShape/(\S+?)(-\d+)?\s", line):
                rate = re.search(r"([0-9.e+]+) (tok/s|s)\b", line)
                ours[m[1]] = float(rate[1])
                if rate[2] == "s":
                    seconds.add(m[1])
            elif len(fields) == 3 and fields[0].startswith("transformers "):
                theirs[fields[0].removeprefix("transformers ")] = float(fields[1])
            elif len(fields) == 3:
                figures[fields[0]] = float(fields[1])
        lengths = [int(w.partition("=")[2]) for w in ours if w.startswith("prefill/")]
        figures["length"] = min(lengths, default=0)
        print(f"\n{os.path.basename(path).removesuffix('.txt')}: copy {figures.get('copy', 0):.4g} GB/s, matrices {figures.get('matmul', 0):.4g} TFLOP/s\n")
        print("| what | agentcli | transformers | times as fast | limit | share of it |\n|---|---:|---:|---:|---:|---:|")
        for what, rate in ours.items():
            peer = theirs.get(what)
            most = limit(what, figures) if "weights" in figures else None
            times = (peer / rate if what in seconds else rate / peer) if peer else None
            row = [f"{rate:.4g}", f"{peer:.4g}" if peer else "", f"{times:.2f}" if peer else "",
                   f"{most:.4g}" if most else "", f"{rate / most:.0%}" if most else ""]
            print(f"| {what}, {'s' if what in seconds else 'tokens/s'} | {' | '.join(row)} |")
        for what in theirs.keys() - ours.keys():
            print(f"| {what} | | {theirs[what]:.4g} | | | |")


def continuous(model, batches, new, device):
    """transformers' continuous batching over its paged cache, with CUDA graphs where it has them."""
    was = model.config._attn_implementation
    config = transformers.GenerationConfig(do_sample=True, max_new_tokens=new, min_new_tokens=new, eos_token_id=-1, pad_token_id=0)
    try:
        # Of a CPU it would take nine tenths of all memory.
        memory = transformers.ContinuousBatchingConfig(max_memory_percent=.5 if device.startswith("cuda") else .05)
        model.set_attn_implementation("paged|sdpa")
        for batch in batches:
            prompts = torch.randint(1000, 40000, (batch, 16)).tolist()

            def work():
                out = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=memory, progress_bar=False,
                                           persistent_manager=True)
                assert all(len(o.generated_tokens) == new for o in out.values()), "a reply is shorter"

            median(f"transformers continuous/batch={batch}", "tok/s", device, work, batch * new)
    except Exception as e:
        print(f"# continuous batching: {type(e).__name__}: {e}".replace("\n", " ")[:300], flush=True)
    model.set_attn_implementation(was)


def logprobs(folder, device):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    ids = [1000 + j * 104729 % 40000 for j in range(300)]
    with torch.inference_mode():
        lp = model(torch.tensor([ids], device=device)).logits[0].double().log_softmax(-1)
    print(json.dumps({"token_ids": ids, "logprobs": [lp[j, ids[j + 1]].item() for j in range(len(ids) - 1)]}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["make", "run", "logprobs", "table"])
    p.add_argument("args", nargs="+")
    p.add_argument("--device", default="cuda")
    p.add_argument("--batches", default="1,32,128,256")
    p.add_argument("--length", type=int, default=1024)
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    if a.what == "make":
        make(*a.args, a.device)
    elif a.what == "table":
        table(a.args)
    elif a.what == "run":
        run(a.args[0], a.device, [int(b) for b in a.batches.split(",")], a.length)
    else:
        logprobs(a.args[0], a.device)


if __name__ == "__main__":
    main()
