package callbacks

import (
	"errors"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/secret"
	"github.com/tidegate/tidegate/internal/webhook"
)

// redactor takes out of what receivers answer what nobody else is to see: the secrets,
// and what is secret of the address.
func redactor(u *url.URL, secrets []webhook.Secret) *secret.Redactor {
	hide := secret.OfURL(u)
	for _, s := range secrets {
		hide = append(hide, s.Text(), strings.TrimPrefix(s.Text(), "whsec_"))
	}
	return secret.New(hide...)
}

// clean makes a receiver's text fit to be kept and shown.
func (r *receiver) clean(text string) string {
	text = strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unicode.IsControl(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = r.redact.Redact(text)
	if len(text) <= maxKept {
		return text
	}
	end := maxKept
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// reason says why there was no answer, without the address and what else is secret.
func (r *receiver) reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return r.clean(err.Error())
}
