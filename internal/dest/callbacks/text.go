package callbacks

import (
	"net/url"
	"strings"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/dest/webhook"
)

// redactor removes the secrets of a receiver, and the secrets in its address, from its responses.
func redactor(u *url.URL, secrets []webhook.Secret) *secret.Redactor {
	hide := secret.OfURL(u)
	for _, s := range secrets {
		hide = append(hide, s.Text(), strings.TrimPrefix(s.Text(), "whsec_"))
	}
	return secret.New(hide...)
}

// clean sanitizes a receiver's text.
func (r *receiver) clean(s string) string {
	return text.Head(r.redact.Redact(text.Printable(s)), maxKept)
}
