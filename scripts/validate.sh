#!/usr/bin/env bash
# Validates what is in deploy/ with the tools that it is meant for: promtool on the rules,
# Helm and the Kubernetes schemas on the chart; deploy/validate.d has the rest: Dockerfile,
# compose.yaml, systemd. What needs no tools is in deploy/*_test.go, which `make test` runs.
#
# Missing tools are built into .bin with Go, some minutes once, each before what it checks. HELM,
# KUBECTL_VALIDATE, PROMTOOL and COMPOSE may name others that are there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BIN=$PWD/.bin
HELM_VERSION=v3.22.0
KUBECTL_VALIDATE_VERSION=v0.0.4
PROMTOOL_VERSION=v0.313.5
COMPOSE_VERSION=v2.40.3
# Modules that hold the CustomResourceDefinitions of what the chart makes besides Kubernetes' own.
OPERATOR_MODULE=github.com/prometheus-operator/prometheus-operator@v0.85.0
KEDA_MODULE=github.com/kedacore/keda/v2@v2.21.0
# The newest whose schemas kubectl-validate has built in.
KUBERNETES=1.30

export HELM=${HELM:-$BIN/helm-$HELM_VERSION}
export KUBECTL_VALIDATE=${KUBECTL_VALIDATE:-$BIN/kubectl-validate-$KUBECTL_VALIDATE_VERSION}
export PROMTOOL=${PROMTOOL:-$BIN/promtool-$PROMTOOL_VERSION}
export COMPOSE=${COMPOSE:-$BIN/docker-compose-$COMPOSE_VERSION}

CHART=deploy/helm/tidegate
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

ok() { printf 'ok    %s\n' "$*"; }
fail() { printf 'FAIL  %s\n' "$*"; failures=$((failures + 1)); }

# check NAME COMMAND…: runs the command, and shows what it says only if it fails.
check() {
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		ok "$name"
	else
		fail "$name"
		sed 's/^/      /' "$work/out"
	fi
}

# build FILE PACKAGE@VERSION [GO-FLAGS…]: builds a tool in a module of its own, which unlike
# go install also takes modules that replace others.
build() {
	local file=$1 package=${2%@*} version=${2##*@}
	shift 2
	[ ! -x "$file" ] || return 0
	echo "building $(basename "$file") (once, a minute or more)"
	mkdir -p "$BIN" "$work/build"
	(
		cd "$work/build"
		rm -f go.mod go.sum
		export GOFLAGS="$*" CGO_ENABLED=0
		go mod init scratch
		go get -tool "$package@$version"
		go build -trimpath -ldflags '-s -w' -o "$file" "$package"
	) >"$work/out" 2>&1 || {
		tail -5 "$work/out" >&2
		echo "$(basename "$file") could not be built; it needs the Go module proxy" >&2
		exit 1
	}
}

# scripts PART: what is in deploy/validate.d.
scripts() {
	for script in deploy/validate.d/*.sh; do
		[ -e "$script" ] || continue
		echo "==> $script $1"
		bash "$script" "$1" || failures=$((failures + 1))
	done
}

# ---- what needs no tool ----
check "the chart's rules are deploy/prometheus/rules.yml" cmp deploy/prometheus/rules.yml "$CHART/files/rules.yml"
check "the chart's dashboard is deploy/grafana/tidegate.json" cmp deploy/grafana/tidegate.json "$CHART/files/tidegate.json"
scripts plain

# ---- Prometheus ----
# Without the service discoveries of all clouds it builds in a fraction of the time.
build "$PROMTOOL" "github.com/prometheus/prometheus/cmd/promtool@$PROMTOOL_VERSION" -tags=remove_all_sd,enable_dns_sd
check "promtool check rules" "$PROMTOOL" check rules --lint=all --lint-fatal deploy/prometheus/rules.yml
check "promtool test rules" "$PROMTOOL" test rules deploy/prometheus/rules_test.yml

# ---- containers, compose ----
build "$COMPOSE" "github.com/docker/compose/v2/cmd@$COMPOSE_VERSION"
scripts tools

# ---- Helm and Kubernetes ----
build "$HELM" "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
build "$KUBECTL_VALIDATE" "sigs.k8s.io/kubectl-validate@$KUBECTL_VALIDATE_VERSION"
render() { "$HELM" template t "$CHART" --namespace n --kube-version "$KUBERNETES.0" "$@"; }
render_to() {
	local file=$1
	shift
	render "$@" >"$file"
}

# Where the definitions are, as the modules' zip has them.
definitions() {
	local dir
	dir=$(cd "$work" && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') && [ -n "$dir" ] || return 1
	shift
	mkdir -p "$work/crds"
	for f in "$@"; do
		cp "$dir/$f" "$work/crds/" || return 1
	done
	chmod -R u+w "$work/crds"
}
crds=()
if definitions "$OPERATOR_MODULE" example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml &&
	definitions "$KEDA_MODULE" config/crd/bases/keda.sh_{scaledobjects,triggerauthentications}.yaml; then
	crds=(--local-crds "$work/crds")
else
	echo "skip  schemas of ServiceMonitor, PrometheusRule, ScaledObject and TriggerAuthentication: modules not to be had"
fi

# Each document in a file of its own; without definitions those of Kubernetes only.
split_documents() {
	mkdir -p "$2"
	awk -v dir="$2" 'BEGIN { n = 0 } /^---$/ { n++; next } { print > sprintf("%s/%02d.yaml", dir, n) }' "$1"
	if [ ${#crds[@]} -eq 0 ]; then
		grep -lE '^apiVersion: (monitoring.coreos.com|keda.sh)/' "$2"/*.yaml | xargs -r rm
	fi
}

for values in "$CHART"/ci/*-values.yaml; do
	set=$(basename "$values" -values.yaml)
	check "helm lint --strict, $set" "$HELM" lint --strict "$CHART" --kube-version "$KUBERNETES.0" -f "$values"
	check "helm template, $set" render_to "$work/$set.yaml" -f "$values"
	split_documents "$work/$set.yaml" "$work/$set"
	check "kubectl-validate, Kubernetes $KUBERNETES, $set: $(cat "$work/$set"/*.yaml | grep -c '^kind:') objects" \
		"$KUBECTL_VALIDATE" --version "$KUBERNETES" "${crds[@]}" "$work/$set"
done

# The validators notice what is wrong: or all of the above would say little.
mkdir -p "$work/wrong"
for change in 's/revisionHistoryLimit/revisionHistoryLimits/' 's/minReplicaCount/minReplicas/'; do
	[ "$change" = 's/revisionHistoryLimit/revisionHistoryLimits/' ] || [ ${#crds[@]} -gt 0 ] || continue
	rm -f "$work/wrong"/*
	grep -lE '^kind: (Deployment|ScaledObject)' "$work/everything"/*.yaml | while read -r f; do
		sed "$change" "$f" >"$work/wrong/$(basename "$f")"
	done
	if "$KUBECTL_VALIDATE" --version "$KUBERNETES" "${crds[@]}" "$work/wrong" >/dev/null 2>&1; then
		fail "kubectl-validate refuses $change"
	else
		ok "kubectl-validate refuses $change"
	fi
done

# The rules that the chart renders are rules, and its autoscaling query is the tested one.
sed -n '/^kind: PrometheusRule/,/^---/p' "$work/everything.yaml" | sed -n '/^  groups:/,/^---/{/^---/!s/^  //p}' >"$work/rules.yml"
check "promtool check rules, as the chart renders them" "$PROMTOOL" check rules "$work/rules.yml"
query=$(sed -n "s/^ *query: '\(.*\)'$/\1/p" "$work/everything.yaml")
check "the autoscaling query is the one of rules_test.yml" grep -qF "'$query'" deploy/prometheus/rules_test.yml

# contains SET TEXT…: what a rendered set has to say.
contains() {
	local set=$1
	shift
	for text in "$@"; do
		if grep -qF -- "$text" "$work/$set.yaml"; then ok "$set has $text"; else fail "$set has $text"; fi
	done
}
contains minimal 'terminationGracePeriodSeconds: 45' 'value: "30s"' 'value: "235929KiB"' 'replicas: 2' \
	'automountServiceAccountToken: false' 'readOnlyRootFilesystem: true' 'enableServiceLinks: false'
contains everything 'terminationGracePeriodSeconds: 105' 'value: "90s"' 'value: "943718KiB"' \
	'DESTINATION_0_RATE: "1000000/1h"' 'DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS: "3600000"' \
	'DESTINATION_0_RATE_LIMITED_STATUS: "429,403"' 'DESTINATION_0_HEADERS: "Accept:application/json,X-Client:tidegate"' \
	'value: "/etc/tidegate/tokens-0/tokens.json"'
contains everything 'value: "/etc/tidegate/api/api.json"' 'value: ":8888"' 'preStop: {sleep: {seconds: 15}}' \
	'credentials: {name: "prometheus-reader", key: "token"}' 'terminationGracePeriodSeconds: 35'
# lacks NAME FILE TEXT
lacks() { if grep -q -- "$3" "$2"; then fail "$1"; else ok "$1"; fi; }
# of PATTERN: the parts of the rendered everything that come from these templates.
of() { sed -n "/^# Source: .*\($1\).yaml/,/^---/p" "$work/everything.yaml" >"$work/part.yaml"; }
of worker-deployment
lacks "autoscaling leaves replicas alone" "$work/part.yaml" '^  replicas:'
render_to "$work/unlimited.yaml" -f "$CHART/ci/minimal-values.yaml" --set worker.resources.limits.memory=null
lacks "no API unless it is wanted" "$work/minimal.yaml" 'component: api'
of 'api-configmap\|api-deployment'
for secret in shop-api shop-users AUTH_TOKEN CALLBACK SLACK; do
	lacks "the API's pods have nothing of $secret" "$work/part.yaml" "$secret"
done
render_to "$work/old.yaml" --kube-version 1.29.0 -f "$CHART/ci/everything-values.yaml"
lacks "no preStop: sleep before Kubernetes 1.30" "$work/old.yaml" 'preStop: {sleep'
lacks "no GOMEMLIMIT without a memory limit" "$work/unlimited.yaml" GOMEMLIMIT
render_to "$work/changed.yaml" -f "$CHART/ci/minimal-values.yaml" --set config.LOG_LEVEL=debug
lacks "another configuration, other pods" "$work/changed.yaml" "$(grep checksum/config "$work/minimal.yaml")"

# refused NAME MESSAGE ARGS…: the chart says no, and why.
refused() {
	local name=$1 message=$2
	shift 2
	if render -f "$CHART/ci/minimal-values.yaml" "$@" >"$work/out" 2>&1; then
		fail "refused: $name (was taken)"
	elif ! grep -qF -- "$message" "$work/out"; then
		fail "refused: $name, but without \"$message\""
		sed 's/^/      /' "$work/out"
	else
		ok "refused: $name"
	fi
}
refused "a misspelt value" "replicass" --set worker.replicass=3
refused "a misspelt key of a destination" "concurency" --set 'destinations[0].concurency=3'
refused "a misspelt variable" "CIRCUIT_BREAKER_COOLDOWN" --set config.CIRCUIT_BREAKER_COOLDOWN=3
refused "a secret in config" "SLACK_BOT_TOKEN" --set config.SLACK_BOT_TOKEN=x
refused "a password in redis.url" "holds a password" --set redis.url=redis://:hush@redis:6379/0
refused "no Redis" "set redis.url" --set redis.url=
refused "no destination" "at least one is needed" --set-json 'destinations=[]'
refused "a destination twice" "is there twice" --set-json 'destinations=[{"name":"a","url":"http://a"},{"name":"a","url":"http://b"}]'
refused "a destination's URL with a password" "url" --set 'destinations[0].url=https://u:p@example.com'
refused "SHUTDOWN_TIMEOUT behind the chart's back" "extraEnv" --set-json 'extraEnv=[{"name":"SHUTDOWN_TIMEOUT","value":"5m"}]'
refused "scaling to zero" "minReplicas" --set worker.autoscaling.minReplicas=0
refused "autoscaling without Prometheus" "serverAddress" --set worker.autoscaling.enabled=true
refused "the API without tokens" "api.tokens.secret" --set api.enabled=true
refused "an Ingress without a name" "api.ingress.hosts" --set api.enabled=true,api.tokens.secret=x,api.ingress.enabled=true
refused "an Ingress without the API" "needs api.enabled" --set api.ingress.enabled=true
refused "a misspelt value of the API" "replicass" --set api.replicass=3
refused "LISTEN_ADDR behind the chart's back" "extraEnv" --set-json 'api.extraEnv=[{"name":"LISTEN_ADDR","value":":80"}]'
refused "an alert that is not there" "there is no alert" --set prometheusRule.enabled=true --set 'prometheusRule.disabledAlerts={TidegateNone}'
refused "a memory limit of another kind" "is not an integer with" --set worker.resources.limits.memory=1.5Gi

if [ "$failures" -gt 0 ]; then
	echo "$failures failed" >&2
	exit 1
fi
echo "all well"
