// Package keyurl parses URLs that hold {key}, the place of a job's key.
package keyurl

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Place is where the key goes.
const Place = "{key}"

// word is in the place of the key where net/url parses a URL: a host cannot have a brace.
const word = "xtidegatekeyx"

// label matches a key that can be a part of a host name.
var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)

// maxLabel is the longest label of a host name, in bytes (RFC 1035, section 2.3.4).
const maxLabel = 63

// URL is a URL that may hold the place of a key.
type URL struct {
	// u has word in the place of the key.
	u     *url.URL
	holds bool
}

// Parse parses a URL. A key can be in its host, but not at its end, in its path and in its query.
// The error does not contain the URL.
func Parse(raw string) (*URL, error) {
	u, err := url.Parse(Hide(raw))
	if err != nil {
		return nil, errors.New("cannot be parsed")
	}
	out := &URL{u, strings.Contains(raw, Place)}
	host := u.Hostname()
	if strings.Contains(u.User.String()+u.Fragment, word) || strings.Contains(host[strings.LastIndexByte(host, '.')+1:], word) {
		return nil, errors.New("may hold " + Place + " in its host, but not at the end, in its path or in its query, and nowhere else")
	}
	return out, nil
}

// Hide puts a plain word in the place of the key, so that net/url can parse the URL.
func Hide(raw string) string { return strings.ReplaceAll(raw, Place, word) }

// Show is the reverse of Hide.
func Show(hidden string) string { return strings.ReplaceAll(hidden, word, Place) }

// Pattern compiles a regular expression that keys must match as a whole.
func Pattern(expr string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(expr); err != nil { // by itself: (?:a)|(b) must not become valid
		return nil, fmt.Errorf("is not a regular expression: %w", err)
	}
	return regexp.MustCompile(`\A(?:` + expr + `)\z`), nil
}

// HoldsKey reports whether the URL holds the place of a key.
func (u *URL) HoldsKey() bool { return u.holds }

// HostHoldsKey reports whether the host depends on the key.
func (u *URL) HostHoldsKey() bool { return u.holds && strings.Contains(u.u.Host, word) }

// Fixed returns the URL without the place of the key.
func (u *URL) Fixed() *url.URL {
	if !u.holds {
		return u.u
	}
	fixed, err := url.Parse(strings.ReplaceAll(u.u.String(), word, ""))
	if err != nil {
		return u.u
	}
	return fixed
}

// With returns the URL with the key in its place, which the key cannot leave; it must not be
// changed. The key is not empty.
func (u *URL) With(key string) (*url.URL, error) {
	if !u.holds {
		return u.u, nil
	}
	out := *u.u
	if strings.Contains(out.Host, word) {
		if !label.MatchString(key) {
			return nil, fmt.Errorf("key: %q cannot be part of a host name; it may have letters, digits and hyphens, with no hyphen at its ends", key)
		}
		out.Host = strings.ReplaceAll(out.Host, word, key)
		for l := range strings.SplitSeq(out.Hostname(), ".") {
			if len(l) > maxLabel {
				return nil, fmt.Errorf("key: %q is too long for a part of a host name, which has at most %d characters", key, maxLabel)
			}
		}
	}
	out.RawPath = strings.ReplaceAll(out.EscapedPath(), word, url.PathEscape(key))
	path, err := url.PathUnescape(out.RawPath)
	if err != nil {
		return nil, errors.New("key: cannot be part of the destination's URL")
	}
	out.Path = path
	out.RawQuery = strings.ReplaceAll(out.RawQuery, word, url.QueryEscape(key))
	return &out, nil
}
