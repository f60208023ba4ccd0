#!/usr/bin/env bash
# What one file teaches, over seeds: for each dataset and seed, roll out, train,
# evaluate on held-out problems; prints the table of docs/learning.md. The
# untrained model is evaluated once a dataset.
#
#   bench/seeds.sh OUTPUT-FOLDER [SEED...]        (default: 1 2 3; DATASETS="arith lastword")
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- 1 2 3
root=$(cd "$(dirname "$0")/.." && pwd)
A=$root/bin/agentcli
mkdir -p "$out"
pass1() { tr -d ' \n' <"$1/report.json" | sed -n 's/.*"pass@1":{"value":\([0-9.e-]*\),"stderr":\([0-9.e-]*\).*/\1 \2/p' | LC_ALL=C awk '{printf "%.3f ± %.3f", $1, $2}'; }
for data in ${DATASETS:-arith lastword}; do
  case $data in
    arith) held=(--limit 64 -n 4) roll=(--limit 32 -n 8) opt=(--minibatch 64) ;;
    *) held=(--limit 256 -n 2) roll=(--limit 128 -n 8) opt=(--minibatch 128) ;;
  esac
  [ -f "$out/$data-before/report.json" ] || "$A" eval -d "$data" --split test "${held[@]}" --seed 7 --output "$out/$data-before" >/dev/null
  for seed in "$@"; do
    r="$out/$data-$seed"
    t0=$(date +%s)
    "$A" rollout -d "$data" "${roll[@]}" --seed "$seed" -o "$r.parquet"
    t1=$(date +%s)
    "$A" train "$r.parquet" --output "$r-model" --lr 3e-5 --betas .9,.999 --drop-zero-std --seed "$seed" "${opt[@]}" >/dev/null
    t2=$(date +%s)
    "$A" eval -d "$data" --model "$r-model" --split test "${held[@]}" --seed 7 --output "$r-after" >/dev/null
    printf '| %s | %s | %s | %s | %d s | %d s |\n' "$data" "$seed" "$(pass1 "$out/$data-before")" "$(pass1 "$r-after")" $((t1 - t0)) $((t2 - t1))
  done
done
