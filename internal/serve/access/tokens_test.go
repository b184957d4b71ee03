package access_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

const (
	shape     = `write {"tokens": […]} with entries as "tidegate token new" prints them`
	make1     = `make an entry with "tidegate token new"`
	fields    = "an entry has name, scopes, hash and perhaps created, expires_at, destinations, keys, max_backlog and rate"
	boundsFix = `write destinations and keys as lists of globs, max_backlog as a number and rate as "100/1s", or leave them out`
	scopeFix  = "the scopes are enqueue, read, payloads, operate"
	nameFix   = "1 to 63 letters, digits and . _ : @ -, starting with a letter or digit"
	timeFix   = "write a time such as 2026-12-31T00:00:00Z, or leave it out"
)

// hashed is a hash of the digit.
func hashed(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

func TestParseFile(t *testing.T) {
	t.Parallel()
	made, ends := noon, noon.Add(time.Hour)
	for _, row := range []struct {
		name, content string
		want          []access.Entry
		problems      tokens.Errors
	}{
		{
			name:    "all there can be",
			content: "\ufeff" + `{"tokens":[{"name":"shop","scopes":["enqueue","read"],"hash":"sha256:` + strings.Repeat("A", 64) + `","created":"2026-11-21T12:00:00Z","expires_at":"2026-11-21T13:00:00Z"},{"name":"shop","scopes":["operate"],"hash":"` + hashed("2") + `","expires_at":null}]}`,
			want: []access.Entry{
				{Name: "shop", Scopes: []access.Scope{access.ScopeEnqueue, access.ScopeRead}, Hash: hashed("a"), Created: &made, ExpiresAt: &ends},
				{Name: "shop", Scopes: []access.Scope{access.ScopeOperate}, Hash: hashed("2")},
			},
		},
		{name: "no token", content: `{"tokens":[]}`},
		{name: "nothing", content: " \n", problems: tokens.Errors{{What: "is empty", Fix: shape}}},
		{name: "a list", content: "[]", problems: tokens.Errors{{What: "is not a JSON object", Fix: shape}}},
		{name: "another object", content: "{}", problems: tokens.Errors{{What: `has no list "tokens"`, Fix: shape}}},
		{name: "no JSON", content: "{\"tokens\":[\n{\"name\":tg_secret}]}", problems: tokens.Errors{{What: "is not JSON: look at line 2", Fix: shape}}},
		{name: "cut off", content: "{\"tokens\":[\n", problems: tokens.Errors{{What: "is not JSON: look at line 1", Fix: shape}}},
		{name: "two objects", content: `{"tokens":[]}{}`, problems: tokens.Errors{{What: "holds more than one JSON object", Fix: shape}}},
		{name: "no list", content: `{"tokens":{"tg_secret":1}}`, problems: tokens.Errors{{What: `line 1: "tokens" is not a list`, Fix: shape}}},
		{name: "two lists", content: "{\"tokens\":[],\n\"tokens\":[]}", problems: tokens.Errors{{What: `line 2: "tokens" is there twice`, Fix: "put all entries into one list"}}},
		{
			name: "everything wrong at once, and no secret shown",
			content: `{"token":{"a":1},
"tokens":[
 {"name":"my shop with a long name","scopes":["enqueue","admin"],"hash":"tg_secretsecretsecret"},
 {"scopes":"read","hash":7,"created":"yesterday","expires_at":12,"tg_secretsecretsecret":true},
 "tg_secret",
 {"name":"a","scopes":["read"],"hash":"` + hashed("1") + `"},
 {"name":"b","scopes":["read"],"hash":"` + hashed("1") + `"}
]}`,
			problems: tokens.Errors{
				{What: `line 1: unknown field "token"`, Fix: shape},
				{What: `line 3: token 1 has the name "my shop with…", which cannot be`, Fix: nameFix},
				{What: `line 3: token 1 has the scope "admin", which does not exist`, Fix: scopeFix},
				{What: "line 3: token 1 has a hash that is not sha256: and 64 hex digits", Fix: make1},
				{What: "line 4: token 2 has no name", Fix: "give it one, so that the log can name the caller"},
				{What: "line 4: token 2 has no list of scopes", Fix: scopeFix},
				{What: "line 4: token 2 has no hash", Fix: make1},
				{What: "line 4: token 2 has a wrong created", Fix: timeFix},
				{What: "line 4: token 2 has a wrong expires_at", Fix: timeFix},
				{What: `line 4: token 2 has an unknown field "tg_secretsec…"`, Fix: fields},
				{What: "has more problems, 12 in all", Fix: "correct these first"},
			},
		},
		{
			name:    "the same token twice",
			content: "{\"tokens\":[\n{\"name\":\"a\",\"scopes\":[\"read\"],\"hash\":\"" + hashed("b") + "\"},\n{\"name\":\"b\",\"scopes\":[\"operate\"],\"hash\":\"" + hashed("B") + "\"},\n7]}",
			problems: tokens.Errors{
				{What: "line 3: token 2 (b) has the hash of token 1 (a)", Fix: "leave one of them"},
				{What: "line 4: token 3 is not an object", Fix: fields},
			},
		},
		{
			name: "bounds that would be none",
			content: `{"tokens":[{"name":"a:b","scopes":["read"],"hash":"` + hashed("1") + `","destinations":[],"keys":null,"max_backlog":0,"rate":""},
{"name":"a:b","scopes":["read"],"hash":"` + hashed("2") + `","destinations":["sh[op"]},
{"name":"a:b","scopes":["read"],"hash":"` + hashed("3") + `","keys":["*"]}]}`,
			problems: tokens.Errors{
				{What: "line 1: token 1 (a:b) has a wrong destinations", Fix: boundsFix},
				{What: "line 1: token 1 (a:b) has a wrong keys", Fix: boundsFix},
				{What: "line 1: token 1 (a:b) has a wrong max_backlog", Fix: boundsFix},
				{What: "line 1: token 1 (a:b) has a wrong rate", Fix: boundsFix},
				{What: `line 2: token 2 (a:b) has wrong bounds: "sh[op" matches no destinations: write names with * and ?, such as shop*`, Fix: boundsFix},
				{What: "line 3: token 3 (a:b) has wrong bounds: the name of a token with destinations or keys cannot have a colon, which ends it in ids of jobs", Fix: boundsFix},
			},
		},
		{
			name:     "too many",
			content:  `{"tokens":[` + manyEntries(1001) + `]}`,
			problems: tokens.Errors{{What: "line 1001: there are more than 1000 tokens", Fix: "remove unused ones"}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := access.ParseFile([]byte(row.content))
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("entries (-want +got)\n%s", diff)
			}
			problems, _ := errors.AsType[tokens.Errors](err)
			if diff := cmp.Diff(row.problems, problems); diff != "" || (err == nil) != (row.problems == nil) {
				t.Errorf("problems (-want +got)\n%s", diff)
			}
		})
	}
}

func manyEntries(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name":"a","scopes":["read"],"hash":"sha256:%064x"}`, i)
	}
	return strings.Join(all, ",\n")
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	text, entry := token(t, "shop", access.ScopeEnqueue, access.ScopeRead)
	other, _ := token(t, "shop", access.ScopeEnqueue)
	if !regexp.MustCompile(`^tg_[A-Za-z0-9_-]{43}$`).MatchString(text) || text == other {
		t.Errorf("tokens %q and %q", text, other)
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(entry.Hash) || entry.ID() != entry.Hash[7:19] {
		t.Errorf("hash %q, id %q", entry.Hash, entry.ID())
	}
	made := noon
	want := access.Entry{Name: "shop", Scopes: []access.Scope{access.ScopeEnqueue, access.ScopeRead}, Hash: entry.Hash, Created: &made}
	if diff := cmp.Diff(want, entry); diff != "" {
		t.Errorf("entry (-want +got)\n%s", diff)
	}
	for _, row := range []struct {
		name   string
		scopes []access.Scope
		want   string
	}{
		{"", []access.Scope{access.ScopeRead}, `"" cannot be the name of a token: ` + nameFix},
		{strings.Repeat("x", 64), []access.Scope{access.ScopeRead}, `"xxxxxxxxxxxx…" cannot be the name of a token: ` + nameFix},
		{"shop", nil, "a token needs a scope; there are enqueue, read, payloads, operate"},
	} {
		if _, _, err := access.NewToken(row.name, row.scopes, noon); err == nil || err.Error() != row.want {
			t.Errorf("NewToken(%q): %v, want %s", row.name, err, row.want)
		}
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		has string
		can string // of enqueue, read, payloads, operate
	}{
		{"enqueue", "enqueue"},
		{"read", "read"},
		{"payloads", "read payloads"},
		{"operate", "read payloads operate"},
		{"enqueue, read,enqueue", "enqueue read"},
		{"enqueue,operate", "enqueue read payloads operate"},
	} {
		scopes, err := access.ParseScopes(row.has)
		if err != nil {
			t.Fatal(err)
		}
		var can []string
		for _, scope := range access.Scopes {
			if (access.Identity{Name: "a", Scopes: scopes}).Can(scope) {
				can = append(can, string(scope))
			}
		}
		if got := strings.Join(can, " "); got != row.can {
			t.Errorf("%s allows %s, want %s", row.has, got, row.can)
		}
	}
	for _, scope := range access.Scopes {
		if !access.Local.Can(scope) || (access.Identity{}).Can(scope) {
			t.Errorf("%s: local %t, nobody %t", scope, access.Local.Can(scope), (access.Identity{}).Can(scope))
		}
	}
	for text, want := range map[string]string{
		"":           `"" is not a scope; there are enqueue, read, payloads, operate`,
		"read,admin": `"admin" is not a scope; there are enqueue, read, payloads, operate`,
	} {
		if _, err := access.ParseScopes(text); err == nil || err.Error() != want {
			t.Errorf("ParseScopes(%q): %v, want %s", text, err, want)
		}
	}
}

// A token is good if its hash is in the file, wherever it stands there, until it
// expires.
func TestLookup(t *testing.T) {
	t.Parallel()
	now := newClock()
	first, a := token(t, "first", access.ScopeRead)
	middle, b := token(t, "middle", access.ScopeEnqueue)
	last, c := token(t, "last", access.ScopeOperate)
	ends := noon.Add(time.Hour)
	b.ExpiresAt = &ends
	all, err := access.OpenTokens(newFile(t, a, b, c).path, access.Options{Logger: new(logged).logger(), Now: now.now})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		first: "first", middle: "middle", last: "last",
		"": "", "tg_": "", first + "x": "", first[1:]: "", a.Hash: "", strings.Repeat("x", 1<<20): "",
	} {
		id, ok := all.Lookup(text)
		if id.Name != want || ok != (want != "") {
			t.Errorf("Lookup(%.20q): %q, %t, want %q", text, id.Name, ok, want)
		}
	}
	id, _ := all.Lookup(middle)
	if !id.Valid() || id.By() != "token:middle" || !id.Can(access.ScopeEnqueue) || id.Can(access.ScopeRead) {
		t.Errorf("middle: valid %t, by %q, scopes %v", id.Valid(), id.By(), id.Scopes)
	}
	now.add(time.Hour - time.Nanosecond)
	if _, ok := all.Lookup(middle); !ok || !id.Valid() {
		t.Errorf("a token ended before its time")
	}
	now.add(time.Nanosecond)
	if _, ok := all.Lookup(middle); ok || id.Valid() {
		t.Errorf("a token outlived its time")
	}
	if _, ok := all.Lookup(last); !ok {
		t.Errorf("another one ended with it")
	}
	if access.Local.By() != "local" || !access.Local.Valid() || (access.Identity{}).Valid() {
		t.Errorf("local: by %q, valid %t; nobody: valid %t", access.Local.By(), access.Local.Valid(), access.Identity{}.Valid())
	}
}

// The comparison looks at all entries, each in constant time, whatever it has found.
func TestLookupComparesAll(t *testing.T) {
	t.Parallel()
	source, err := parser.ParseFile(gotoken.NewFileSet(), "tokens.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	loops, compared := 0, 0
	for _, d := range source.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "find" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			loops++
			ast.Inspect(loop.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.IfStmt, *ast.SwitchStmt, *ast.BranchStmt, *ast.ReturnStmt, *ast.BinaryExpr:
					t.Errorf("the loop has a %T", n)
				case *ast.SelectorExpr:
					if n.Sel.Name == "ConstantTimeCompare" {
						compared++
					}
				}
				return true
			})
			return false
		})
	}
	if loops != 1 || compared != 1 {
		t.Errorf("%d loops with %d comparisons, want 1 with 1", loops, compared)
	}
}

// opened is a file of tokens that is watched.
type opened struct {
	*file
	*access.Tokens
	log *logged
}

func open(t *testing.T, entries ...access.Entry) opened {
	t.Helper()
	f, log := newFile(t, entries...), &logged{}
	all, err := access.OpenTokens(f.path, access.Options{Logger: log.logger(), CheckEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return opened{f, all, log}
}

// until waits until a token is good, or is not any more.
func (o opened) until(token string, good bool) {
	o.t.Helper()
	redistest.Eventually(o.t, fmt.Sprintf("the token is good: %t", good), func() bool {
		_, ok := o.Lookup(token)
		return ok == good
	})
}

// Tokens are replaced while requests come: both are good for a time, then the new one.
func TestRotation(t *testing.T) {
	t.Parallel()
	old, a := token(t, "shop", access.ScopeEnqueue)
	next, b := token(t, "shop", access.ScopeEnqueue)
	o := open(t, a)
	id, _ := o.Lookup(old)
	o.put(a, b)
	o.until(next, true)
	o.until(old, true)
	o.put(b)
	o.until(old, false)
	o.until(next, true)
	if id.Valid() {
		t.Errorf("an identity outlived its token")
	}

	// What cannot be used changes nothing, and is told once.
	want := []map[string]any{
		{"level": "INFO", "msg": "API_TOKENS_FILE was read again", "file": o.path, "count": 2.0},
		{"level": "INFO", "msg": "API_TOKENS_FILE was read again", "file": o.path, "count": 1.0},
		{"level": "WARN", "msg": "API_TOKENS_FILE cannot be used; the tokens read before stay in use", "file": o.path, "error": "is not JSON: look at line 1"},
		{"level": "INFO", "msg": "API_TOKENS_FILE was read again", "file": o.path, "count": 1.0},
		{"level": "WARN", "msg": "API_TOKENS_FILE cannot be used; the tokens read before stay in use", "file": o.path, "error": "cannot be read: no such file or directory"},
		{"level": "INFO", "msg": "API_TOKENS_FILE was read again", "file": o.path, "count": 1.0},
		{"level": "WARN", "msg": "API_TOKENS_FILE cannot be used; the tokens read before stay in use", "file": o.path, "error": "cannot be read: no such file or directory"},
		{"level": "INFO", "msg": "API_TOKENS_FILE was read again", "file": o.path, "count": 0.0},
		{"level": "WARN", "msg": "API_TOKENS_FILE holds no valid token: the API and the dashboard refuse every request", "file": o.path},
	}
	var got []map[string]any
	logged := func(n int) {
		t.Helper()
		redistest.Eventually(t, fmt.Sprintf("%d lines", n), func() bool {
			o.until(next, n < 9)
			got = append(got, o.log.lines(t)...)
			return len(got) >= n
		})
	}
	o.write(`{"tokens":[`)
	logged(3)
	o.put(b)
	logged(4)
	for n := 5; n <= 7; n += 2 { // the same again is told again
		if err := os.Remove(o.path); err != nil {
			t.Fatal(err)
		}
		logged(n)
		if n == 5 {
			o.put(b)
			logged(6)
		}
	}
	o.put() // all are taken back
	logged(9)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
}

// A token that has just been added is good at once, without waiting for the next look.
func TestNewTokenIsValidAtOnce(t *testing.T) {
	t.Parallel()
	old, a := token(t, "old", access.ScopeRead)
	next, b := token(t, "next", access.ScopeRead)
	f := newFile(t, a)
	all, err := access.OpenTokens(f.path, access.Options{Logger: new(logged).logger(), CheckEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := all.Lookup(old); !ok {
		t.Fatal("the first token is not known")
	}
	f.put(a, b)
	if _, ok := all.Lookup(next); !ok {
		t.Errorf("the token that was added is not known")
	}
}

func TestOpenTokensErrors(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.write(`{"tokens":[{"name":"a"}]}`)
	missing := filepath.Join(t.TempDir(), "none.json")
	for path, want := range map[string]string{
		f.path:  fmt.Sprintf(`access: open tokens: file %q: line 1: token 1 (a) has no list of scopes; line 1: token 1 (a) has no hash`, f.path),
		missing: fmt.Sprintf(`access: open tokens: file %q: cannot be read: no such file or directory`, missing),
	} {
		if _, err := access.OpenTokens(path, access.Options{}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestUpdateFile(t *testing.T) {
	t.Parallel()
	_, a := token(t, "a", access.ScopeRead)
	_, b := token(t, "b", access.ScopeRead)
	dir := t.TempDir()
	path, link := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "link.json")
	add := func(e access.Entry) func([]access.Entry) ([]access.Entry, error) {
		return func(all []access.Entry) ([]access.Entry, error) { return append(all, e), nil }
	}
	check := func(mode os.FileMode, names ...string) {
		t.Helper()
		entries, info, err := access.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name)
		}
		if diff := cmp.Diff(names, got); diff != "" || info.Mode().Perm() != mode {
			t.Errorf("mode %o, want %o; names (-want +got)\n%s", info.Mode().Perm(), mode, diff)
		}
	}
	if err := access.UpdateFile(path, add(a)); err != nil {
		t.Fatal(err)
	}
	check(0o600, "a")
	if err := errors.Join(os.Chmod(path, 0o640), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := access.UpdateFile(link, add(b)); err != nil {
		t.Fatal(err)
	}
	check(0o640, "a", "b")
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}

	refused := errors.New("no")
	if err := access.UpdateFile(path, func([]access.Entry) ([]access.Entry, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("%v, want what was returned", err)
	}
	want := fmt.Sprintf("file %q: line 19: token 3 (b) has the hash of token 2 (b)", path)
	if err := access.UpdateFile(path, add(b)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	check(0o640, "a", "b")
	if found, err := os.ReadDir(dir); err != nil || len(found) != 2 {
		t.Errorf("left behind: %v, %v", found, err)
	}
	nowhere := filepath.Join(dir, "none", "tokens.json")
	want = "write " + nowhere + ": no such file or directory"
	if err := access.UpdateFile(nowhere, add(a)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Of many that change the file at once none undoes what another one did.
func TestUpdateFileTogether(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.json")
	const writers = 20
	failed := make(chan error, writers)
	want := map[string]bool{}
	for i := range writers {
		_, e := token(t, fmt.Sprint("a", i), access.ScopeRead)
		want[e.Name] = true
		go func() {
			failed <- access.UpdateFile(path, func(all []access.Entry) ([]access.Entry, error) { return append(all, e), nil })
		}()
	}
	for range writers {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	entries, _, err := access.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, e := range entries {
		got[e.Name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if found, err := os.ReadDir(filepath.Dir(path)); err != nil || len(found) != 1 {
		t.Errorf("left behind: %v, %v", found, err)
	}
}
