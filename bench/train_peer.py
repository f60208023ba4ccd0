"""One GRPO step of a trajectory file in plain PyTorch, for bench/train.sh.

    python bench/train_peer.py MODEL-DIR FILE.parquet [--dtype bfloat16] [--how masters|autocast] [--micro-tokens 2048]

What a careful user writes: transformers, rows sorted by length into padded
micro-batches of at most so many tokens, logits of the trained positions only,
rows whose advantage is 0 left out, the clipped loss over the mean of all tokens,
gradient clipping, fused AdamW. In bfloat16 the weights that are updated are
float32: `masters` computes in a bfloat16 copy of them, `autocast` under
torch.autocast. Prints one JSON object; the time is that of the update, forward to
optimiser step, without reading anything.
"""
import argparse, collections, json, math, os, resource, time

os.environ["TQDM_DISABLE"] = "1"

import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM


def advantages(rows):
    """Rows that have a reward, each with its advantage in GRPO."""
    groups = collections.defaultdict(list)
    for r in rows:
        if r["reward"] is not None and r["sequences"]:
            groups[r["group_id"]].append(r)
    for g in groups.values():
        s = [r["reward"] for r in g]
        mean = sum(s) / len(s)
        std = math.sqrt(sum((x - mean) ** 2 for x in s) / (len(s) - 1)) if len(s) > 1 else 1.0
        for r in g:
            yield r, (r["reward"] - mean) / (std + 1e-6)


def rows_of(path):
    """Sequences with their masks, sampling log-probs and the advantages of GRPO."""
    t = pq.read_table(path, columns=["group_id", "reward", "sequences"]).to_pylist()
    return [(q["token_ids"], q["loss_mask"], q["logprobs"], a) for r, a in advantages(t) for q in r["sequences"]]


def micro_batches(rows, most):
    """By length, so that little is padded."""
    batches = []
    for r in sorted(rows, key=lambda r: len(r[0])):
        if not batches or len(r[0]) * (len(batches[-1]) + 1) > most:
            batches.append([])
        batches[-1].append(r)
    return batches


def padded(rows):
    """ids, attention mask, loss mask, sampling log-probs and advantages of a micro-batch."""
    n = max(len(r[0]) for r in rows)
    ids, seen, own = (torch.zeros(len(rows), n, dtype=d) for d in (torch.long, torch.long, torch.bool))
    old, adv = torch.zeros(len(rows), n), torch.zeros(len(rows), n)
    for i, (tok, mask, lp, ad, *_) in enumerate(rows):
        k = len(tok)
        ids[i, :k], seen[i, :k], own[i, :k] = torch.tensor(tok), 1, torch.tensor(mask)
        old[i, :k], adv[i] = torch.tensor([x or 0.0 for x in lp]), ad
    return ids, seen, own, old, adv


def clipped_loss(logits, ids, own, old, adv):
    """The sum over the trained tokens, whose logits these are."""
    lp = -F.cross_entropy(logits.float(), ids[:, 1:][own[:, 1:]], reduction="none")
    ratio, ad = (lp - old[:, 1:][own[:, 1:]]).exp(), adv[:, 1:][own[:, 1:]]
    return torch.max(-ad * ratio, -ad * ratio.clamp(0.8, 1.2)).sum()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("file")
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    p.add_argument("--how", default="masters", choices=["masters", "autocast"])
    p.add_argument("--micro-tokens", type=int, default=2048)
    p.add_argument("--lr", type=float, default=1e-6)
    a = p.parse_args()
    torch.set_num_threads(os.cpu_count())
    transformers.logging.set_verbosity_error()
    half = a.dtype == "bfloat16"
    copy = half and a.how == "masters"
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).train()
    masters = list(model.parameters())
    if copy:
        masters = [torch.nn.Parameter(w.detach().clone()) for w in masters]
        model = model.to(torch.bfloat16)
    work = list(model.parameters())
    opt = torch.optim.AdamW(masters, lr=a.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    rows = rows_of(a.file)
    count = sum(sum(m) for _, m, _, _ in rows)  # the denominator has all tokens that were sampled
    some = [r for r in rows if r[3] != 0]

    begun = time.perf_counter()
    total = 0.0
    for mb in micro_batches(some, a.micro_tokens):
        ids, seen, own, old, adv = padded(mb)
        with torch.autocast("cpu", torch.bfloat16, enabled=half and not copy):
            hidden = model.model(input_ids=ids, attention_mask=seen, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden[:, :-1][own[:, 1:]])
        loss = clipped_loss(logits, ids, own, old, adv) / count
        loss.backward()
        total += loss.item()
        if copy:  # summed in float32, as the gradients of masters are
            for m, w in zip(masters, work):
                if w.grad is not None:
                    m.grad = w.grad.float() if m.grad is None else m.grad.add_(w.grad)
                    w.grad = None
    norm = torch.nn.utils.clip_grad_norm_(masters, 1.0).item()
    opt.step()
    if copy:
        with torch.no_grad():
            torch._foreach_copy_(work, masters)
    opt.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begun
    lengths = [len(r[0]) for r in some]
    c = model.config
    print(json.dumps({
        "seconds": seconds, "loss": total, "grad_norm": norm, "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "rows": len(some), "of": len(rows), "tokens": sum(lengths), "shortest": min(lengths), "longest": max(lengths),
        "trained": sum(sum(m) for _, m, _, _ in some),
        # of the rows without padding or sharing: backward is twice the forward, attention is causal
        "flops": 3 * (2 * sum(x.numel() for x in model.model.layers.parameters()) * sum(lengths)
                      + sum(2 * c.num_hidden_layers * c.num_attention_heads * model.model.layers[0].self_attn.head_dim * n * n for n in lengths)
                      + 2 * model.lm_head.weight.numel() * sum(sum(m) for _, m, _, _ in some)),
    }))


if __name__ == "__main__":
    main()
