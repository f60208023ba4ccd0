#!/usr/bin/env bash
# make demo-look: a model with random weights learns where to look. Its images have stripes that
# are gone at the size that it sees; a zoom shows them. 3 to 4 minutes on two idle cores, no network.
set -euo pipefail
cd "$(dirname "$0")/.."
A=bin/agentcli
seed=${SEED:-1}
out=demo/look
rm -rf "$out"
mkdir -p "$out"
step() { printf '\n\033[1m== %s\033[0m\n   $ agentcli %s\n' "$1" "$2" >&2; }
run() { local title=$1; shift; step "$title" "$*"; "$A" "$@"; }
started=$(date +%s)
sft=(train --algo sft --train-vision all --lr 7e-4 --warmup-steps 10 --minibatch 32 --betas .9,.99 --weight-decay .01 --dtype float32)
held=(eval --dataset fineprint --limit 256 -n 1 --seed 7 --dtype float32)
replies() { "$A" rollout -d fineprint --split "$1" --limit "$2" -n 1 --seed "$3" --model "replay:$out/init" -o "$out/$4.parquet"; }

run "1/6  A Qwen2.5-VL of 2.8 M parameters, random weights" model init --config examples/look/config.json --seed "$seed" -o "$out/init"
step "2/6  Demonstrations: what plates show, where they are, and glances, half of which look, mostly at the wrong field" \
  "rollout -d fineprint --split glances --model replay:$out/init …"
replies places 3600 "$seed" places
replies crops 900 "$seed" crops
replies glances 9600 "$seed" glances
replies places 1200 $((seed + 100)) places-again
replies crops 600 $((seed + 100)) crops-again
run "3/6  Cold start: places and crops" "${sft[@]}" --model "$out/init" "$out/places.parquet" "$out/crops.parquet" -o "$out/skills"
run "     then glances" "${sft[@]}" --model "$out/skills" --schedule cosine "$out/glances.parquet" "$out/places-again.parquet" \
  "$out/crops-again.parquet" -o "$out/start"
run "4/6  Before: 256 held-out problems" "${held[@]}" --model "$out/start" --output "$out/before"
run "5/6  GRPO with the tool: 20 steps of 16 problems × 8 attempts" loop -d fineprint --model "$out/start" --steps 20 --tasks 16 -n 8 \
  --seed "$seed" --dtype float32 --train-vision all --lr 1e-4 --epochs 2 --betas .9,.99 --minibatch 0 --output "$out/model"
run "6/6  After: the same problems" "${held[@]}" --model "$out/model" --output "$out/after"
"$A" rollout -d fineprint --split test --limit 3 -n 1 --seed 7 --model "$out/model" --dtype float32 -o "$out/looks.parquet"
"$A" inspect "$out/looks.parquet" --html >"$out/looks.html"

number() { tr -d ' \n' <"$out/$1/report.json" | sed -n "s/.*\"$2\":\({\"value\":\)*\([0-9.e-]*\).*/\2/p"; }
error() { tr -d ' \n' <"$out/$1/report.json" | sed -n 's/.*"pass@1":{"value":[0-9.e-]*,"stderr":\([0-9.e-]*\).*/\1/p'; }
printf '\n\033[1m== Side by side: 256 held-out problems, temperature 1; chance is .25\033[0m\n'
LC_ALL=C printf '   %-34s %8.3f ± %-8.3f %8.3f ± %-8.3f\n' "pass@1, before and after" "$(number before 'pass@1')" "$(error before)" \
  "$(number after 'pass@1')" "$(error after)"
LC_ALL=C printf '   %-34s %8.3f            %8.3f\n' "looks a trajectory" "$(number before valid_calls_per_trajectory)" \
  "$(number after valid_calls_per_trajectory)"
printf '   Three trajectories with their boxes: %s · curve: %s\n' "$out/looks.html" "$out/model/curve.svg"
printf '   Everything took %d s.\n' "$(($(date +%s) - started))"
