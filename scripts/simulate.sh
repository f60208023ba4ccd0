#!/usr/bin/env bash
# Play many seeds of internal/simulation: `scripts/simulate.sh [SEEDS [FROM]]`,
# 100,000 from 0 on unless told otherwise. On two cores 100,000 take about half an
# hour. A seed that fails is printed with the command that plays it again.
set -euo pipefail
cd "$(dirname "$0")/.."
AGENTCLI_SEEDS=${1:-100000} AGENTCLI_SEED_FROM=${2:-0} CGO_ENABLED=0 go test ./internal/simulation -count=1 -timeout 12h -v
