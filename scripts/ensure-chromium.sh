#!/usr/bin/env bash
# Makes sure that a Chromium is there; the tests of the dashboard start their own.
set -euo pipefail

have_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || command -v headless-shell >/dev/null; }

if have_browser; then
	exit 0
fi
# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
install_packages Chromium chromium chromium chromium chromium
if ! have_browser; then
	echo "Chromium was installed but is not in PATH: add its directory to PATH" >&2
	exit 1
fi
