#!/usr/bin/env bash
# Looks for known vulnerabilities in what the program calls. It needs the database
# at GOVULNDB (default: https://vuln.go.dev): where that cannot be reached nothing
# is checked, and it says so. VULNCHECK=must makes that a failure, for CI.
set -euo pipefail
cd "$(dirname "$0")/.."
code=0
out=$(go tool -modfile=tools.mod govulncheck -C . ./... 2>&1) || code=$?
if [ $code = 0 ]; then
	echo "govulncheck: no known vulnerability in what is called"
	exit 0
fi
if [ $code = 3 ]; then # found some
	printf '%s\n' "$out" >&2
	exit 1
fi
if grep -qE 'vuln.*(dial|lookup|connect|timeout|deadline|certificate|proxy|40[0-9]|50[0-9]|no such host)|(dial|lookup|Get ").*' <<<"$out"; then
	echo "govulncheck: SKIPPED, the database of vulnerabilities cannot be reached: $(tail -1 <<<"$out")" >&2
	[ "${VULNCHECK:-}" != must ]
	exit
fi
printf '%s\n' "$out" >&2
exit 1
