package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/internal/tokens"
)

// MaxTokens is how many tokens a file may hold: each is looked at for each request.
const MaxTokens = 1000

const shapeFix = `write {"tokens": […]} with entries as "tidegate token new" prints them`

// ReadFile reads a file of tokens. The error is [tokens.Errors], all that is wrong with
// it; it never holds a token or a hash.
func ReadFile(path string) ([]Entry, fs.FileInfo, error) {
	content, info, err := tokens.ReadFile(path)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it is tokens.Errors
	}
	entries, err := ParseFile(content)
	return entries, info, err
}

// ParseFile reads the content of a file of tokens. The error is as that of [ReadFile].
func ParseFile(content []byte) ([]Entry, error) {
	p := parser{seen: map[hash]string{}}
	found := false
	r, err := tokens.ReadObject(content, shapeFix, func(r *tokens.Reader, name string, value json.RawMessage, at int64) {
		p.Reader = r
		switch {
		case name != "tokens":
			p.Fail(at, "unknown field "+quoted(name), shapeFix)
		case found:
			p.Fail(at, `"tokens" is there twice`, "put all entries into one list")
		default:
			found = true
			p.list(value, at)
		}
	})
	if err == nil {
		if !found {
			r.Add(`has no list "tokens"`, shapeFix)
		}
		err = r.Err()
	}
	if err != nil {
		return nil, err
	}
	return p.entries, nil
}

// parser collects entries and what is wrong with them.
type parser struct {
	*tokens.Reader
	entries []Entry
	seen    map[hash]string
}

// list reads the entries of a list that begins at an offset of the content.
func (p *parser) list(raw json.RawMessage, begin int64) {
	if raw[0] != '[' {
		p.Fail(begin, `"tokens" is not a list`, shapeFix)
		return
	}
	inner := json.NewDecoder(bytes.NewReader(raw))
	_, _ = inner.Token() // the bracket that was seen
	for n := 1; inner.More(); n++ {
		var entry json.RawMessage
		_ = inner.Decode(&entry)                              // raw is JSON
		at := begin + inner.InputOffset() - int64(len(entry)) // where it begins
		if n > MaxTokens {
			p.Fail(at, fmt.Sprintf("there are more than %d tokens", MaxTokens), "remove unused ones")
			return
		}
		p.entry(n, entry, at)
	}
}

// entryFix lists the fields of an entry.
const entryFix = "an entry has name, scopes, hash and perhaps created and expires_at"

// entry reads the n-th entry, which begins at an offset of the content.
func (p *parser) entry(n int, raw json.RawMessage, at int64) {
	var fields map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		p.Fail(at, fmt.Sprintf("token %d is not an object", n), entryFix)
		return
	}
	which := fmt.Sprintf("token %d", n)
	fail := func(what, fix string) { p.Fail(at, which+" "+what, fix) }

	var e Entry
	switch {
	case json.Unmarshal(fields["name"], &e.Name) != nil || e.Name == "":
		fail("has no name", "give it one, so that the log can name the caller")
	case !namePattern.MatchString(e.Name):
		fail("has the name "+quoted(e.Name)+", which cannot be", nameFix)
	default:
		which += " (" + e.Name + ")"
	}
	e.Scopes = p.scopes(fields["scopes"], fail)
	e.Hash = p.hash(which, fields["hash"], fail)
	readTime := func(name string, to **time.Time) {
		if value, ok := fields[name]; ok && json.Unmarshal(value, to) != nil {
			fail("has a wrong "+name, "write a time such as 2026-12-31T00:00:00Z, or leave it out")
		}
	}
	readTime("created", &e.Created)
	readTime("expires_at", &e.ExpiresAt)
	for _, name := range unknown(fields) {
		fail("has an unknown field "+quoted(name), entryFix)
	}
	p.entries = append(p.entries, e)
}

func (p *parser) scopes(raw json.RawMessage, fail func(what, fix string)) []Scope {
	fix := "the scopes are " + joined(Scopes)
	var found []Scope
	if json.Unmarshal(raw, &found) != nil || len(found) == 0 {
		fail("has no list of scopes", fix)
		return nil
	}
	for _, scope := range found {
		if !slices.Contains(Scopes, scope) {
			fail("has the scope "+quoted(string(scope))+", which does not exist", fix)
		}
	}
	return found
}

func (p *parser) hash(which string, raw json.RawMessage, fail func(what, fix string)) string {
	const fix = `make an entry with "tidegate token new"`
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" {
		fail("has no hash", fix)
		return ""
	}
	h, ok := parseHash(text)
	switch before, twice := p.seen[h]; {
	case !ok: // and is not shown: it may be the token itself
		fail("has a hash that is not sha256: and 64 hex digits", fix)
	case twice:
		fail("has the hash of "+before, "leave one of them")
	default:
		p.seen[h] = which
	}
	return h.String() // in lower case
}

func unknown(fields map[string]json.RawMessage) []string {
	var out []string
	for name := range fields {
		if !slices.Contains([]string{"name", "scopes", "hash", "created", "expires_at"}, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func quoted(s string) string { return text.Quote(s, shownOfEntry) }

// FormatFile is the content of a file with the entries.
func FormatFile(entries []Entry) ([]byte, error) {
	if entries == nil {
		entries = []Entry{}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string][]Entry{"tokens": entries}); err != nil {
		return nil, fmt.Errorf("access: format the file of tokens: %w", err)
	}
	return []byte(b.String()), nil
}
