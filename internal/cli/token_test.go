package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// lookup says whose a token is by a file; "" if it is nobody's.
func lookup(t *testing.T, path, token string) string {
	t.Helper()
	all, err := access.OpenTokens(path, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := all.Lookup(token)
	return id.Name
}

func TestTokenNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.json")
	token := regexp.MustCompile(`^(tg_[A-Za-z0-9_-]{43})\n$`) // alone, so that scripts can take it
	told := regexp.MustCompile(`^This is the token; it is not shown again\.
Its entry, for the list "tokens" of API_TOKENS_FILE \(--file does that\):

(\{"name":"shop","scopes":\["enqueue"\],"hash":"sha256:[0-9a-f]{64}","created":"[-0-9T:]{19}Z"\})
$`)
	made := runIn(t, nil, "", "token", "new", "--name", "shop", "--scope", "enqueue")
	out, entry := token.FindStringSubmatch(made.stdout), told.FindStringSubmatch(made.stderr)
	if out == nil || entry == nil || made.status != 0 {
		t.Fatalf("printed %q, %q", made.stdout, made.stderr)
	}
	if err := os.WriteFile(path, []byte(`{"tokens":[`+entry[1]+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if name := lookup(t, path, out[1]); name != "shop" {
		t.Errorf("the token is %q's", name)
	}

	told = regexp.MustCompile(`^This is the token; it is not shown again\.
Its entry is in ` + regexp.QuoteMeta(path) + `, where it is called ([0-9a-f]{12})\.
$`)
	made = runIn(t, nil, "", "token", "new", "--name", "alice", "--scope", "read,operate", "--expires", "90d", "--file", path)
	added, entry := token.FindStringSubmatch(made.stdout), told.FindStringSubmatch(made.stderr)
	if added == nil || entry == nil || made.status != 0 {
		t.Fatalf("printed %q, %q", made.stdout, made.stderr)
	}
	doc := decode[newToken](t, runIn(t, nil, "", "token", "new", "--name", "ci", "--scope", "payloads", "--file", path, "-o", "json").ok(t))
	if doc.File != path || doc.Entry.Name != "ci" || doc.Entry.ExpiresAt != nil {
		t.Errorf("document %+v", doc)
	}
	for token, want := range map[string]string{out[1]: "shop", added[1]: "alice", doc.Token: "ci"} {
		if name := lookup(t, path, token); name != want {
			t.Errorf("the token is %q's, want %q", name, want)
		}
	}
	entries, info, err := access.ReadFile(path)
	if err != nil || len(entries) != 3 || info.Mode().Perm() != 0o600 {
		t.Fatalf("%d entries, mode %o, %v", len(entries), info.Mode().Perm(), err)
	}
	if e := entries[1]; e.ID() != entry[1] || e.ExpiresAt == nil || e.ExpiresAt.Sub(*e.Created) != 90*24*time.Hour {
		t.Errorf("alice's entry is %+v", e)
	}
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), "tg_") {
		t.Errorf("the file holds a token: %v", err)
	}
}

func TestTokenList(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.json")
	hash := func(digit string) string { return strings.Repeat(digit, 64) }
	content := fmt.Sprintf(`{"tokens":[
{"name":"shop","scopes":["enqueue"],"hash":"sha256:%s"},
{"name":"alice","scopes":["read","operate"],"hash":"sha256:%s","created":"2026-01-02T03:04:05+01:00","expires_at":"2026-01-03T00:00:00Z"},
{"name":"alice","scopes":["read","operate"],"hash":"sha256:%s","expires_at":"2999-01-03T00:00:00Z",
 "destinations":["shop*"],"keys":["acme:*","acme"],"max_backlog":10000,"rate":"100/1s"}]}`, hash("1"), hash("2"), hash("3"))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	list := func(args ...string) outcome {
		t.Helper()
		return runIn(t, []string{"API_TOKENS_FILE=" + path}, "", append([]string{"token", "list"}, args...)...)
	}
	list().want(t, 0, `ID            NAME   SCOPES        CREATED            EXPIRES                      BOUND TO
111111111111  shop   enqueue       -                  never                        -
222222222222  alice  read,operate  2026-01-02 02:04Z  2026-01-03 00:00Z (expired)  -
333333333333  alice  read,operate  -                  2999-01-03 00:00Z            shop*,key acme:*,key acme,10000 unfinished,100/1s
`, "")
	doc := decode[ops.Page[listedToken]](t, list("-o", "json").ok(t))
	if len(doc.Items) != 3 || doc.Items[0].Expired || !doc.Items[1].Expired || doc.Items[1].ID != "222222222222" || doc.Items[1].Name != "alice" {
		t.Errorf("document %+v", doc)
	}

	remove := func(args ...string) outcome {
		t.Helper()
		return runIn(t, nil, "", append([]string{"token", "remove", "--file", path}, args...)...)
	}
	remove("111111111111", "444444444444").want(t, 4, "", fmt.Sprintf("tidegate: no token has the id \"444444444444\" in %q, see tidegate token list; nothing was removed\n", path))
	remove("--name", "bob").want(t, 4, "", fmt.Sprintf("tidegate: no token of the name \"bob\" is in %q\n", path))
	remove("--expired").want(t, 0, "1 token was removed, 2 left\n", "")
	remove("--expired", "-o", "json").want(t, 0, `{"left":2,"removed":0}`+"\n", "")
	remove("111111111111").want(t, 0, "1 token was removed, 1 left\n", "")
	list().want(t, 0, `ID            NAME   SCOPES        CREATED  EXPIRES            BOUND TO
333333333333  alice  read,operate  -        2999-01-03 00:00Z  shop*,key acme:*,key acme,10000 unfinished,100/1s
`, "")
	remove("--name", "alice").want(t, 0, "1 token was removed, 0 left\n", "")
	list().want(t, 0, "there are no tokens; make one with: tidegate token new\n", "")
	list("-o", "json").want(t, 0, `{"items":[],"next":""}`+"\n", "")
}

func TestTokenBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken, missing := filepath.Join(dir, "broken.json"), filepath.Join(dir, "missing.json")
	nowhere := filepath.Join(dir, "none", "tokens.json")
	if err := os.WriteFile(broken, []byte(`{"tokens":[{"name":"a","scopes":[]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := fmt.Sprintf("file %q: line 1: token 1 (a) has no list of scopes; line 1: token 1 (a) has no hash", broken)
	for _, row := range []struct {
		args string
		want string
	}{
		{"token", `no command given; commands: new, list, remove; run "tidegate token --help"`},
		{"token new", `missing flags: --name=NAME, --scope=SCOPE,SCOPE; run "tidegate token new --help"`},
		{"token new --name a/b --scope read", `--name: "a/b" cannot be the name of a token: 1 to 63 letters, digits and . _ : @ -, starting with a letter or digit`},
		{"token new --name a --scope read,admin", `--scope: "admin" is not a scope; there are enqueue, read, payloads, operate`},
		{"token new --name a --scope read --expires soon", `--expires: "soon" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{"token new --name a --scope read --expires 0", `--expires must be more than 0, such as 90d; leave it out for a token that is good for good`},
		{"token new --name a:b --scope read --destination shop*", "the bounds: the name of a token with destinations or keys cannot have a colon, which ends it in ids of jobs"},
		{"token new --name a --scope read --destination Shop", `the bounds: "Shop" matches no destinations: write names with * and ?, such as shop*`},
		{"token new --name a --scope read --destination=", `the bounds: "" matches no destinations: write names with * and ?, such as shop*`},
		{"token new --name a --scope read --max-backlog 0", "the bounds: the backlog must be from 1 to 1000000 jobs"},
		{"token new --name a --scope read --rate=", `the bounds: "0" is not a rate: write jobs per time, such as 100/1s or 5000/1h, up to a million a second`},
		{"token new --name a --scope read --rate 5", `the bounds: "5" is not a rate: write jobs per time, such as 100/1s or 5000/1h, up to a million a second`},
		{"token new --name a --scope read --file " + broken, wrong},
		{"token new --name a --scope read --file " + nowhere, fmt.Sprintf("file %q cannot be written: no such file or directory", nowhere)},
		{"token list", "which file? Give --file, or set API_TOKENS_FILE"},
		{"token list --file " + broken, wrong},
		{"token remove", "which ones? Give ids, --name or --expired"},
		{"token remove --name a", "which file? Give --file, or set API_TOKENS_FILE"},
		{"token remove --name a --file " + missing, fmt.Sprintf("file %q: cannot be read: no such file or directory", missing)},
		{"token remove 123 --file " + broken, wrong},
	} {
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			runIn(t, nil, "", strings.Fields(row.args)...).want(t, 2, "", "tidegate: "+row.want+"\n")
		})
	}
}
