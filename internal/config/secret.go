package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/call/keyurl"
)

// Redacted stands wherever a secret would otherwise be printed.
const Redacted = secret.Mask

// Secret is a string that no printing shows: fmt, slog, JSON and text encoders
// all write [Redacted], or nothing if it is empty. [Secret.Reveal] is the way to
// the value. Two things in the standard library go past it: the verb %p, which
// vet refuses, and JSON for the keys of a map.
type Secret string

// Reveal returns the value itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String returns [Redacted], or "" if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Redacted
}

// GoString is the redacted form for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format writes the redacted form whatever the verb, so that %x or %d show no
// bytes of the value either.
func (s Secret) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'v' && f.Flag('#'):
		_, _ = io.WriteString(f, s.GoString())
	case verb == 'q':
		_, _ = fmt.Fprintf(f, "%q", s.String())
	default:
		_, _ = io.WriteString(f, s.String())
	}
}

// LogValue is the redacted form for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is the redacted form for encoders of text and JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the value without trailing line breaks, which files and
// shell substitutions leave behind.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(strings.TrimRight(string(text), "\r\n"))
	return nil
}

// making guards the making of Redactors: a configuration is copied, which a lock in it would forbid.
var making sync.Mutex

// Redactor returns the Redactor that removes the secrets of the configuration, and secrets that are added later, from
// texts. Each call returns the same one.
func (c *Config) Redactor() *secret.Redactor {
	making.Lock()
	defer making.Unlock()
	if c.redactor == nil {
		c.redactor = secret.New(c.Secrets()...)
	}
	return c.redactor
}

// ShareRedactor makes c use the Redactor of the configuration before, so that it removes the secrets of both and of
// all earlier ones.
func (c *Config) ShareRedactor(before *Config) {
	c.redactor = before.Redactor()
	c.redactor.Renew(c.Secrets()...)
}

// Secrets returns the secrets of the configuration that are in use, to remove them from texts; see package secret. The tokens of files are not among it.
func (c *Config) Secrets() []string {
	var out []string
	ofURL := func(raw string) {
		if u, err := url.Parse(raw); err == nil {
			out = append(out, secret.OfURL(u)...)
		}
	}
	whole := func(secrets ...Secret) {
		const shortest = 4 // bytes: what is shorter stands in any text
		for _, s := range secrets {
			if len(s) >= shortest {
				out = append(out, s.Reveal(), strings.TrimPrefix(s.Reveal(), "whsec_"))
			}
		}
	}
	for _, password := range redisconn.Passwords(c.RedisURL.Reveal()) {
		whole(Secret(password))
	}
	for _, d := range c.Destinations {
		if u, err := keyurl.Parse(d.URL); err == nil {
			out = append(out, secret.OfURL(u.Fixed())...)
		}
		ofURL(d.CallbackURL)
		out = append(out, secret.OfHeader(d.Headers)...)
		ofURL(d.OAuthTokenURL)
		whole(d.AuthToken, d.SignSecret)
		if _, password, ok := strings.Cut(d.AuthToken.Reveal(), ":"); ok && d.sendsBasic() {
			whole(Secret(password))
		}
		out = append(out, secret.OfClient(d.OAuthClientID, d.OAuthClientSecret.Reveal())...)
		whole(d.CallbackSecrets()...)
	}
	whole(secretsOf(c.Credentials.Key)...)
	whole(c.Alerts.SlackBotToken, c.Alerts.PagerDutyRoutingKey)
	ofURL(c.Alerts.SlackWebhookURL.Reveal())
	ofURL(c.Alerts.SlackAPIURL)
	ofURL(c.Alerts.PagerDutyAPIURL)
	return out
}
