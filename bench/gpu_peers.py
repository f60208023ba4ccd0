"""What transformers does on this device, and what the device itself can do: the peer of
BenchmarkShape (policy/shape_bench_test.go). bench/gpu.sh calls it.

    gpu_peers.py make SHAPE FOLDER TOKENIZER   a random model: tiny, 0.5b, 1.5b or 4b
    gpu_peers.py run FOLDER [--device cuda] [--batches 1,32] [--length 1024]
    gpu_peers.py logprobs FOLDER [--device cuda]   float32 log-probs of a fixed text, as JSON

`run` prints one line a figure: name, value, unit. Figures are the median of three runs (or of
RUNS) after one that is not counted.
"""
import argparse, json, os, shutil, statistics, sys, time

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
    if not small:  # it is for GPUs alone, and the last one: on an H200 a first batch did not end within a minute
        model.zero_grad(set_to_none=True)
        continuous(model.eval(), batches, new, device)


def continuous(model, batches, new, device):
    """transformers' continuous batching over its paged cache, with CUDA graphs where it has them."""
    was = model.config._attn_implementation
    config = transformers.GenerationConfig(do_sample=True, max_new_tokens=new, min_new_tokens=new, eos_token_id=-1, pad_token_id=0)
    try:
        model.set_attn_implementation("paged|sdpa")
        for batch in batches:
            prompts = torch.randint(1000, 40000, (batch, 16)).tolist()

            def work():
                out = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False, persistent_manager=True)
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
    p.add_argument("what", choices=["make", "run", "logprobs"])
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
    elif a.what == "run":
        run(a.args[0], a.device, [int(b) for b in a.batches.split(",")], a.length)
    else:
        logprobs(a.args[0], a.device)


if __name__ == "__main__":
    main()
