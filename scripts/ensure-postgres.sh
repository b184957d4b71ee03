#!/usr/bin/env bash
# Makes sure that PostgreSQL and its driver for Python are there: a test runs the loops of docs/outbox.md with them and
# starts a server of its own. A service that the package manager may start is not used.
set -euo pipefail

# shellcheck source=scripts/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

have_server() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
# The system's package of the driver is for the system's interpreter, which may not be the first in PATH.
have_driver() { python3 -c 'import psycopg' 2>/dev/null || /usr/bin/python3 -c 'import psycopg' 2>/dev/null; }

have_server || install_packages PostgreSQL postgresql 'postgresql-server postgresql' postgresql postgresql@17
if ! have_server; then
	echo "PostgreSQL was installed but initdb is not in PATH: add its directory to PATH" >&2
	exit 1
fi
if ! have_driver && command -v brew >/dev/null; then
	python3 -m pip install 'psycopg[binary]' # Homebrew has no package of it
fi
have_driver || install_packages psycopg python3-psycopg python3-psycopg3 py3-psycopg ''
