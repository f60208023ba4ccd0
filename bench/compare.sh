#!/usr/bin/env bash
# Our speed, transformers', llama.cpp's, vLLM's and the machine's limits, as a markdown table.
#
#   bench/compare.sh [MODEL FOLDER] > table.md
#
# LLAMA names the output folder of bench/llama_cpp.sh, VLLM that of bench/vllm.sh; without them
# their columns are empty. Runs bench/peers.py, the Go benchmarks of policy, llama.cpp's and
# bench/vllm_peer.py, one after the other; let nothing else run. PYTHON names a python with
# torch 2.11, transformers, gguf and accelerate. COUNT is the number of repeats of each (5).
# DTYPES="bfloat16 float32" and WORKS="decode prefill train" may name some of them.
# ISA=avx2 or avx512 has torch, oneDNN, MKL and our kernels use no later instructions (avx512: no
# bfloat16 products); llama.cpp and vLLM do not know it and are left out. The raw output stays
# in $OUT (a new folder under /tmp).
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/agentcli"
models="${1:-$cache/models}"
python="${PYTHON:-python3}"
count="${COUNT:-5}" dtypes="${DTYPES:-bfloat16 float32}" works="${WORKS:-decode prefill train}"
out="${OUT:-$(mktemp -d /tmp/agentcli-bench.XXXXXX)}"
mkdir -p "$out"

env_mk="$cache/torch.env.mk"
[ -f "$env_mk" ] || { echo "compare.sh: $env_mk is missing: run make setup" >&2; exit 1; }
"$python" -c 'import torch, transformers, gguf, accelerate' 2>/dev/null ||
  { echo "compare.sh: $python lacks torch, transformers, gguf or accelerate: name another with PYTHON=" >&2; exit 1; }
# The file is written for make; the shell takes the same assignments.
eval "$(sed 's/^export \([A-Z_]*\) := \(.*\)$/export \1="\2"/' "$env_mk")"

case "${ISA:-}" in
  "") ;;
  avx2) export ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 AGENTCLI_TEST_KERNELS=avx2 GODEBUG=cpu.avx512bw=off ;;
  avx512) export ONEDNN_MAX_CPU_ISA=AVX512_CORE AGENTCLI_TEST_KERNELS=avx512 ;;
  *) echo "compare.sh: ISA=$ISA: want avx2 or avx512" >&2; exit 1 ;;
esac
[ -z "${ISA:-}" ] || LLAMA='' VLLM=''

# Compile before anything is timed.
go test -tags libtorch -c -o "$out/policy.test" ./policy
echo "peers..." >&2
"$python" bench/peers.py "$models" --repeats "$count" --dtypes $dtypes --works $works ${PEERS_FLAGS:-} > "$out/peers.json"
echo "ours..." >&2
# As the program itself runs (cmd/agentcli/launch_openmp_local.go).
export GOMP_SPINCOUNT=1000
benches=$(sed 's/decode/Decode/; s/prefill/Prefill/; s/train/TrainStep/; s/ /|/g' <<<"$works")
(cd policy && "$out/policy.test" -test.run '^$' -test.bench "^Benchmark($benches)\$/^(${dtypes// /|})\$" -test.benchtime "${BENCHTIME:-2x}" -test.count "$count" -test.timeout 60m) | tee "$out/ours.txt" >&2

: >"$out/llama.txt"
if [ -n "${LLAMA:-}" ]; then
  echo "llama.cpp..." >&2
  for _ in $(seq "$count"); do # the same shapes: 7 + 64 tokens, prompts of 512 and 4,096
    for shape in "-npp 512,4096 -ntg 1 -npl 1" "-npp 7 -ntg 64 -npl 1,8,32,128"; do
      # shellcheck disable=SC2086
      "$LLAMA/build/bin/llama-batched-bench" -m "$LLAMA/bf16.gguf" -c 12288 -b 2048 -ub 512 -t "$(nproc)" -fa on $shape 2>/dev/null |
        grep '^| *[0-9]' >>"$out/llama.txt"
    done
  done
fi
: >"$out/vllm.txt"
if [ -n "${VLLM:-}" ]; then
  echo "vLLM..." >&2
  for dtype in $dtypes; do
    "$VLLM/venv/bin/python" bench/vllm_peer.py "$VLLM/model" --dtype "$dtype" --repeats "$count" | grep '^{' >>"$out/vllm.txt"
  done
fi

"$python" - "$out" <<'PY'
import collections, json, os, re, statistics, sys

out = sys.argv[1]
peer = json.load(open(f"{out}/peers.json"))
ours = collections.defaultdict(list)
for line in open(f"{out}/ours.txt"):
    m = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+\d+\s.*?([\d.]+(?:e[+-]?\d+)?) tok/s", line)
    if m:
        ours[m[1]].append(float(m[2]))
llama = collections.defaultdict(list)
for line in open(f"{out}/llama.txt"):
    f = [float(x) for x in line.split("|")[1:-1]]
    # Ours and transformers' are over the whole time of prompts and replies, so is this.
    if f[0] >= 512: llama[f"prefill length={int(f[0])}"].append(f[5])
    else: llama[f"decode batch={int(f[2])}"].append(f[2] * f[1] / f[8])
vllm = {}
for line in open(f"{out}/vllm.txt"):
    one = json.loads(line)
    for dtype in ("bfloat16", "float32"):
        for row in one.get(dtype, {}):
            vllm[dtype, row] = one["runs"][row.removeprefix("decode batch=")]

lim, par = peer["limits"], peer["parameters"]
weights = par["layers"] + par["head"]


def limit(dtype, row):
    """Tokens a second that no program can pass: the slower of reading the weights and the
    keys and values once a step and of the matrix products, at this machine's measured speeds."""
    flops = max(v for k, v in lim.items() if k.startswith(f"matmul {dtype} ")) * 1e9
    # QKᵀ and PV for one token against n/2 others on average, causal.
    attention = lambda n: 2 * 2 * par["n_layers"] * par["heads"] * par["head_dim"] * n / 2
    if row.startswith("decode"):
        batch = int(row.split("=")[1])
        kv = 2 * par["n_layers"] * par["kv_heads"] * par["head_dim"] * (7 + 64 / 2)  # of one sequence, on average
        memory = batch * lim["memory_GBps"] * 1e9 / ((weights + batch * kv) * (2 if dtype == "bfloat16" else 4))
        compute = flops / (2 * weights)
        return (memory, "memory") if memory < compute else (compute, "FLOPs")
    if row.startswith("prefill"):
        return flops / (2 * par["layers"] + attention(int(row.split("=")[1]))), "FLOPs"
    # Backward is twice the forward; the head runs on 127 of 256 positions.
    return flops / (3 * (2 * par["layers"] + attention(256) + 2 * par["head"] * 127 / 256)), "FLOPs"


def spread(runs):
    """The median, and the largest distance of a run from it in per cent."""
    m = statistics.median(runs)
    far = max(abs(x / m - 1) for x in runs)
    return f"{m:.1f} ± {100 * far:.0f} %" if len(runs) > 1 else f"{m:.1f}"


def beside(mine, theirs):
    return f"{spread(theirs)} | {statistics.median(mine) / statistics.median(theirs):.2f}" if mine and theirs else "– | –"


flags = set(open("/proc/cpuinfo").read().split())
isa = os.environ.get("ISA") or next((n for f, n in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 with bfloat16"), ("avx512f", "AVX-512"), ("avx2", "AVX2")) if f in flags), "?")
print(f"{peer['model']} on {peer['cpu']}, instructions: {isa}, {peer['threads']} threads; torch {peer['torch']}, transformers {peer['transformers']}. Tokens a second: the median, and how far a run is from it at most.")
if peer.get("quick"):
    print("\n**--quick: tiny sizes, no measurement.**")
print("\n| work | dtype | ours | transformers | ours ÷ theirs | llama.cpp | ours ÷ theirs | vLLM | ours ÷ theirs | limit | ours ÷ limit |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
names = {"decode": "Decode/{d}/", "prefill": "Prefill/{d}/", "train": "TrainStep/{d}"}
missing = []
for dtype in ("bfloat16", "float32"):
    for row in peer.get(dtype, {}):
        kind, _, size = row.partition(" ")
        key = names[kind].format(d=dtype) + size
        mine = ours.get(key)
        if not mine:
            missing.append(key)
        top, why = limit(dtype, row)
        number = int(size.partition("=")[2] or 0)
        label = {"decode": f"decode, batch {number}", "prefill": f"prefill, {number:,} tokens", "train": "forward + backward, 8 × 256"}[kind]
        theirs = peer["runs"][f"{dtype} {kind} {number}".removesuffix(" 0")]
        print(f"| {label} | {dtype} | {spread(mine) if mine else '–'} | {beside(mine, theirs)} | {beside(mine, llama.get(row) if dtype == 'bfloat16' else None)} | "
              f"{beside(mine, vllm.get((dtype, row)))} | {top:,.0f} ({why}) | {f'{100 * statistics.median(mine) / top:.0f} %' if mine else '–'} |")
print("\nThe machine: memory is read at " + f"{lim['memory_GBps']:.1f} GB/s; " + "; ".join(f"{k.removesuffix('_GFLOPs')} {v:.0f} GFLOP/s" for k, v in lim.items() if k.startswith("matmul")) + ".")
print(f"Limits: decode, weights ({weights / 1e6:.1f} M) and keys and values read once a step ÷ memory speed, or 2 FLOPs a weight and token ÷ the best matrix speed; prefill and training, FLOPs ÷ the best matrix speed.")
if missing:
    sys.exit("compare.sh: no benchmark result for " + ", ".join(missing))
PY
echo "raw output: $out" >&2
