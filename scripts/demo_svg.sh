#!/usr/bin/env bash
# Makes docs/demo.svg: what a terminal shows of one run of README's first example
# (lastword: evaluate, roll out, look, train, evaluate again), without progress and
# notices. About two minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
A=$PWD/bin/agentcli
out=$PWD/docs/demo.svg
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$PWD
cd "$dir"
say() { printf '$ agentcli %s\n' "$1"; }
plain() { grep -vE 'no model is named|^agentcli: [0-9]+ of |^ +run: '; }
held=(-d lastword --split test --limit 64 -n 4 --seed 7)
{
  say "eval ${held[*]} --output before"
  "$A" eval "${held[@]}" --output before 2>/dev/null
  echo
  say "rollout -d lastword --limit 128 > traj.parquet"
  "$A" rollout -d lastword --limit 128 2>&1 >traj.parquet | grep 'trajectories in'
  echo
  say "inspect traj.parquet"
  "$A" inspect traj.parquet | plain
  echo
  train=(--lr 3e-5 --minibatch 128 --betas .9,.999 --drop-zero-std)
  say "train traj.parquet ${train[*]} -o better"
  "$A" train traj.parquet "${train[@]}" -o better 2>&1 | plain
  echo
  say "eval --model better ${held[*]} --output after"
  "$A" eval --model better "${held[@]}" --output after 2>/dev/null
} | sed "s|$HOME|~|g; s|$dir/||g" | sed -E $'s/^  pass@1 .*/\033[32m&\033[0m/; s/^agentcli: step .*/\033[36m&\033[0m/' | tee /dev/stderr | python3 "$root/scripts/term2svg.py" "agentcli: lastword before and after training on one file" >"$out"
