package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/internal/tokens"
)

// MaxTokens is how many tokens a file may hold: each is looked at for each request.
const MaxTokens = 1000

// maxProblems bounds how many of a file's problems are reported.
const maxProblems = 10

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
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // some editors put it there
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, tokens.Errors{{What: "is empty", Fix: shapeFix}}
	}
	p := parser{content: content, dec: json.NewDecoder(bytes.NewReader(content)), seen: map[hash]string{}}
	if err := p.file(); err != nil {
		return nil, err
	}
	if p.bad > maxProblems {
		p.problems = append(p.problems, tokens.Problem{What: fmt.Sprintf("%d more things are wrong", p.bad-maxProblems), Fix: "correct these first"})
	}
	if len(p.problems) > 0 {
		return nil, p.problems
	}
	return p.entries, nil
}

// parser collects entries and what is wrong with them.
type parser struct {
	content  []byte
	dec      *json.Decoder
	entries  []Entry
	seen     map[hash]string
	problems tokens.Errors
	bad      int
}

// file reads all. It returns an error where nothing more can be read.
func (p *parser) file() error {
	first, err := p.dec.Token()
	if err != nil {
		return p.notJSON(err)
	}
	if first != json.Delim('{') {
		return tokens.Errors{{What: "is not a JSON object", Fix: shapeFix}}
	}
	found := false
	for p.dec.More() {
		key, err := p.dec.Token()
		if err != nil {
			return p.notJSON(err)
		}
		at := p.dec.InputOffset()
		switch {
		case key != "tokens":
			p.fail(at, "unknown field "+quoted(key.(string)), shapeFix)
			err = p.dec.Decode(new(json.RawMessage))
		case found:
			p.fail(at, `"tokens" is there twice`, "put all entries into one list")
			err = p.dec.Decode(new(json.RawMessage))
		default:
			found = true
			err = p.list()
		}
		if err != nil {
			return p.notJSON(err)
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return p.notJSON(err)
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return tokens.Errors{{What: "holds more than one JSON object", Fix: shapeFix}}
	}
	if !found {
		return append(p.problems, tokens.Problem{What: `has no list "tokens"`, Fix: shapeFix})
	}
	return nil
}

// list reads the entries.
func (p *parser) list() error {
	var raw json.RawMessage
	if err := p.dec.Decode(&raw); err != nil {
		return err //nolint:wrapcheck // the caller makes a problem of it
	}
	end := p.dec.InputOffset()
	begin := end - int64(len(raw))
	if raw[0] != '[' {
		p.fail(begin, `"tokens" is not a list`, shapeFix)
		return nil
	}
	inner := json.NewDecoder(bytes.NewReader(raw))
	_, _ = inner.Token() // the bracket that was seen
	for n := 1; inner.More(); n++ {
		var entry json.RawMessage
		if err := inner.Decode(&entry); err != nil {
			return err //nolint:wrapcheck // it cannot be: raw is JSON
		}
		at := begin + inner.InputOffset() - int64(len(entry)) // where it begins
		if n > MaxTokens {
			p.fail(at, fmt.Sprintf("there are more than %d tokens", MaxTokens), "remove those that are not used")
			return nil
		}
		p.entry(n, entry, at)
	}
	return nil
}

// entryFix lists the fields of an entry.
const entryFix = "an entry has name, scopes, hash and perhaps created and expires_at"

// entry reads the n-th entry, which begins at an offset of the content.
func (p *parser) entry(n int, raw json.RawMessage, at int64) {
	var fields map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		p.fail(at, fmt.Sprintf("token %d is not an object", n), entryFix)
		return
	}
	which := fmt.Sprintf("token %d", n)
	fail := func(what, fix string) { p.fail(at, which+" "+what, fix) }

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

func (p *parser) fail(at int64, what, fix string) {
	if p.bad++; p.bad <= maxProblems {
		p.problems = append(p.problems, tokens.Problem{What: fmt.Sprintf("line %d: %s", p.line(at), what), Fix: fix})
	}
}

// notJSON says where, but not what stands there: that may be of a token.
func (p *parser) notJSON(err error) error {
	offset := p.dec.InputOffset()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	return tokens.Errors{{What: "is not JSON: look at line " + strconv.Itoa(p.line(offset)), Fix: shapeFix}}
}

func (p *parser) line(offset int64) int {
	return 1 + bytes.Count(p.content[:max(0, min(offset, int64(len(p.content))))], []byte("\n"))
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
