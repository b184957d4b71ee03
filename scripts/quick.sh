#!/usr/bin/env bash
# Runs the unit tests of the packages that differ from a branch (main unless named) or are not
# committed yet, and with -short those of the packages that import them. Left out are the
# end-to-end tests, the browser, the benchmarks and the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."

base=HEAD
for branch in "${1:-main}" "origin/${1:-main}"; do
	if base=$(git merge-base HEAD "$branch" 2>/dev/null); then break; fi
	base=HEAD
done
processes=$(($(getconf _NPROCESSORS_ONLN) + 1))

# A line for each package: its path, its directory, and all that it and its tests import.
packages=$(go list -f '{{.ImportPath}} {{.Dir}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
	grep -vE '^[^ ]*/internal/test/(e2e|browsertest|modeltest) ')

# The package of a file is the nearest one above it: scripts and test data lie in folders.
changed=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } |
	awk -v root="$PWD/" '
		NR == FNR { path[$2] = $1; next }
		{
			dir = root $0
			while (sub("/[^/]*$", "", dir) && length(dir) > length(root))
				if (dir in path) { print path[dir]; break }
		}' <(printf '%s\n' "$packages") - | sort -u)
if [ -z "$changed" ]; then
	echo "no package differs from ${1:-main}"
	exit 0
fi
importers=$(awk '
	NR == FNR { changed[$1]; next }
	!($1 in changed) { for (i = 3; i <= NF; i++) if ($i in changed) { print $1; next } }' \
	<(printf '%s\n' "$changed") <(printf '%s\n' "$packages"))

# shellcheck disable=SC2086 # one argument a package
go test -count=1 -p "$processes" -timeout 5m $changed
# shellcheck disable=SC2086
[ -z "$importers" ] || go test -short -vet=off -count=1 -p "$processes" -timeout 5m $importers
