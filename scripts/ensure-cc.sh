#!/usr/bin/env bash
# Makes sure that a C compiler is there: go test -race links with it.
set -euo pipefail

cc=$(go env CC)
cc=${cc%% *}
if command -v "$cc" >/dev/null; then
	exit 0
fi
# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
install_packages "a C compiler ($cc)" "gcc libc6-dev" "gcc glibc-devel" "gcc musl-dev" "gcc"
if ! command -v "$cc" >/dev/null; then
	echo "a C compiler was installed, but $cc, which go env CC names, is not in PATH" >&2
	exit 1
fi
