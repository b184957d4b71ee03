package callbacks

import (
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/webhook"
)

// shortest is how long a value in an address is at least that is taken for a secret.
const shortest = 6

// redactor takes out of what receivers answer what nobody else is to see: the secrets,
// and of the address the user, the password, the query, and long parts of the path,
// which with many services are as good as a password.
func redactor(u *url.URL, secrets []webhook.Secret) *strings.Replacer {
	var hide []string
	add := func(text string, atLeast int) {
		if len(text) < atLeast {
			return
		}
		hide = append(hide, text, url.QueryEscape(text), url.PathEscape(text), strings.ReplaceAll(text, "&", "&amp;"))
	}
	for _, s := range secrets {
		add(s.Text(), 1)
		add(strings.TrimPrefix(s.Text(), "whsec_"), 1)
	}
	if u.User != nil {
		add(u.User.String(), 1)
		add(u.User.Username(), shortest)
		password, _ := u.User.Password()
		add(password, 1)
		add(base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)), 1) // as it is sent
	}
	add(u.RawQuery, 3)
	for _, values := range u.Query() {
		for _, v := range values {
			add(v, shortest)
		}
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		add(part, 16)
	}
	// The longest that fits is to be replaced.
	slices.SortFunc(hide, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(hide))
	for _, text := range slices.Compact(hide) {
		pairs = append(pairs, text, "[redacted]")
	}
	return strings.NewReplacer(pairs...)
}

// clean makes a receiver's text fit to be kept and shown.
func (r *receiver) clean(text string) string {
	text = strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unicode.IsControl(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = r.redact.Replace(text)
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
