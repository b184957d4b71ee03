#!/usr/bin/env bash
# Makes sure that a redis-server is there; tests start their own on free ports.
# A service that the package manager may start on port 6379 is not used.
set -euo pipefail

have_server() { command -v redis-server >/dev/null || command -v valkey-server >/dev/null; }

if have_server; then
	exit 0
fi
# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
install_packages redis-server redis-server redis redis redis
if ! have_server; then
	echo "redis-server was installed but is not in PATH: add its directory to PATH" >&2
	exit 1
fi
