#!/usr/bin/env bash
# Writes what the archives and the image of a release hold beside the binary, into .bin/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=.bin/release
rm -rf "$out"
mkdir -p "$out/completions"
go build -trimpath -o "$out/tidegate" ./cmd/tidegate
for shell in bash zsh fish; do
	# The path of the binary is that of whoever installs it.
	"$out/tidegate" completion -c "$shell" | sed "s#$PWD/$out/tidegate#tidegate#g" >"$out/completions/tidegate.$shell"
done
"$out/tidegate" --man >"$out/tidegate.1"
rm "$out/tidegate"
scripts/ca-bundle.sh "$out/ca-certificates.crt"
