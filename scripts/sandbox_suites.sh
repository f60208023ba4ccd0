#!/usr/bin/env bash
# Runs the test suites of packages inside the sandbox of the python tool and
# outside of it, and shows which tests end otherwise: how the list of allowed
# system calls was found, and how a new one is judged.
#
#     AGENTCLI_PYTHON=VENV/bin/python scripts/sandbox_suites.sh 'numpy.linalg numpy.lib' 'sympy.core'
#
# The interpreter has pytest and the packages. Each argument is one run.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${AGENTCLI_PYTHON:?names a Python with pytest and the packages}"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
CGO_ENABLED=0 go test -c -o "$out/sandbox.test" ./sandbox
failed() { grep -oE '(FAILED|ERROR) [^ ]+' "$1" | sed -E 's/ (tests\/)?/ /' | sort -u || true; }
status=0
for suite in "$@"; do
	(cd "$out" && AGENTCLI_SANDBOX_SUITES="--pyargs $suite" ./sandbox.test -test.run '^TestSuites$' -test.v -test.timeout 55m) >"$out/inside" 2>&1 || true
	# shellcheck disable=SC2086 # several words
	(mkdir -p "$out/w" && cd "$out/w" && HOME=$out/w MPLBACKEND=Agg OMP_NUM_THREADS=1 "$AGENTCLI_PYTHON" -m pytest -q -p no:cacheprovider -rfE --tb=line --pyargs $suite) >"$out/outside" 2>&1 || true
	echo "== $suite"
	for where in inside outside; do
		echo "$where: $(grep -E '[0-9]+ (passed|failed)' "$out/$where" | tail -1 | xargs)"
		failed "$out/$where" >"$out/$where.failed"
	done
	diff "$out/outside.failed" "$out/inside.failed" || status=1
done
exit $status
