#!/usr/bin/env bash
# Validates the container image's recipe, compose.yaml, Prometheus's configuration and the
# systemd units. scripts/validate.sh runs it; by itself it wants docker compose and promtool
# in PATH, or their paths in COMPOSE and PROMTOOL. Where hadolint is there, it is asked too;
# the units are checked where systemd-analyze is. With the argument plain it checks what needs
# neither, with tools the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

ok() { printf 'ok    %s\n' "$*"; }
fail() {
	printf 'FAIL  %s\n' "$1"
	shift
	[ $# -eq 0 ] || printf '      %s\n' "$@"
	failures=$((failures + 1))
}
# quiet NAME COMMAND…: the command must succeed and say nothing: warnings are findings.
quiet() {
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1 && [ ! -s "$work/out" ]; then ok "$name"; else fail "$name" "$(cat "$work/out")"; fi
}
# seconds TEXT: 1m30s, 45s, 1min or 45 in seconds.
seconds() {
	awk -v t="$1" 'BEGIN {
		gsub(/min/, "m", t)
		if (match(t, /[0-9]+m/)) { s += 60 * substr(t, RSTART, RLENGTH - 1) }
		if (match(t, /[0-9]+s$/) || match(t, /^[0-9]+$/)) { s += substr(t, RSTART) + 0 }
		print s + 0
	}'
}
# above NAME LONGER SHORTER
above() {
	if [ "$(seconds "$2")" -gt "$(seconds "$3")" ]; then ok "$1: $2 > $3"; else fail "$1: $2 is not above $3"; fi
}

plain() {
	# ---- Dockerfile ----
	dockerfile=deploy/Dockerfile
	if command -v hadolint >/dev/null; then
		quiet "hadolint" hadolint "$dockerfile"
	fi
	says() { # NAME PATTERN
		if grep -Eq -- "$2" "$dockerfile"; then ok "Dockerfile: $1"; else fail "Dockerfile: $1"; fi
	}
	says "numeric user, as runAsNonRoot wants it" '^USER 65532:65532$'
	says "health check by the binary, without a shell" '^HEALTHCHECK .*CMD \["/tidegate", "health"\]$'
	says "entry point without a shell" '^ENTRYPOINT \["/tidegate"\]$'
	says "static binary" 'CGO_ENABLED=0'
	says "version and commit are stamped" 'main\.version=\$\{VERSION\} -X main\.commit=\$\{COMMIT\}'
	if grep -nE '^ADD |:latest' "$dockerfile" >"$work/out"; then
		fail "Dockerfile: no ADD, no :latest" "$(cat "$work/out")"
	else
		ok "Dockerfile: no ADD, no :latest"
	fi
	# What is compiled in must not be kept out of the context.
	# shellcheck disable=SC2016 # a template of go list
	if go list -f '{{$d := .Dir}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' ./... |
		grep -E '\.(md|pem|key|out|test|prof)$|_test\.go$|/(docs|deploy|scripts)/' >"$work/out"; then
		fail "embedded files that .dockerignore leaves out" "$(cat "$work/out")"
	else
		ok ".dockerignore leaves no embedded file out"
	fi

	# ---- settings ----
	CGO_ENABLED=0 go build -buildvcs=false -o "$work/tidegate" ./cmd/tidegate
	# settings FILE [NAME=value…]: the binary takes them.
	settings() {
		local file=$1 lines=()
		shift
		mapfile -t lines < <(grep -E '^[A-Z]' "$file")
		if env -i "${lines[@]}" "$@" "$work/tidegate" config check >"$work/out" 2>&1; then
			ok "config check: $file"
		else
			fail "config check: $file" "$(cat "$work/out")"
		fi
	}
	settings deploy/demo/worker.env DESTINATION_0_AUTH_TOKEN_FILE=deploy/demo/token
	settings deploy/systemd/worker.env.example DESTINATION_0_AUTH_TOKEN_FILE=deploy/demo/token
	settings deploy/systemd/api.env.example API_TOKENS_FILE=deploy/demo/api/tokens.json

	# ---- systemd ----
	above "systemd: TimeoutStopSec above SHUTDOWN_TIMEOUT" \
		"$(sed -n 's/^TimeoutStopSec=//p' deploy/systemd/tidegate-worker.service)" "$(sed -n 's/^SHUTDOWN_TIMEOUT=//p' deploy/systemd/worker.env.example)"
	for unit in deploy/systemd/*.service; do
		name=$(basename "$unit")
		if ! command -v systemd-analyze >/dev/null; then
			echo "skip  $name: systemd-analyze is not here"
			continue
		fi
		mkdir -p "$work/unit"
		# Without the binary installed; the rest is as it is.
		sed "s|^ExecStart=/usr/local/bin/tidegate|ExecStart=$work/tidegate|" "$unit" >"$work/unit/$name"
		systemd-analyze verify "$work/unit/$name" >"$work/out" 2>&1 || echo "exit status $?" >>"$work/out"
		# Known from 254 on; before that systemd ignores them.
		sed -i -E "/Unknown key( name)? '(RestartSteps|RestartMaxDelaySec)'/d" "$work/out"
		if [ -s "$work/out" ]; then fail "systemd-analyze verify $name" "$(cat "$work/out")"; else ok "systemd-analyze verify $name"; fi
		if systemd-analyze security --offline=true --threshold=15 "$unit" >"$work/out" 2>/dev/null; then
			ok "systemd-analyze security $name: $(sed -n 's/.*: \([0-9.]*\) .*/\1/p' "$work/out" | tail -1) of 10, at most 1.5"
		else
			fail "systemd-analyze security $name" "$(tail -1 "$work/out")"
		fi
	done
}

with_tools() {
	# ---- compose.yaml ----
	if [ -n "${COMPOSE:-}" ]; then
		compose=("$COMPOSE")
	elif command -v docker-compose >/dev/null; then
		compose=(docker-compose)
	elif docker compose version >/dev/null 2>&1; then
		compose=(docker compose)
	else
		echo "docker compose is missing: install it, or name it in COMPOSE" >&2
		exit 1
	fi
	# Settings of whoever runs this must not matter.
	config() { env -i PATH="$PATH" HOME="$HOME" "${compose[@]}" -f deploy/compose.yaml "$@"; }
	quiet "compose config" config config -q
	quiet "compose config, all profiles" config --profile '*' config -q
	config --profile '*' config >"$work/compose.yaml" 2>/dev/null || true

	# service NAME: its part of the rendered file.
	service() {
		awk -v name="  $1:" '/^[^ ]/ { top = $0 } top == "services:" && /^  [^ ]/ { on = ($0 == name) } on && top == "services:"' "$work/compose.yaml"
	}
	services=$({ config --profile '*' config --services 2>/dev/null || true; } | sort)
	for name in $services; do
		part=$(service "$name")
		missing=
		for want in 'read_only: true' '- ALL' 'no-new-privileges:true' 'stop_grace_period: '; do
			grep -qF -- "$want" <<<"$part" || missing="$missing [$want]"
		done
		if grep -qE 'host_ip|published' <<<"$part" && ! grep -qF 'host_ip: 127.0.0.1' <<<"$part"; then
			missing="$missing [ports on 127.0.0.1 only]"
		fi
		if [ -z "$missing" ]; then ok "compose: $name is locked down"; else fail "compose: $name lacks$missing"; fi
	done
	worker=$(service worker)
	if [ -z "$worker" ] || grep -qE 'container_name|published' <<<"$worker"; then
		fail "compose: workers scale (a fixed name or port would stop the second)"
	else
		ok "compose: workers scale"
	fi
	above "compose: stop_grace_period above SHUTDOWN_TIMEOUT" \
		"$(sed -n 's/^ *stop_grace_period: //p' <<<"$worker")" "$(sed -n 's/^ *SHUTDOWN_TIMEOUT: //p' <<<"$worker")"
	while read -r path; do
		if [ "$path" = "$PWD/deploy/api" ]; then continue; fi # the operator's own tokens
		if [ -f "$path" ] || [ -d "$path" ]; then ok "compose: there is ${path#"$PWD"/}"; else fail "compose: $path is not there"; fi
	done < <(sed -n -e 's/^ *source: \(\/.*\)$/\1/p' -e 's/^ *file: \(\/.*\)$/\1/p' "$work/compose.yaml" | sort -u)

	# ---- Prometheus ----
	promtool=${PROMTOOL:-promtool}
	if ! command -v "$promtool" >/dev/null; then
		echo "promtool is missing: install it, or name it in PROMTOOL" >&2
		exit 1
	fi
	# The rules are where the container has them; here they are in the repository.
	sed "s|/etc/prometheus/|$PWD/deploy/prometheus/|" deploy/prometheus/prometheus.yml >"$work/prometheus.yml"
	# A promtool that was built without service discoveries checks the rest.
	if ! "$promtool" check config "$work/prometheus.yml" >"$work/out" 2>&1 && grep -q 'dns_sd_configs not found' "$work/out"; then
		sed -i '/dns_sd_configs:/,$c\    static_configs: [{targets: ["worker:9090"]}]' "$work/prometheus.yml"
	fi
	if "$promtool" check config "$work/prometheus.yml" >"$work/out" 2>&1; then
		ok "promtool check config"
	else
		fail "promtool check config" "$(cat "$work/out")"
	fi
}

case ${1:-all} in
plain) plain ;;
tools) with_tools ;;
*)
	plain
	with_tools
	;;
esac
if [ "$failures" -gt 0 ]; then
	echo "$failures failed" >&2
	exit 1
fi
