// Package secret knows what of the configuration is secret, and takes it out of texts:
// answers of APIs, errors, log lines, the printed configuration.
//
// Secret are
//   - tokens, keys and passwords from 4 bytes on, and user:password, but not a user's name;
//   - the values of configured headers, but for those whose meaning is public (Accept,
//     Content-Type, User-Agent …), and of the parameters of configured URLs, from 6 bytes
//     on, or from 4 if the name is a credential's;
//   - segments of the paths of configured URLs from 16 bytes on that are not plain words.
package secret

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Mask stands wherever a secret would otherwise be.
const Mask = "[redacted]"

// Shortest lengths in bytes of what is secret. Shorter values stand in any text.
const (
	shortestValue   = 6  // of a header or a parameter
	shortestNamed   = 4  // of a value with the name of a credential
	shortestSegment = 16 // of a path

	// ShortestPassword is the shortest password in user:password.
	ShortestPassword = shortestNamed
)

var (
	// attribute matches names under which programs log credentials.
	attribute = regexp.MustCompile(`(?i)token|secret|passw|authorization|credential|api_?key|cookie`)
	// parameter matches names of headers and parameters that hold credentials. Among names
	// of attributes key and session have other meanings.
	parameter = regexp.MustCompile(`(?i)auth|token|secret|pass|credential|key|cookie|session|sig`)
)

// publicHeaders never hold credentials, by their definition in RFC 9110, in RFC 9111, or by
// their API.
var publicHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control",
	"Content-Encoding", "Content-Language", "Content-Type", "User-Agent",
	"Notion-Version", "X-Github-Api-Version",
}

// Attribute reports whether an attribute of this name holds a credential.
func Attribute(name string) bool { return attribute.MatchString(name) }

// value reports whether the value of a header or parameter is secret.
func value(name, text string) bool {
	return len(text) >= shortestValue || len(text) >= shortestNamed && parameter.MatchString(name)
}

// OfClient returns what is secret of a client of OAuth 2.0. In the header Authorization the id
// stands before the secret, both escaped (RFC 6749, section 2.3.1), or as they are.
func OfClient(id, clientSecret string) []string {
	if len(clientSecret) < ShortestPassword {
		return nil
	}
	return []string{clientSecret, id + ":" + clientSecret, url.QueryEscape(id) + ":" + url.QueryEscape(clientSecret)}
}

// OfHeader returns what is secret of configured headers: values, what follows the scheme
// of one (Bearer, Basic with its user:password), and the values of cookies.
func OfHeader(h http.Header) []string {
	var out []string
	for name, values := range h {
		if slices.Contains(publicHeaders, http.CanonicalHeaderKey(name)) {
			continue
		}
		for _, text := range values {
			parts := []string{text}
			if scheme, rest, ok := strings.Cut(text, " "); ok && !strings.ContainsAny(scheme, ";=,") {
				parts = append(parts, strings.TrimSpace(rest))
				if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil && strings.EqualFold(scheme, "Basic") {
					_, password, _ := strings.Cut(string(plain), ":")
					parts = append(parts, string(plain), password)
				}
			}
			if strings.EqualFold(name, "Cookie") {
				cookies, _ := http.ParseCookie(text)
				for _, c := range cookies {
					parts = append(parts, c.Value)
				}
			}
			for _, part := range parts {
				if value(name, part) {
					out = append(out, part)
				}
			}
		}
	}
	return out
}

// OfURL returns what is secret of a configured URL: its password, or what stands for a user
// without one, values of parameters, and segments of the path that are not plain words.
func OfURL(u *url.URL) []string {
	var out []string
	password, _ := u.User.Password()
	switch user := u.User.Username(); {
	case password != "":
		// As Basic authentication sends it in base64. The user's name alone is not secret.
		out = append(out, user+":"+password)
		if len(password) >= shortestNamed {
			out = append(out, password)
		}
	case len(user) >= shortestNamed: // a token in the place of a name
		out = append(out, user)
	}
	for name, values := range u.Query() {
		for _, text := range values {
			if value(name, text) {
				out = append(out, text)
			}
		}
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if text, err := url.PathUnescape(segment); err == nil && opaque(text) {
			out = append(out, text, segment)
		}
	}
	return out
}

// plainWord is a word or several (postMessage), or a number or version.
var plainWord = regexp.MustCompile(`^(?:[A-Z]?[a-z]{1,14}(?:[A-Z][a-z]{2,14})*|[A-Z]{1,15}|v?[0-9]{1,4})$`)

// opaque reports whether a segment of a path is long and not plain words.
func opaque(segment string) bool {
	if len(segment) < shortestSegment {
		return false
	}
	for word := range strings.FieldsFuncSeq(segment, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if !plainWord.MatchString(word) {
			return true
		}
	}
	return false
}

// MaskHeader returns the value of a configured header as it may be printed.
func MaskHeader(name, text string) string {
	if len(OfHeader(http.Header{name: {text}})) > 0 || parameter.MatchString(name) {
		return Mask
	}
	return text
}

// MaskURL returns a configured URL as it may be printed: what is secret of it is masked,
// and all of it if it is not a URL.
func MaskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return Mask
	}
	var b strings.Builder
	if u.Scheme != "" {
		b.WriteString(u.Scheme + "://")
	}
	if u.User != nil {
		b.WriteString(Mask + "@")
	}
	b.WriteString(u.Host)
	for i, segment := range strings.Split(u.EscapedPath(), "/") {
		if text, err := url.PathUnescape(segment); err != nil || opaque(text) {
			segment = Mask
		}
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(segment)
	}
	separator := byte('?')
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		name, text, hasValue := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(text)
		if plainName, errName := url.QueryUnescape(name); hasValue &&
			(err != nil || errName != nil || value(plainName, plain) || parameter.MatchString(plainName)) {
			pair = name + "=" + Mask
		}
		b.WriteByte(separator)
		b.WriteString(pair)
		separator = '&'
	}
	return b.String()
}
