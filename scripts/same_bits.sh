#!/usr/bin/env bash
# Train a tiny model with each algorithm by two builds, and compare the weights:
#   scripts/same_bits.sh AGENTCLI_TORCH_BEFORE AGENTCLI_TORCH_AFTER
# A change that only moves code must print "the same" for every line. The rewards are
# hashes of the replies, so every group has spread.
set -euo pipefail
before=$(realpath "$1") after=$(realpath "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
model=$root/policy/testdata/tiny-llama
cd "$(mktemp -d)"
cat >reward.py <<'PY'
import hashlib, json, sys
for line in sys.stdin:
    q = json.loads(line)
    h = hashlib.sha256((q["task_id"] + q["response"]).encode()).digest()[0]
    print(json.dumps({"id": q["id"], "reward": h / 255}), flush=True)
PY
"$before" rollout -d lastword --shots 0 --model "$model" --limit 12 -n 4 --max-tokens 12 --reward "exec:python3 reward.py" \
  --seed 3 --ordered -o t.parquet 2>/dev/null
printf '{"prompt":"a b c","completion":"d e"}\n{"prompt":"x y","completion":"z"}\n{"prompt":"q r","completion":"t"}\n' >sft.jsonl
printf '{"prompt":"a b","completions":["c","d"],"labels":[true,false]}\n{"prompt":"e f","completions":["g","h"],"labels":[false,true]}\n' >prm.jsonl
differ=0
same() {
  local name=$1 sums=() binary
  shift
  for binary in "$before" "$after"; do
    rm -rf out
    if "$binary" train "$@" --model "$model" --threads 1 --seed 5 --lr 1e-3 --save-dtype float32 --minibatch 16 -o out >/dev/null 2>err; then
      sums+=("$(cat out/*.safetensors | sha256sum | cut -c1-16)")
    else
      sums+=("failed: $(tail -1 err)")
    fi
  done
  if [ "${sums[0]}" = "${sums[1]}" ] && [[ ${sums[0]} != failed* ]]; then
    echo "$name: the same, ${sums[0]}"
  else
    differ=1
    echo "$name: ${sums[0]} and ${sums[1]}"
  fi
}
same grpo t.parquet --epochs 2
same kl t.parquet --kl-coef .05
same kl-in-reward t.parquet --epochs 2 --kl-coef .05 --kl-in reward
for loss in gspo gmpo cispo sapo dppo reinforce; do same $loss t.parquet --loss $loss; done
for advantage in reinforce++ dr_grpo opo max_rl; do same $advantage t.parquet --advantage $advantage; done
same rloo t.parquet --preset rloo
same tis t.parquet --off-policy tis
same ppo t.parquet --algo ppo --epochs 2
same shared-critic t.parquet --algo ppo --shared-critic --epochs 2
same opd t.parquet --loss opd --teacher "$model"
same lora t.parquet --lora-rank 4
same float32 t.parquet --dtype float32
same entropy t.parquet --entropy-coef .01
same ptx t.parquet --ptx sft.jsonl --ptx-coef .1
same dpo t.parquet --algo dpo
same rm t.parquet --algo rm
same sft sft.jsonl --algo sft
same prm prm.jsonl --algo prm --prm-token ' '
exit $differ
