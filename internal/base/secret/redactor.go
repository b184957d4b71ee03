package secret

import (
	"cmp"
	"encoding/base64"
	hexadecimal "encoding/hex"
	"encoding/json"
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Redactor takes secrets out of texts: as they are, in base64 and in hexadecimal, as JSON, quoted text,
// URLs and HTML write these, escaped more than once, in UTF-16, and within base64 of more than the
// secret. A nil Redactor takes out nothing.
type Redactor struct {
	known *atomic.Pointer[known]
	own   func() written // the secrets of With; nil without any
}

// written are secrets in their forms.
type written struct {
	plain []string // as they are, and encoded as a whole
	forms []string // as formsOf has them
}

func write(secrets []string) written {
	w := written{forms: formsOf(secrets)}
	for _, s := range secrets {
		if s == "" {
			continue
		}
		w.plain = append(w.plain, encoded(s)...)
		if form := strings.ReplaceAll(s, " ", "+"); form != s { // of a query
			w.plain = append(w.plain, form)
		}
		if d, ok := decode(s); ok && len(d.text) >= shortestNamed && len(d.text) < len(s) { // the text is decoded, too
			w.plain = append(w.plain, string(d.text))
		}
	}
	return w
}

// known are the secrets of New and Add.
type known struct {
	secrets []string
	added   map[string][]string // by source
	written
	replacer *strings.Replacer
}

// mostAdded bounds the secrets of Add from one source: the oldest ones are forgotten.
const mostAdded = 20

func newKnown(secrets []string, added map[string][]string) *known {
	w := write(slices.Concat(append(slices.Collect(maps.Values(added)), secrets)...))
	return &known{secrets: secrets, added: added, written: w, replacer: newReplacer(w.forms)}
}

func (k *known) has(secret, source string) bool {
	return slices.Contains(k.secrets, secret) || slices.Contains(k.added[source], secret)
}

// New returns the Redactor of secrets; empty ones are left out.
func New(secrets ...string) *Redactor {
	r := &Redactor{known: &atomic.Pointer[known]{}}
	r.known.Store(newKnown(secrets, nil))
	return r
}

// Add makes r, and what With has returned, take out more secrets of a source, such as a file, from
// now on: its latest 20.
func (r *Redactor) Add(source string, secrets ...string) {
	for {
		was := r.known.Load()
		more := slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == "" || was.has(s, source) })
		if len(more) == 0 {
			return
		}
		added := maps.Clone(was.added)
		if added == nil {
			added = map[string][]string{}
		}
		all := slices.Concat(was.added[source], more)
		added[source] = all[max(0, len(all)-mostAdded):]
		if r.known.CompareAndSwap(was, newKnown(was.secrets, added)) {
			return
		}
	}
}

// mostEarlier bounds the secrets before a Renew that are still taken out.
const mostEarlier = 1000

// Renew makes r take out these secrets in addition to the earlier ones, from New and earlier Renews: texts of calls
// in flight may still hold them. Of the secrets that are replaced r keeps the latest 1,000.
func (r *Redactor) Renew(secrets ...string) {
	for {
		was := r.known.Load()
		seen, all := map[string]bool{"": true}, []string{}
		for i, s := range slices.Concat(secrets, was.secrets) {
			if i >= len(secrets) && len(all) >= len(secrets)+mostEarlier {
				break
			}
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
		if r.known.CompareAndSwap(was, newKnown(all, was.added)) {
			return
		}
	}
}

// With returns a Redactor that also takes out secrets of a moment, such as the token of
// one call. It costs nothing until it meets a text, and for secrets that r knows nothing at all.
func (r *Redactor) With(secrets ...string) *Redactor {
	more := slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == "" || r.known.Load().has(s, "") })
	if len(more) == 0 {
		return r
	}
	return &Redactor{known: r.known, own: sync.OnceValue(func() written { return write(more) })}
}

// ownForms are the forms of the secrets of With.
func (r *Redactor) ownForms() written {
	if r.own == nil {
		return written{}
	}
	return r.own()
}

// Redact returns the text with Mask in the place of each secret.
func (r *Redactor) Redact(text string) string {
	if r == nil || text == "" {
		return text
	}
	own, all := r.ownForms(), r.known.Load()
	if slices.ContainsFunc(own.forms, func(form string) bool { return strings.Contains(text, form) }) {
		text = newReplacer(slices.Concat(own.forms, all.forms)).Replace(text)
	} else {
		text = all.replacer.Replace(text)
	}
	return mask(text, hidden(text, slices.Concat(own.plain, all.plain), false))
}

// RedactCut is Redact for a text that was cut off: it also takes out what may be the
// beginning of a secret at its end, from 6 bytes on.
func (r *Redactor) RedactCut(text string) string {
	all, own := r.known.Load(), r.ownForms()
	forms := slices.Concat(all.forms, own.forms)
	most := 0
	for _, form := range forms {
		for n := min(len(form)-1, len(text)); n >= shortestValue && n > most; n-- {
			if strings.HasSuffix(text, form[:n]) {
				most = n
			}
		}
	}
	if most == 0 {
		text = r.Redact(text)
	} else {
		text = newReplacer(append(forms, text[len(text)-most:])).Replace(text)
	}
	return mask(text, hidden(text, slices.Concat(all.plain, own.plain), true))
}

// newReplacer replaces the longest form that fits, so that nothing is left of a
// secret which begins with another one.
func newReplacer(forms []string) *strings.Replacer {
	forms = slices.Clone(forms)
	slices.SortStableFunc(forms, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, Mask)
	}
	return strings.NewReplacer(pairs...)
}

// encoded returns a secret as it is, and as a whole in base64 and hexadecimal.
func encoded(s string) []string {
	out := []string{s, hexadecimal.EncodeToString([]byte(s)), strings.ToUpper(hexadecimal.EncodeToString([]byte(s)))}
	for _, e := range [...]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		out = append(out, e.EncodeToString([]byte(s)))
	}
	return out
}

// formsOf returns how secrets may be written.
func formsOf(secrets []string) []string {
	var forms []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		for _, form := range encoded(s) {
			forms = append(forms, spellings(form)...)
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// unreserved characters (RFC 3986, section 2.3) are written alike everywhere.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

var (
	percentEncoded = regexp.MustCompile(`%[0-9A-F]{2}`)
	escapedInGson  = strings.NewReplacer("=", `\u003d`, "'", `\u0027`)
)

// spellings returns a text as JSON, quoted text, URLs and HTML write it.
func spellings(s string) []string {
	if strings.Trim(s, unreserved) == "" {
		return []string{s}
	}
	quoted := strconv.Quote(s)
	out := []string{s, quoted[1 : len(quoted)-1], url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s)}
	if b, err := json.Marshal(s); err == nil {
		inJSON := string(b[1 : len(b)-1])
		out = append(out, inJSON, escapedInGson.Replace(inJSON))
	}
	for _, form := range slices.Clone(out) {
		out = append(out, strings.ReplaceAll(form, "/", `\/`), percentEncoded.ReplaceAllStringFunc(form, strings.ToLower))
	}
	return out
}
