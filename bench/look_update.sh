#!/usr/bin/env bash
# One GRPO step over rows with images by `agentcli train` and by a plain PyTorch loop
# (bench/look_update_peer.py), on this machine's CPU, in turn; loss and gradient norm must agree.
#
#   bench/look_update.sh FOLDER [TURNS]       (default: 5 turns)
#
# FOLDER is what bench/look.sh leaves in seed-N: start/ is the model. The rows are 16 problems of
# fineprint, 8 attempts each. Let nothing else run. PYTHON: one with torch 2.11, torchvision,
# transformers and pyarrow.
set -euo pipefail
d=$1
turns=${2:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
PYTHON=${PYTHON:-python3}
[ -f "$d/rows.parquet" ] || "$A" rollout -d fineprint --limit 16 -n 8 --seed 3 --tools image_zoom_in_tool --dtype float32 \
  --model "$d/start" -o "$d/rows.parquet" 2>>"$d/log"
for vision in all none; do
  for turn in $(seq "$turns"); do
    rm -rf "$d/updated"
    "$A" train "$d/rows.parquet" --model "$d/start" --train-vision "$vision" --minibatch 0 --lr 1e-6 --old-logprobs file --dtype float32 \
      --force --output "$d/updated" >/dev/null 2>>"$d/log"
    head -1 "$d/updated/metrics.jsonl" >"$d/ours-$vision-$turn.json"
    "$PYTHON" "$root/bench/look_update_peer.py" "$d/start" "$d/rows.parquet" $([ "$vision" = all ] || echo --freeze-vision) \
      >"$d/theirs-$vision-$turn.json"
  done
  "$PYTHON" - "$d" "$vision" "$turns" <<'P'
import json, statistics, sys
d, vision, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
load = lambda who: [json.load(open(f"{d}/{who}-{vision}-{n}.json")) for n in range(1, turns + 1)]
ours, theirs = load("ours"), load("theirs")
t = theirs[0]
a = [t["tokens"] / o["timing_s/update_actor"] for o in ours]
b = [t["tokens"] / o["seconds"] for o in theirs]
ratios = sorted(x / y for x, y in zip(a, b))
print(f"| encoder {'trained' if vision == 'all' else 'frozen'} | {t['rows']} rows of {t['shortest']} to {t['longest']} tokens, {t['images']} images "
      f"| {statistics.median(a):.0f} | {statistics.median(b):.0f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
      f"| {ours[0]['actor/pg_loss']:.5f}, {t['loss']:.5f} | {ours[0]['actor/grad_norm']:.4f}, {t['grad_norm']:.4f} |", flush=True)
P
done
