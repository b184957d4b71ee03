package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// CheckAddress refuses an address to listen on that others can reach while there are
// no tokens. addr is host:port, as LISTEN_ADDR has it.
func CheckAddress(addr string, tokens bool) error {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an address to listen on: write it like 127.0.0.1:8080 or :8080", addr)
	case tokens || isLoopback(host):
		return nil
	}
	return fmt.Errorf("other machines can reach %q, and there are no tokens: set API_TOKENS_FILE, or listen on 127.0.0.1:%s", addr, port)
}

// isLoopback reports whether a host, without port, is this machine only.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// addressOf returns what a request's wrong tokens are counted for: an address, or of IPv6
// the network that one customer gets.
func addressOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{} // in tests of handlers
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // the bits fit
	return prefix
}
