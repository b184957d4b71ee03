#!/usr/bin/env bash
# Makes sure that Python and Node.js are there: tests run the clients of sdk/ with them, and install packages
# with npm.
set -euo pipefail

# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
command -v python3 >/dev/null || install_packages Python python3 python3 python3 python3
command -v node >/dev/null || install_packages Node.js nodejs nodejs nodejs node
command -v npm >/dev/null || install_packages npm npm nodejs-npm npm node
