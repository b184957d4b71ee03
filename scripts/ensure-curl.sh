#!/usr/bin/env bash
# Makes sure that curl is there: a test runs the commands of README and quickstart.
set -euo pipefail

if command -v curl >/dev/null; then
	exit 0
fi
# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
install_packages curl curl curl curl curl
