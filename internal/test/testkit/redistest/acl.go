package redistest

import (
	"net/url"
	"strings"
	"testing"
)

// SetUser makes a user of a server, or changes it, as ACL SETUSER does: clients must send the password; each rule is
// one rule of an ACL. Replicas do not take users over from their masters.
func (s *Server) SetUser(t testing.TB, name, password string, rules ...string) {
	t.Helper()
	mustAsk(t, s, append([]string{"ACL", "SETUSER", name, "reset", "on", ">" + password}, rules...)...)
}

// SetUser makes a user on all nodes; see [Server.SetUser].
func (c *Cluster) SetUser(t testing.TB, name, password string, rules ...string) {
	t.Helper()
	for _, node := range c.nodes {
		node.SetUser(t, name, password, rules...)
	}
}

// SetUser makes a user on the master and its replicas, not on the Sentinels; see
// [Server.SetUser].
func (s *Sentinel) SetUser(t testing.TB, name, password string, rules ...string) {
	t.Helper()
	for _, server := range s.servers {
		server.SetUser(t, name, password, rules...)
	}
}

// As returns the URL with the credentials of a user in it.
func As(rawURL, name, password string) string {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	return scheme + "://" + url.UserPassword(name, password).String() + "@" + rest
}
