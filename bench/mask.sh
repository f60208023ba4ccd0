#!/usr/bin/env bash
# PPO with and without the mask of observations, on a task with long ones: arith
# with a calculator that talks (bench/wordy_calculator.py). A cold start by SFT on
# the correct ones of a first rollout, then for each seed one rollout, from which
# PPO trains twice. Prints a table.
#
#   bench/mask.sh OUTPUT-FOLDER [SEED...]        (default: 1 2 3)
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- 1 2 3
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
mkdir -p "$out"
task=(-d arith --tools none --tool "exec:python3 $root/bench/wordy_calculator.py")
opt=(--lr 3e-5 --betas .9,.999)
pass1() { tr -d ' \n' <"$1/report.json" | sed -n 's/.*"pass@1":{"value":\([0-9.e-]*\),"stderr":\([0-9.e-]*\).*/\1 \2/p' | LC_ALL=C awk '{printf "%.3f ± %.3f", $1, $2}'; }
measure() { [ -f "$2/report.json" ] || "$A" eval "${task[@]}" --model "$1" --split test --limit 64 -n 2 --seed 7 --output "$2" >/dev/null; }
if [ ! -f "$out/start/model.safetensors" ]; then
  "$A" rollout "${task[@]}" --limit 64 -n 8 --seed 100 -o "$out/first.parquet"
  "$A" filter "$out/first.parquet" --best-of --min-reward 1 -o "$out/best.parquet"
  "$A" train "$out/best.parquet" --algo sft --minibatch 16 "${opt[@]}" --output "$out/start" >/dev/null
fi
measure "$out/start" "$out/start-eval"
for seed in "$@"; do
  r="$out/$seed"
  [ -f "$r.parquet" ] || "$A" rollout "${task[@]}" --model "$out/start" --limit 32 -n 8 --seed "$seed" -o "$r.parquet"
  for scale in default all; do
    m="$r-$scale"
    [ -f "$m-eval/report.json" ] && continue
    rm -rf "$m"
    "$A" train "$r.parquet" --algo ppo --shared-critic --loss-scale "$scale" --minibatch 64 "${opt[@]}" --seed "$seed" --output "$m" >/dev/null
    measure "$m" "$m-eval"
    rm -f "$m"/*.safetensors
    printf '| %s | %s | %s | %s |\n' "$seed" "$scale" "$(pass1 "$out/start-eval")" "$(pass1 "$m-eval")" | tee -a "$out/table.md"
  done
done
