#!/usr/bin/env bash
# Counts the repository: lines of the product (Go and Lua without tests, generated code and internal/test/testkit), lines of
# tests, words of Markdown. With -v also the product's lines of each package. bench is not counted.
set -euo pipefail
cd "$(dirname "$0")/.."

files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done; }

{
	files '*.go' '*.lua' | xargs -0 grep -l '^// Code generated' | sed 's/^/generated /' || true
	files '*.go' '*.lua' | xargs -0 wc -l | sed 's/^/lines /'
	files '*.md' | xargs -0 wc -w | sed 's/^/words /'
} | awk -v each="${1:-}" '
	$1 == "generated" { generated[$2]; next }
	$3 == "total" || $3 in generated { next } # wc prints totals
	$1 == "words" { words += $2; next }
	$3 ~ /^bench\// { next }
	$3 ~ /_test\.go$/ { tests += $2; next }
	$3 ~ /^internal\/test\/testkit\// { testkit += $2; next }
	{
		product += $2
		n = split($3, p, "/")
		of[$3 ~ /^publisher\/httpdest\// ? "publisher/httpdest" : p[1] != "internal" ? p[1] : n > 3 ? p[1] "/" p[2] "/" p[3] : p[1] "/" p[2]] += $2
	}
	END {
		if (each == "-v") for (pkg in of) printf "%7d %s\n", of[pkg], pkg | "sort -k2"
		close("sort -k2")
		printf "product %d lines, tests %d lines (besides internal/test/testkit: %d), Markdown %d words\n", product, tests, testkit, words
	}'
