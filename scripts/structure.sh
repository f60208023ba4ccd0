#!/usr/bin/env bash
# Print how the repository is built, and how long the program takes to start:
# scripts/structure.sh [FOLDER]. scripts/structure/structure_test.go has the limits.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./scripts/structure "${1:-.}"
if [ -x bin/agentcli ]; then
  python3 - <<'PY'
import os, resource, statistics, subprocess, time
times = []
for _ in range(9):
    start = time.perf_counter()
    subprocess.run(["bin/agentcli", "--version"], stdout=subprocess.DEVNULL, check=True)
    times.append(1000 * (time.perf_counter() - start))
memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
print(f"agentcli --version: {statistics.median(times):.0f} ms, {memory:.0f} MB (the median of 9; the most memory)")
PY
fi
