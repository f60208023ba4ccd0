#!/usr/bin/env bash
# Decoding and prompts beside llama.cpp, on the same files of SmolLM2, in turn.
#
#   bench/llama_cpp.sh OUTPUT-FOLDER
#
# llama.cpp is the one in the source package of llama-cpp-python on PyPI, checked by
# SHA-256 and compiled for this machine in OUTPUT-FOLDER (minutes; cmake and ninja are
# needed). Its batched-bench draws no tokens, ours does. COUNT (5) is how often each is
# run; let nothing else run. The raw output stays in OUTPUT-FOLDER.
set -euo pipefail
out=$(realpath -m "$1") root=$(cd "$(dirname "$0")/.." && pwd) count=${COUNT:-5}
A=${AGENTCLI:-$root/bin/agentcli} threads=${THREADS:-$(nproc)} cache="${XDG_CACHE_HOME:-$HOME/.cache}/agentcli"
version=0.3.36 sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
mkdir -p "$out"
cd "$out"
if [ ! -x build/bin/llama-batched-bench ]; then
  [ -f llama_cpp_python-$version.tar.gz ] || "${PYTHON:-python3}" -m pip download -q --no-deps --no-binary :all: -d . llama-cpp-python==$version
  echo "$sum  llama_cpp_python-$version.tar.gz" | sha256sum -c --quiet
  tar xzf llama_cpp_python-$version.tar.gz
  cmake -S llama_cpp_python-$version/vendor/llama.cpp -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >cmake.log
  ninja -C build llama-batched-bench llama-quantize >ninja.log
fi
eval "$(sed 's/^export \([A-Z_]*\) := \(.*\)$/export \1="\2"/' "$cache/torch.env.mk")"
(cd "$root" && go test -tags libtorch -c -o "$out/policy.test" ./policy)
gguf=$(ls "$cache"/models/*.gguf | head -1)
for type in bf16 q8_0; do
  [ -f $type.gguf ] || "$A" model convert --dtype $type "$gguf" $type.gguf >/dev/null
done
ln -sf "$gguf" q4_1.gguf
export GOMP_SPINCOUNT=1000
for i in $(seq "$count"); do
  for type in bf16 q8_0 q4_1; do
    # PP of 1 × 512 and TG of 1, 8 and 32 × 64 tokens behind 6.
    for shape in "-npp 512 -ntg 1 -npl 1" "-npp 6 -ntg 64 -npl 1,8,32"; do
      # shellcheck disable=SC2086
      build/bin/llama-batched-bench -m $type.gguf -c 4096 -b 2048 -ub 512 -t "$threads" -fa on $shape 2>/dev/null |
        sed -n "s/^| *[0-9]/$i $type &/p" >>theirs.txt
    done
    (cd "$root/policy" && AGENTCLI_BENCH_FILE=$out/$type.gguf AGENTCLI_BENCH_STORED=$([ $type = bf16 ] || echo 1) \
      "$out/policy.test" -test.run '^$' -test.bench 'File$' -test.benchtime 3x) | sed -n "s/^BenchmarkFile/$i $type &/p" >>ours.txt
    echo "$i $type" >&2
  done
done
"${PYTHON:-python3}" - <<'PY'
import collections, re, statistics
theirs, ours = collections.defaultdict(list), collections.defaultdict(list)
for line in open("theirs.txt"):
    head, *f = line.split("|")
    f = [float(x) for x in f[:-1]]
    kind = head.split()[1]
    if f[0] == 512: theirs[kind, "prefill"].append(f[5])
    else: theirs[kind, f"batch={int(f[2])}"].append(f[7])
for line in open("ours.txt"):
    m = re.match(r"\d+ (\S+) BenchmarkFile/(\S+?)(?:-\d+)?\s.*?([\d.]+) tok/s", line)
    if m: ours[m[1], m[2]].append(float(m[3]))
print("| file | work | ours | llama.cpp | ratio, median of pairs |\n|---|---|---:|---:|---:|")
for kind in ("bf16", "q8_0", "q4_1"):
    for work in ("batch=1", "batch=8", "batch=32", "prefill"):
        a, b = ours[kind, work], theirs[kind, work]
        r = sorted(x / y for x, y in zip(a, b))
        print(f"| {kind} | {work} | {statistics.median(a):.0f} | {statistics.median(b):.0f} | {statistics.median(r):.2f} ({r[0]:.2f}–{r[-1]:.2f}) |")
PY
