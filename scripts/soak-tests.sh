#!/usr/bin/env bash
# Prints a pattern for go test -run: the tests of packages under the build tag soak.
set -euo pipefail
for dir in "$@"; do
	grep -l '^//go:build soak' "$dir"/*_test.go || true
done | xargs -r sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/^\1$/p' | paste -sd '|'
