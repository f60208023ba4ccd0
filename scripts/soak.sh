#!/usr/bin/env bash
# Play `rollout` for some hours under faults, restarts and kills, and print how memory,
# file descriptors, goroutines, processes and files grew: scripts/soak.sh HOURS [DIR].
# It needs the Python environment of `make setup-test` for the MCP servers.
set -euo pipefail
cd "$(dirname "$0")/.."
hours=${1:?usage: scripts/soak.sh HOURS [DIR]}
out=${2:-$(mktemp -d)/soak}
python=${AGENTCLI_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/agentcli/python/bin/python}
make --no-print-directory build-lite >&2
exec go run ./bench/soak -agentcli bin/agentcli-lite -python "$python" -hours "$hours" -out "$out"
