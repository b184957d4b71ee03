#!/usr/bin/env bash
# Looks for known vulnerabilities in what the code calls, with govulncheck. Findings are an
# error. It needs the Go module proxy and vuln.go.dev: where these cannot be reached it warns
# and succeeds. GOVULNCHECK may name another command.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

VERSION=v1.9.0
read -ra check <<<"${GOVULNCHECK:-go run golang.org/x/vuln/cmd/govulncheck@$VERSION}"

out=$("${check[@]}" ./... 2>&1)
status=$?
printf '%s\n' "$out"
# go run says "exit status 3" and ends with 1 itself.
if [ "$status" -eq 3 ] || grep -qx 'exit status 3' <<<"$out"; then
	echo "vulnerabilities were found: update the modules named above" >&2
	exit 1
fi
if [ "$status" -ne 0 ]; then
	echo "${GITHUB_ACTIONS:+::warning::}govulncheck did not run to its end: nothing is known of vulnerabilities" >&2
fi
exit 0
