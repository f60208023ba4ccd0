#!/usr/bin/env bash
# One GRPO step over the same rows by `agentcli train` and by a plain PyTorch loop
# (bench/train_peer.py), on this machine's CPU, one after the other: tokens of the
# trained rows a second, peak memory, and loss and gradient norm, which must agree.
#
#   bench/train.sh OUTPUT-FOLDER [bfloat16 float32]
#
# Two files: arith, 32 tasks x 8 attempts, whose prompts are shared; and 32 replies
# of 50 to 600 tokens that share nothing. Let nothing else run. PYTHON: one with
# torch 2.11, transformers and pyarrow; FILES="arith ragged", HOW="masters autocast"; FILES= only makes them.
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- bfloat16 float32
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
PYTHON=${PYTHON:-python3}
mkdir -p "$out"
gguf=$(ls "${XDG_CACHE_HOME:-$HOME/.cache}"/agentcli/models/*.gguf | head -1)
[ -f "$out/model/config.json" ] || "$A" model convert "$gguf" "$out/model" >/dev/null
[ -f "$out/arith.parquet" ] || "$A" rollout --model "$out/model" -d arith --limit 32 -n 8 --seed 1 -o "$out/arith.parquet"
if [ ! -f "$out/ragged.parquet" ]; then
  "$PYTHON" "$root/bench/train_rows.py" prompts "$out/ragged.jsonl" 32
  "$A" rollout --model "$out/model" -d "$out/ragged.jsonl" --reward exact -n 1 --max-tokens 560 --seed 1 -o "$out/ragged-as-sampled.parquet"
  "$PYTHON" "$root/bench/train_rows.py" groups "$out/ragged-as-sampled.parquet" "$out/ragged.parquet"
fi
"$PYTHON" - "$root/bench" >"$out/limits.json" <<'P'
import json, os, sys
sys.path.insert(0, sys.argv[1])
import peers, torch
torch.set_num_threads(os.cpu_count())
found = peers.limits(3, False)
print(json.dumps({d: max(v for k, v in found.items() if k.startswith(f"matmul {d} ")) for d in ("bfloat16", "float32")}))
P
for file in ${FILES-arith ragged}; do
  for dtype in "$@"; do
    rm -rf "$out/ours"
    "$PYTHON" - "$out/ours-$file-$dtype.json" "$A" train "$out/$file.parquet" --model "$out/model" --minibatch 0 --micro-tokens 4096 --lr 1e-6 --old-logprobs file \
      --dtype "$dtype" --force --output "$out/ours" <<'P'
import json, resource, subprocess, sys
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
m = json.loads(open(sys.argv[-1] + "/metrics.jsonl").readline())
json.dump({"seconds": m["timing_s/update_actor"], "loss": m["actor/pg_loss"], "grad_norm": m["actor/grad_norm"],
           "peak_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6}, open(sys.argv[1], "w"))
P
    rm -rf "$out/ours"
    for how in ${HOW:-masters}; do
      [ "$dtype" = bfloat16 ] || [ "$how" = masters ] || continue
      "$PYTHON" "$root/bench/train_peer.py" "$out/model" "$out/$file.parquet" --dtype "$dtype" --how "$how" >"$out/theirs-$file-$dtype-$how.json"
      "$PYTHON" - "$file" "$dtype" "$how" "$out" <<'P'
import json, sys
file, dtype, how, out = sys.argv[1:]
o, t, lim = (json.load(open(f"{out}/{x}.json")) for x in (f"ours-{file}-{dtype}", f"theirs-{file}-{dtype}-{how}", "limits"))
a, b, top = t["tokens"] / o["seconds"], t["tokens"] / t["seconds"], t["tokens"] * lim[dtype] * 1e9 / t["flops"]
print(f"| {file}: {t['rows']} rows, {t['shortest']} to {t['longest']} tokens | {dtype}{'' if how == 'masters' else ', ' + how} | {a:.0f} | {b:.0f} | {a / b:.2f} | {top:.0f} | {o['peak_gb']:.1f} GB | {t['peak_gb']:.1f} GB | {o['loss']:.5f}, {t['loss']:.5f} | {o['grad_norm']:.4f}, {t['grad_norm']:.4f} |", flush=True)
P
    done
  done
done
