#!/usr/bin/env bash
# Writes scripts/requirements.txt, every package that requirements.in needs with
# its version and hashes, for Python 3.11 and later. Needs uv.
set -euo pipefail
cd "$(dirname "$0")"
{
	echo "# Written by scripts/lock.sh from requirements.in: do not edit."
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements.in
} >requirements.txt.new
mv requirements.txt.new requirements.txt
