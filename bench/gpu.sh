#!/usr/bin/env bash
# Is the local policy right and fast on a GPU? For a machine with a GPU, Python, torch 2.11
# and transformers, but neither Go nor a network.
#
#   bench/gpu.sh pack FOLDER      here: programs, tests and data, at most 64 MB
#   FOLDER/gpu.sh PART…           there: the parts in the order below, or `all`
#
#   doctor       what is found
#   kernels      our kernels beside the CPU's, and under compute-sanitizer where it is there
#   policy       the policy's tests on the device: log-probs, gradients and greedy tokens of
#                transformers for every architecture, adapters, saving, out of memory
#   trainer      the trainer's tests on the device: golden steps of every algorithm
#   architectures  a random model of each family beside transformers on the same device: as
#                opened, converted, and after a step of training
#   logprobs     our float32 log-probs and transformers' on the same device
#   deterministic  two training runs with --deterministic: the same bytes
#   memory       more replies than the cache of keys and values has room for, then training
#                on them with the tokens that memory allows
#   figures      decoding, prefill, training, opening, exchange, beside transformers, for
#                the shapes in SHAPES, with the device's copy and matrix speed
#   opening      a model of bfloat16, and the same in Q8_0 and Q4_K: beside reading the file
#   lastword     a policy learns (with MODEL=FILE, the small model that make setup fetches; as
#                it is larger than a pack, it travels by itself)
#   table        what was measured, beside the device's limits
#
# DEVICE=cuda (default), cpu or testdevice (make test's device that is not there).
# SHAPES="0.5b 1.5b 4b"; on another device than cuda it is "tiny". OUT is where results go as
# they come (default: results, beside the script). A part ends after PART_SECONDS (540). Tests run
# in JOBS processes (half the processors).
set -euo pipefail

if [ "${1:-}" = pack ]; then
  root=$(cd "$(dirname "$0")/.." && pwd)
  to=${2:?bench/gpu.sh pack FOLDER}
  mkdir -p "$to"
  cd "$root"
  echo "building into $to" >&2
  go build -tags libtorch -ldflags '-s -w' -o "$to/agentcli" ./cmd/agentcli
  for p in internal/torch policy trainer; do
    mkdir -p "$to/$p"
    go test -tags libtorch -c -ldflags '-s -w' -o "$to/$p/test" "./$p"
    cp -r "$p/testdata" "$to/$p/"
  done
  mkdir -p "$to/trainer/rows"
  cp -r trainer/rows/testdata "$to/trainer/rows/"
  for f in $(git ls-files "trainer/*.go" | grep -v _test); do # a test reads the code
    mkdir -p "$to/$(dirname "$f")"
    cp "$f" "$to/$f"
  done
  mkdir -p "$to/scripts/golden"
  cp scripts/golden/families_saved.py "$to/scripts/golden/"
  cp bench/gpu.sh bench/gpu_peers.py "$to/"
  gzip -9 -f "$to/agentcli" "$to"/{internal/torch,policy,trainer}/test
  size=$(du -sm "$to" | cut -f1)
  echo "$to: $size MB" >&2
  [ "$size" -le 64 ] || { echo "more than 64 MB" >&2; exit 1; }
  exit
fi

[ $# -gt 0 ] || { sed -n '2,/^set/{/^#/p}' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
export DEVICE=${DEVICE:-cuda}
out=${OUT:-$here/results}
limit=${PART_SECONDS:-540}
python=${PYTHON:-python3}
mkdir -p "$out"
cd "$here"
for f in agentcli internal/torch/test policy/test trainer/test; do
  [ ! -f "$f.gz" ] || { gunzip -f "$f.gz"; chmod +x "$f"; }
done
torch=$("$python" -c 'import torch, os; print(os.path.dirname(torch.__file__))')
export LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" AGENTCLI_TORCH=$torch
case $DEVICE in
cuda) export AGENTCLI_TEST_DEVICE=cuda; shapes=${SHAPES:-0.5b 1.5b 4b} batches=1,32,128,256 length=1024 peer=cuda cache=0.999 ;;
cpu) export AGENTCLI_TEST_KERNELS=none; shapes=${SHAPES:-tiny} batches=1,4 length=64 peer=cpu cache=1MiB ;;
testdevice) export AGENTCLI_TEST_DEVICE=testdevice; shapes=${SHAPES:-tiny} batches=1,4 length=64 peer=cpu cache=1MiB ;;
*) echo "DEVICE=$DEVICE: want cuda, cpu or testdevice" >&2; exit 2 ;;
esac
# What the command is told: it does not know the tests' device.
device=$([ "$DEVICE" = cuda ] && echo cuda || echo cpu)

part() { # NAME COMMAND…: bounded, its output kept, its verdict noted
  local name=$1 code=0 start=$SECONDS
  shift
  echo "== $name" >&2
  timeout --kill-after=10 "$limit" "$@" >"$out/$name.txt" 2>&1 || code=$?
  tail -n 5 "$out/$name.txt" >&2
  [ ! -f "$out/verdicts.tsv" ] || sed -i "/^$name\t/d" "$out/verdicts.tsv"
  printf '%s\t%s\t%d s\n' "$name" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((SECONDS - start)) | tee -a "$out/verdicts.tsv" >&2
}
tests() { (cd "$1" && shift && ./test -test.timeout "${limit}s" "$@"); }
sharded() { # PACKAGE: its tests in $jobs processes, which share the device
  local pids=() code=0 i
  (cd "$1" && ./test -test.list . | grep ^Test >names)
  for ((i = 0; i < jobs; i++)); do
    tests "$1" -test.short -test.v -test.run "^($(awk "NR % $jobs == $i" "$1/names" | paste -sd'|'))\$" >"$1/shard$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || code=1; done
  cat "$1"/shard*
  return $code
}
model() { # SHAPE: made once
  [ -f "models/$1/config.json" ] || "$python" gpu_peers.py make "$1" "models/$1" policy/testdata/tiny-qwen2/tokenizer.json --device "$peer"
}
kernels() {
  tests internal/torch -test.run "$ours" -test.v
  if [ "$DEVICE" = cuda ] && command -v compute-sanitizer >/dev/null; then
    # libtorch asks the driver for kinds of memory that it may not have: no errors of ours.
    (cd internal/torch && compute-sanitizer --report-api-errors no --error-exitcode 1 ./test -test.run "$ours")
  fi
}
logprobs() {
  model "$1"
  "$python" gpu_peers.py logprobs "models/$1" --device "$peer" >"$out/theirs.json"
  ./agentcli model logprobs "models/$1" --dtype float32 --device "$device" <"$out/theirs.json" >"$out/ours.json"
  "$python" - "$out" <<'P'
import json, sys
a, b = (json.load(open(f"{sys.argv[1]}/{n}.json"))["logprobs"] for n in ("theirs", "ours"))
d = [abs(x - y) for x, y in zip(a, b, strict=True)]
print(f"{len(d)} log-probs, mean difference {sum(d) / len(d):.2g}, largest {max(d):.2g}")
sys.exit(sum(d) / len(d) > 1e-4 or max(d) > 1e-3)
P
}
architectures() { DEVICE=$peer "$python" scripts/golden/families_saved.py ./agentcli families; }
tasks() { seq 1 "$1" | sed 's/.*/{"id": "t&", "question": "&?", "answer": "x"}/'; }
rollout() { # SHAPE TASKS FLAGS…
  ./agentcli rollout --model "models/$1" --device "$device" --chat-template chatml -d "$2" --reward exact --seed 1 "${@:3}"
}
deterministic() {
  model "$1"
  rm -rf det && mkdir det
  tasks 8 >det/tasks.jsonl
  rollout "$1" det/tasks.jsonl -n 2 --max-tokens 8 -o det/rows.parquet
  for i in 1 2; do
    ./agentcli train det/rows.parquet --model "models/$1" --device "$device" --algo sft --deterministic --lr 1e-3 --output "det/$i"
  done
  cmp det/1/model.safetensors det/2/model.safetensors && echo "the same bytes"
}
memory() {
  model "$1"
  rm -rf mem && mkdir mem
  tasks 64 >mem/tasks.jsonl
  rollout "$1" mem/tasks.jsonl -n 8 --parallel 512 --max-tokens 64 --kv-cache "$cache" --fail-on-error 1 -o mem/rows.parquet
  ./agentcli train mem/rows.parquet --model "models/$1" --device "$device" --algo sft --micro-tokens auto --output mem/trained
}
figures() { # SHAPE
  model "$1"
  "$python" gpu_peers.py run "models/$1" --device "$peer" --batches "$batches" --length "$length"
  (cd policy && AGENTCLI_BENCH_MODEL="$here/models/$1" AGENTCLI_BENCH_BATCHES=$batches AGENTCLI_BENCH_LENGTH=$length \
    ./test -test.run '^$' -test.bench Shape -test.benchtime 3x -test.timeout "${limit}s")
}
opening() { # SHAPE
  model "$1"
  local type file
  for type in q8_0 q4_k; do
    [ -f "models/$1.$type.gguf" ] || ./agentcli model convert --dtype $type "models/$1" "models/$1.$type.gguf"
  done
  for file in "$1" "$1.q8_0.gguf" "$1.q4_k.gguf"; do
    echo "$file"
    (cd policy && AGENTCLI_BENCH_FILE="$here/models/$file" AGENTCLI_BENCH_DTYPE=bfloat16 ./test -test.run '^$' -test.bench OpenFile -test.benchtime 3x)
  done
}
lastword() {
  [ -n "${MODEL:-}" ] || { echo "MODEL is not set: left out"; return; }
  rm -rf lastword
  ./agentcli loop --model "$MODEL" --device "$device" -d lastword --seed 1 --steps 20 --tasks 16 -n 8 --lr 2e-5 --minibatch 0 --dtype float32 \
    --eval-every 20 --eval-tasks 128 --eval-samples 1 --output lastword
  "$python" - lastword/metrics.jsonl <<'P'
import json, sys
rewards = [r["val/reward"] for r in map(json.loads, open(sys.argv[1])) if "val/reward" in r]
print(f"reward of held-out tasks: {rewards[0]:.3f} to {rewards[-1]:.3f}")
sys.exit(rewards[-1] < rewards[0] + .2)
P
}
table() {
  echo "| part | verdict | time |"; echo "|---|---|---|"
  sed 's/^/| /; s/\t/ | /g; s/$/ |/' "$out/verdicts.tsv"
  "$python" gpu_peers.py table "$out"/figures-*.txt
  [ ! -f "$out/opening.txt" ] || awk '
    BEGIN { print "\n| opening | from | s | reading the file, s | times as long |\n|---|---|---:|---:|---:|" }
    /^BenchmarkOpenFile/ { print "| " file " | " ($1 ~ /disk/ ? "disk" : "page cache") " | " $5 " | " $9 " | " $7 " |" }
    NF == 1 && $0 != "PASS" { file = $0 }' "$out/opening.txt"
}

all=(doctor kernels policy trainer logprobs architectures deterministic memory figures opening lastword table)
[ "$*" != all ] || set -- "${all[@]}"
export -f tests sharded model kernels logprobs architectures tasks rollout deterministic memory figures opening lastword
ours="TheKernel|NotFinite|Sinks|ManyBytes"
jobs=${JOBS:-$((($(nproc) + 1) / 2))}
export jobs ours here out limit python batches length peer device cache
first=${shapes%% *}
failed=0
for p in "$@"; do
  case $p in
  doctor) part doctor ./agentcli doctor || true ;;
  kernels) part kernels bash -euo pipefail -c kernels ;;
  policy | trainer) part "$p" bash -euo pipefail -c "sharded $p" ;;
  logprobs | deterministic | memory) part "$p" bash -euo pipefail -c "$p $first" ;;
  figures) for s in $shapes; do part "figures-$s" bash -euo pipefail -c "figures $s"; done ;;
  opening) part opening bash -euo pipefail -c "opening $(cut -d' ' -f2 <<<"$shapes")" ;;
  architectures | lastword) part "$p" bash -euo pipefail -c "$p" ;;
  table) table | tee "$out/table.md" ;;
  *) echo "$p is not a part: ${all[*]}" >&2; exit 2 ;;
  esac
done
! grep -q FAILED "$out/verdicts.tsv" 2>/dev/null || failed=1
exit $failed
