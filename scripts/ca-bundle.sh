#!/usr/bin/env bash
# Copies this machine's bundle of CA certificates to FILE: ca-bundle.sh FILE
set -euo pipefail

for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -s "$file" ]; then
		mkdir -p "$(dirname "$1")"
		exec install -m 0644 "$file" "$1"
	fi
done
echo "no CA bundle found: name one in SSL_CERT_FILE" >&2
exit 1
