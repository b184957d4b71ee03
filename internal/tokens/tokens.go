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
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/text"
)

// MaxFile bounds a file, in bytes: more than 10,000 tokens of the largest kind.
const MaxFile = 32 << 20

// maxProblems bounds how many of a file's problems are reported.
const maxProblems = 10

// keyPattern is that of jobs' keys.
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

// Error returns the problems on one line.
func (p Errors) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.What
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
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, unreadable(err)
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, nil, unreadable(err)
	}
	if len(content) > MaxFile {
		return nil, nil, Errors{{fmt.Sprintf("is larger than %d MiB", MaxFile>>20), fileFix}}
	}
	return content, info, nil
}

// unreadable leaves the path out: callers name the file.
func unreadable(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return Errors{{"cannot be read: " + err.Error(), fileFix}}
}

// Parse reads the content of a file. The error is Errors.
func Parse(content []byte) (map[string]string, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // some editors put it there
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, Errors{{"is empty", shapeFix}}
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	first, err := dec.Token()
	if err != nil {
		return nil, notJSON(content, dec, err)
	}
	if first != json.Delim('{') {
		return nil, Errors{{"is not a JSON object", shapeFix}}
	}
	r := reader{content: content, all: map[string]string{}}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, notJSON(content, dec, err)
		}
		at := dec.InputOffset()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, notJSON(content, dec, err)
		}
		r.add(key.(string), value, at)
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(content, dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Errors{{"holds more than one JSON object", shapeFix}}
	}
	if r.bad > maxProblems {
		r.problems = append(r.problems, Problem{fmt.Sprintf("%d more tokens or keys are wrong", r.bad-maxProblems), "correct these first"})
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return r.all, nil
}

const shapeFix = `write a JSON object of keys and tokens: {"alice": "TOKEN", "bob": "TOKEN"}`

// reader collects tokens and what is wrong with them.
type reader struct {
	content  []byte
	all      map[string]string
	problems Errors
	bad      int
}

// add takes the token of a key that ends at an offset of the content.
func (r *reader) add(key string, value json.RawMessage, at int64) {
	if !keyPattern.MatchString(key) {
		// Not in full: it may be the token in the place of the key.
		r.fail(at, text.Quote(key, 13)+" is not a valid key", "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit")
		return
	}
	if _, twice := r.all[key]; twice {
		r.fail(at, strconv.Quote(key)+" is there twice", "leave one of them")
		return
	}
	r.all[key] = "" // known also if its token is wrong
	var token string
	if value[0] != '"' || json.Unmarshal(value, &token) != nil {
		r.fail(at, "the token of key "+strconv.Quote(key)+" is not a string", "give the token as a string")
		return
	}
	if problem, fix := Check(token); problem != "" {
		r.fail(at, "the token of key "+strconv.Quote(key)+" "+problem, fix)
		return
	}
	r.all[key] = token
}

func (r *reader) fail(at int64, what, fix string) {
	if r.bad++; r.bad <= maxProblems {
		r.problems = append(r.problems, Problem{fmt.Sprintf("line %d: %s", lineOf(r.content, at), what), fix})
	}
}

// Check says what is wrong with a bearer token, and what to do; problem is empty if
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

// notJSON says where, but not what stands there: that may be of a token.
func notJSON(content []byte, dec *json.Decoder, err error) error {
	offset := dec.InputOffset()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	return Errors{{fmt.Sprintf("is not JSON: look at line %d", lineOf(content, offset)), shapeFix}}
}

func lineOf(content []byte, offset int64) int {
	return 1 + bytes.Count(content[:max(0, min(offset, int64(len(content))))], []byte("\n"))
}
