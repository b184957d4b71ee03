package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/tokens"
)

// MaxTokens is how many tokens a file may hold: each is compared for each request.
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

// ParseFile reads the content of a file of tokens. Errors are as from [ReadFile].
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
const entryFix = "an entry has name, scopes, hash and perhaps created, expires_at, destinations, keys, max_backlog and rate"

const boundsFix = `write destinations and keys as lists of globs, max_backlog as a number and rate as "100/1s", or leave them out`

// entry reads the n-th entry, which begins at an offset of the content.
func (p *parser) entry(n int, raw json.RawMessage, at int64) {
	which := fmt.Sprintf("token %d", n)
	fail := func(what, fix string) { p.Fail(at, which+" "+what, fix) }
	var fields map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		fail("is not an object", entryFix)
		return
	}
	// read reads a field, which is then known; false if it is missing or of another kind.
	read := func(name string, to any) bool {
		value, ok := fields[name]
		delete(fields, name)
		return ok && json.Unmarshal(value, to) == nil
	}
	var e Entry
	switch {
	case !read("name", &e.Name) || e.Name == "":
		fail("has no name", "give it one, so that the log can name the caller")
	case !namePattern.MatchString(e.Name):
		fail("has the name "+quoted(e.Name)+", which cannot be", nameFix)
	default:
		which += " (" + e.Name + ")"
	}
	scopeFix := "the scopes are " + joined(Scopes)
	if !read("scopes", &e.Scopes) || len(e.Scopes) == 0 {
		fail("has no list of scopes", scopeFix)
	}
	for _, scope := range e.Scopes {
		if !slices.Contains(Scopes, scope) {
			fail("has the scope "+quoted(string(scope))+", which does not exist", scopeFix)
		}
	}
	const hashFix = `make an entry with "tidegate token new"`
	there := read("hash", &e.Hash) && e.Hash != ""
	h, ok := parseHash(e.Hash)
	before, twice := p.seen[h]
	switch {
	case !there:
		fail("has no hash", hashFix)
	case !ok: // and is not shown: it may be the token itself
		fail("has a hash that is not sha256: and 64 hex digits", hashFix)
	case twice:
		fail("has the hash of "+before, "leave one of them")
	default:
		p.seen[h] = which
	}
	e.Hash = h.String() // in lower case
	for _, t := range []struct {
		name string
		to   **time.Time
	}{{"created", &e.Created}, {"expires_at", &e.ExpiresAt}} {
		if _, ok := fields[t.name]; ok && !read(t.name, t.to) {
			fail("has a wrong "+t.name, "write a time such as 2026-12-31T00:00:00Z, or leave it out")
		}
	}
	// A bound that is not understood must not be taken for none.
	for _, t := range []struct {
		name string
		to   any
		none func() bool
	}{
		{"destinations", &e.Destinations, func() bool { return len(e.Destinations) == 0 }},
		{"keys", &e.Keys, func() bool { return len(e.Keys) == 0 }},
		{"max_backlog", &e.MaxBacklog, func() bool { return e.MaxBacklog == 0 }},
		{"rate", &e.Rate, func() bool { return e.Rate == "" }},
	} {
		if _, ok := fields[t.name]; ok && (!read(t.name, t.to) || t.none()) {
			fail("has a wrong "+t.name, boundsFix)
		}
	}
	if err := e.Check(e.Name); err != nil {
		fail("has wrong bounds: "+err.Error(), boundsFix)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fail("has an unknown field "+quoted(name), entryFix)
	}
	p.entries = append(p.entries, e)
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
