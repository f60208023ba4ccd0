#!/usr/bin/env bash
# make demo: evaluate, roll out, look, train, evaluate again: the main job of
# agentcli on embedded defaults (SmolLM2-135M, arithmetic with a calculator
# tool), without a network. About 4 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
A=bin/agentcli
seed=${SEED:-1}
rm -rf demo
mkdir demo
step() { printf '\n\033[1m== %s\033[0m\n   $ agentcli %s\n' "$1" "$2" >&2; }
run() { local title=$1; shift; step "$title" "$*"; "$A" "$@"; }
started=$(date +%s)

data=(--dataset arith --split test --limit 64 -n 4)
run "1/5  Before: held-out problems, 4 attempts each" eval "${data[@]}" --seed 7 --output demo/before
step "2/5  Collect: 32 problems, 8 attempts each, every sampled token with its log-prob" "rollout --seed $seed > demo/traj.parquet"
"$A" rollout --seed "$seed" > demo/traj.parquet
run "3/5  Look" inspect demo/traj.parquet
run "     One of them: what the bar marks was sampled, and is trained on" inspect demo/traj.parquet correct
run "4/5  Train: GRPO on that one file" train demo/traj.parquet --output demo/model \
  --lr 3e-5 --minibatch 64 --betas .9,.999 --drop-zero-std
run "5/5  After: the same held-out problems" eval --model demo/model "${data[@]}" --seed 7 --output demo/after

metric() { tr -d ' \n' <"demo/$1/report.json" | sed -n 's/.*"pass@1":{"value":\([0-9.e-]*\),"stderr":\([0-9.e-]*\).*/\1 \2/p'; }
rate() { tr -d ' \n' <"demo/$1/report.json" | sed -n "s/.*\"rates\":{[^}]*\"$2\":\([0-9.e-]*\)[,}].*/\1/p"; }
row() { printf '   %-34s %8s ± %-8s %8s ± %-8s\n' "$1" $2 $3; }
printf '\n\033[1m== Side by side: 64 held-out problems × 4 attempts\033[0m\n   %-34s %-19s  %s\n' "" "before" "after"
LC_ALL=C row "pass@1 (± standard error)" "$(metric before | LC_ALL=C awk '{printf "%.3f %.3f", $1, $2}')" "$(metric after | LC_ALL=C awk '{printf "%.3f %.3f", $1, $2}')"
LC_ALL=C printf '   %-34s %8.3f            %8.3f\n' "replies cut off" "$(rate before truncated)" "$(rate after truncated)"
printf '\n   Training took away sampling noise: the model could do this greedily before.\n'
printf '   Model: demo/model (opens in transformers and vLLM) · curve: demo/model/curve.svg · metrics: demo/model/metrics.jsonl\n'
printf '   Everything took %d s.\n' "$(($(date +%s) - started))"
