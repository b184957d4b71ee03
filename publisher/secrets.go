package publisher

import (
	"cmp"
	"encoding/json"
	"errors"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// credentialName matches names of headers and parameters that hold credentials.
var credentialName = regexp.MustCompile(`(?i)auth|token|secret|passw|api-?_?key|cookie|signature|session`)

// secretsOf lists what must not be kept or logged of the options: the token, and
// header and query values that are credentials by their name.
func secretsOf(o HTTPOptions, base *url.URL) []string {
	out := []string{o.AuthToken}
	for _, values := range []map[string][]string{o.Header, base.Query()} {
		for name, list := range values {
			if credentialName.MatchString(name) {
				out = append(out, list...)
			}
		}
	}
	return out
}

// secrets are what must not be kept or logged, in case an API repeats it: as it is,
// and as it is written in JSON, in quoted text, in a URL and in HTML.
type secrets struct {
	forms    []string
	replacer *strings.Replacer
}

func newSecrets(texts ...string) *secrets {
	var forms []string
	for _, s := range texts {
		if s != "" {
			forms = append(forms, formsOf(s)...)
		}
	}
	return &secrets{forms: forms, replacer: newReplacer(forms)}
}

// newReplacer replaces the longest form that fits, so that nothing is left of a
// secret which begins with another one.
func newReplacer(forms []string) *strings.Replacer {
	forms = slices.Clone(forms)
	slices.SortStableFunc(forms, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, "[redacted]")
	}
	return strings.NewReplacer(pairs...)
}

// unreserved characters (RFC 3986, section 2.3) are written alike everywhere.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// formsOf returns how a secret may be written.
func formsOf(secret string) []string {
	if strings.Trim(secret, unreserved) == "" {
		return []string{secret}
	}
	quoted := strconv.Quote(secret)
	quoted = quoted[1 : len(quoted)-1]
	forms := []string{
		secret, quoted, strings.ReplaceAll(quoted, "/", `\/`),
		url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret),
	}
	if b, err := json.Marshal(secret); err == nil {
		inJSON := string(b[1 : len(b)-1])
		forms = append(forms, inJSON, strings.ReplaceAll(inJSON, "/", `\/`))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// redactor redacts the texts of one call: the destination's secrets, and the token
// that the call was made with. A call knows only its own key's token, and keeps it to
// its end, so that neither thousands of tokens nor a change of them matter to it.
type redactor struct {
	static *secrets
	own    []string // forms of the call's own token
}

func (s *secrets) with(token string) redactor {
	if token == "" {
		return redactor{static: s}
	}
	return redactor{static: s, own: formsOf(token)}
}

func (r redactor) redact(text string) string {
	if !slices.ContainsFunc(r.own, func(form string) bool { return strings.Contains(text, form) }) {
		return r.static.replacer.Replace(text)
	}
	return newReplacer(slices.Concat(r.own, r.static.forms)).Replace(text)
}

// withoutSecrets drops the chain of an error whose text repeats a secret.
func (r redactor) withoutSecrets(err error) error {
	if text := err.Error(); r.redact(text) == text {
		return err
	}
	if unsent, ok := errors.AsType[*jobs.UnreachableError](err); ok {
		return jobs.Unreachable(errors.New(r.redact(unsent.Err.Error())))
	}
	return errors.New(r.redact(err.Error()))
}
