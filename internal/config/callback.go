package config

import (
	"strings"
	"unicode"

	"github.com/tidegate/tidegate/internal/webhook"
)

// checkCallback checks where a destination's callbacks go, and what signs them.
func (l *loader) checkCallback(d destinationVars, prefix string) {
	url, secret := prefix+"CALLBACK_URL", prefix+"CALLBACK_SECRET"
	if l.found.ok(url) && d.CallbackURL != "" {
		if problem, fix := checkURL(string(d.CallbackURL), "https://app.example.com/hooks/tidegate"); problem != "" {
			l.found.fail(url, fix, "%s", problem)
		}
	}
	if !l.found.ok(url, secret) {
		return
	}
	secrets := callbackSecrets(d.CallbackSecret)
	switch {
	case d.CallbackURL != "" && len(secrets) == 0:
		l.found.fail(secret, "set it to whsec_ and what `openssl rand -base64 32` prints",
			"is not set, and %s is: callbacks are signed, so that their receiver knows who sent them", url)
	case d.CallbackURL == "" && len(secrets) > 0:
		l.found.warn(secret, "is set, but %s is not: there are no callbacks to sign", url)
	}
	for _, s := range secrets {
		if _, err := webhook.ParseSecret(s.Reveal()); err != nil {
			l.found.fail(secret, "write whsec_ and what `openssl rand -base64 32` prints", "%s", err.Error())
			return
		}
	}
}

// callbackSecrets are the secrets that are separated by commas or spaces.
func callbackSecrets(s Secret) []Secret {
	var out []Secret
	for _, one := range strings.FieldsFunc(s.Reveal(), func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		out = append(out, Secret(one))
	}
	return out
}
