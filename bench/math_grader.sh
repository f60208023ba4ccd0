#!/bin/sh
# Times the math grader and Math-Verify 0.9 on the same rows in one session, one core
# each, reading and writing rows included:
#
#   bench/math_grader.sh DATA PYTHON
#
# DATA has gsm8k_test.jsonl and math500.jsonl; PYTHON has math-verify==0.9.0. The
# second line of a kind is the command agentcli score, start of the program included.
# Last come the slowest of the hostile inputs of rewards/mathgrade/bound_test.go.
set -eu
data=$1 python=$2
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CGO_ENABLED=0
go build -o "$dir/agentcli" ./cmd/agentcli
go build -o "$dir/speed" ./scripts/mathverify/speed
"$python" scripts/mathverify/rows.py "$data" > "$dir/rows.jsonl"
for kind in gsm8k math r1; do
	"$python" scripts/mathverify/bench.py "$dir/rows.jsonl" $kind
	"$dir/speed" "$dir/rows.jsonl" $kind
	grep "\"kind\": \"$kind\"" "$dir/rows.jsonl" > "$dir/kind.jsonl"
	for _ in 1 2 3 4 5 6 7 8 9 10; do cat "$dir/kind.jsonl"; done > "$dir/ten.jsonl"
	n=$(wc -l < "$dir/ten.jsonl")
	start=$(date +%s%N)
	GOMAXPROCS=1 "$dir/agentcli" score "$dir/ten.jsonl" --reward math > "$dir/out.jsonl" 2> "$dir/err"
	echo "$kind agentcli score $(( ($(date +%s%N) - start) / n / 1000 )) us/row"
done
go test ./rewards/mathgrade -run '^$' -bench Hostile -benchtime 5x |
	awk '/^Bench/ {for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
		printf "%.1f ms of processor, %.1f ms, %.1f MB %s\n", v["cpu-ms/op"], v["ns/op"] / 1e6, v["B/op"] / 1e6, $1}' | sort -rn | head -5
