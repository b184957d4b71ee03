#!/usr/bin/env bash
# Builds the image with docker, podman or buildah, whichever is there.
#
#   deploy/image.sh [--prebuilt] [TAG]
#
# TAG is tidegate:local unless given. --prebuilt compiles on this machine and needs no
# registry. Environment: BUILDER (docker, podman, buildah), GO_IMAGE, BASE_IMAGE,
# VERSION, COMMIT, BUILD_FLAGS (more flags for the builder, separated by spaces).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prebuilt=
if [ "${1:-}" = --prebuilt ]; then
	prebuilt=yes
	shift
fi
tag=${1:-tidegate:local}

builder=${BUILDER:-}
for candidate in docker buildah podman; do
	# docker without a server, as a client for podman's socket, does not build.
	if [ -z "$builder" ] && command -v "$candidate" >/dev/null &&
		{ [ "$candidate" != docker ] || docker info >/dev/null 2>&1; }; then
		builder=$candidate
	fi
done
if [ -z "$builder" ]; then
	echo "none of docker, buildah and podman works here: install one" >&2
	exit 1
fi

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo devel)}
commit=${COMMIT:-$(git rev-parse HEAD 2>/dev/null || true)}
args=(-f deploy/Dockerfile -t "$tag" --build-arg "VERSION=$version" --build-arg "COMMIT=$commit")
for name in GO_IMAGE BASE_IMAGE; do
	if [ -n "${!name:-}" ]; then
		args+=(--build-arg "$name=${!name}")
	fi
done

if [ -n "$prebuilt" ]; then
	scripts/ca-bundle.sh dist/ca-certificates.crt
	CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=false -tags grpcnotrace \
		-ldflags "-s -w -X main.version=$version -X main.commit=$commit" -o dist/tidegate ./cmd/tidegate
	args+=(--target prebuilt)
fi

read -ra flags <<<"${BUILD_FLAGS:-}"
case $builder in
docker) run=(docker build) ;;
podman) run=(podman build --format docker) ;;
buildah) run=(buildah bud --format docker) ;;
*)
	echo "BUILDER is $builder: want docker, podman or buildah" >&2
	exit 1
	;;
esac
"${run[@]}" "${args[@]}" ${flags[@]+"${flags[@]}"} .
echo "built $tag: $version"
