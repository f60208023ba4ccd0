#!/usr/bin/env bash
# What supervised training makes of one file of rollouts, over seeds: roll out,
# keep the best right attempt of each group and train --algo sft on it, and
# train --algo dpo on the best against the worst; evaluate on held-out problems.
# Prints the table of docs/learning.md.
#
#   bench/given.sh OUTPUT-FOLDER [SEED...]        (default: 1 2 3; DATASETS="arith lastword")
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- 1 2 3
root=$(cd "$(dirname "$0")/.." && pwd)
A="${RUN:-} $root/bin/agentcli"
mkdir -p "$out"
pass1() { tr -d ' \n' <"$1/report.json" | sed -n 's/.*"pass@1":{"value":\([0-9.e-]*\),"stderr":\([0-9.e-]*\).*/\1 \2/p' | LC_ALL=C awk '{printf "%.3f ± %.3f", $1, $2}'; }
for data in ${DATASETS:-arith lastword}; do
  case $data in
    arith) held=(--limit 64 -n 4) roll=(--limit 32 -n 8) ;;
    *) held=(--limit 256 -n 2) roll=(--limit 128 -n 8) ;;
  esac
  [ -f "$out/$data-before/report.json" ] || $A eval -d "$data" --split test "${held[@]}" --seed 7 --output "$out/$data-before" >/dev/null
  for seed in "$@"; do
    r="$out/$data-$seed"
    $A rollout -d "$data" "${roll[@]}" --seed "$seed" -o "$r.parquet"
    $A filter "$r.parquet" --best-of --min-reward 1 -o "$r-best.parquet"
    t0=$(date +%s)
    $A train "$r-best.parquet" --algo sft --output "$r-sft" --lr 3e-5 --betas .9,.999 --minibatch 16 --seed "$seed" >/dev/null
    t1=$(date +%s)
    $A train "$r.parquet" --algo dpo --output "$r-dpo" --lr 1e-5 --betas .9,.999 --minibatch 16 --seed "$seed" >/dev/null
    t2=$(date +%s)
    for how in sft dpo; do
      $A eval -d "$data" --model "$r-$how" --split test "${held[@]}" --seed 7 --output "$r-$how-after" >/dev/null
    done
    printf '| %s | %s | %s | %s | %s | %d s | %d s |\n' "$data" "$seed" "$(pass1 "$out/$data-before")" "$(pass1 "$r-sft-after")" "$(pass1 "$r-dpo-after")" $((t1 - t0)) $((t2 - t1))
  done
done
