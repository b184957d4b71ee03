// Package tokens reads files that give each key of a destination its token: a JSON
// object from key to token.
//
//	{"alice": "2YotnFZFEjr1zCsicMWpAA", "bob": "tGzv3JOkF0XG5Qx2TlKWIA"}
//
// Its errors name keys and never hold a token.
package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/base/text"
)

// MaxFile bounds a file, in bytes: more than 10,000 tokens of the largest kind.
const MaxFile = 32 << 20

// maxProblems bounds how many of a file's problems are reported.
const maxProblems = 10

// keyPattern matches keys of jobs.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// Problem is one thing that is wrong with a file.
type Problem struct {
	// What is wrong.
	What string
	// Fix says what to do.
	Fix string
}

// Errors are all that is wrong with a file; the error of Read and Parse.
type Errors []Problem

// Error returns the first problems on one line, and how many more there are.
func (p Errors) Error() string {
	const most = maxProblems + 1 // the last one of a Reader says how many there are
	texts := []string{}
	for _, problem := range p[:min(len(p), most)] {
		texts = append(texts, problem.What)
	}
	if more := len(p) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

const fileFix = "check the file and its permissions"

// Read reads a file and says which one it was.
func Read(path string) (map[string]string, fs.FileInfo, error) {
	content, info, err := ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	all, err := Parse(content)
	return all, info, err
}

// ReadFile returns a file's content, of at most MaxFile bytes. The error is
// Errors.
func ReadFile(path string) ([]byte, fs.FileInfo, error) {
	content, info, err := text.ReadFile(path, MaxFile)
	var large *text.TooLargeError
	switch {
	case errors.As(err, &large):
		return nil, nil, Errors{{large.Problem(), fileFix}}
	case err != nil:
		return nil, nil, Errors{{"cannot be read: " + text.WithoutPath(err).Error(), fileFix}}
	}
	return content, info, nil
}

// Parse reads the content of a file. The error is Errors.
func Parse(content []byte) (map[string]string, error) {
	all := map[string]string{}
	r, err := ReadObject(content, shapeFix, func(r *Reader, key string, value json.RawMessage, at int64) {
		name := strconv.Quote(key)
		_, twice := all[key]
		if !keyPattern.MatchString(key) {
			// Not in full: it may be the token in the place of the key.
			r.Fail(at, text.Quote(key, 13)+" is not a valid key", "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit")
			return
		}
		all[key] = "" // known also if its token is wrong
		var token string
		switch {
		case twice:
			r.Fail(at, name+" is there twice", "leave one of them")
		case value[0] != '"' || json.Unmarshal(value, &token) != nil:
			r.Fail(at, "the token of key "+name+" is not a string", "give the token as a string")
		default:
			if problem, fix := Check(token); problem != "" {
				r.Fail(at, "the token of key "+name+" "+problem, fix)
			}
			all[key] = token
		}
	})
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// MaxPool is how many tokens a pool may have.
const MaxPool = 100

// ParsePool is Parse for a pool of tokens of one API.
func ParsePool(content []byte) (map[string]string, error) {
	all, err := Parse(content)
	if err != nil {
		return nil, err
	}
	switch n := len(all); {
	case n == 0:
		return nil, Errors{{"holds no token", "add one"}}
	case n > MaxPool:
		return nil, Errors{{fmt.Sprintf("holds %d tokens; a pool has %d at most", n, MaxPool), "leave the others out"}}
	}
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if other, twice := names[all[name]]; twice {
			return nil, Errors{{fmt.Sprintf("has the same token under %q and %q, whose limits would be counted twice", other, name), "leave one of them"}}
		}
		names[all[name]] = name
	}
	return all, nil
}

const shapeFix = `write a JSON object of keys and tokens: {"alice": "TOKEN", "bob": "TOKEN"}`

// Reader collects what is wrong with a file that is a JSON object.
type Reader struct {
	content  []byte
	problems Errors
	bad      int
}

// ReadObject reads a file and calls field for each field of its object, with the offset of its
// value. The error is Errors if the file cannot be read to its end; shape says what
// to do then. Otherwise [Reader.Err] returns what is wrong.
func ReadObject(content []byte, shape string, field func(r *Reader, name string, value json.RawMessage, at int64)) (*Reader, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // some editors put it there
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, Errors{{"is empty", shape}}
	}
	r := &Reader{content: content}
	dec := json.NewDecoder(bytes.NewReader(content))
	notJSON := func(err error) (*Reader, error) {
		offset := dec.InputOffset()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		}
		// Where, but not what: that may be of a token.
		return nil, Errors{{fmt.Sprintf("is not JSON: look at line %d", r.line(offset)), shape}}
	}
	first, err := dec.Token()
	if err != nil {
		return notJSON(err)
	}
	if first != json.Delim('{') {
		return nil, Errors{{"is not a JSON object", shape}}
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return notJSON(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return notJSON(err)
		}
		field(r, name.(string), value, dec.InputOffset()-int64(len(value)))
	}
	if _, err := dec.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Errors{{"holds more than one JSON object", shape}}
	}
	return r, nil
}

// Fail adds a problem at an offset of the content.
func (r *Reader) Fail(at int64, what, fix string) {
	if r.bad++; r.bad <= maxProblems {
		r.problems = append(r.problems, Problem{fmt.Sprintf("line %d: %s", r.line(at), what), fix})
	}
}

// Add adds a problem of the whole file.
func (r *Reader) Add(what, fix string) { r.problems = append(r.problems, Problem{what, fix}) }

// Err returns the problems as Errors, nil if there is none.
func (r *Reader) Err() error {
	if r.bad > maxProblems {
		r.Add(fmt.Sprintf("has more problems, %d in all", r.bad), "correct these first")
	}
	if len(r.problems) == 0 {
		return nil
	}
	return r.problems
}

func (r *Reader) line(offset int64) int {
	return 1 + bytes.Count(r.content[:max(0, min(offset, int64(len(r.content))))], []byte("\n"))
}

// Check returns what is wrong with a bearer token, and what to do; problem is empty if
// it is in order.
func Check(token string) (problem, fix string) {
	if token == "" {
		return "is empty", "give it a value, or take the key out"
	}
	if strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0 {
		return "", ""
	}
	fix = "give the token alone, on one line"
	if len(token) > 7 && strings.EqualFold(token[:7], "bearer ") {
		fix = "give the token alone, without Bearer before it"
	}
	return "holds a space, a line break or a character that is not ASCII", fix
}
