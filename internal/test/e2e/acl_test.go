package e2e

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

const (
	aclUser     = "tidegate"
	aclPassword = "canary-of-redis"
)

// leastRights are the rules of the user that we tell people to make.
func leastRights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/redis/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	_, own, _ := strings.Cut(string(text), "\n") // behind that of the default user
	fields := strings.Fields(own)
	if len(fields) < 4 || !slices.Equal(fields[:4], []string{"user", aclUser, "on", ">CHANGE-ME"}) {
		t.Fatalf("users.acl begins with %q", fields[:4])
	}
	return fields[4:]
}

// asUser is a store that workers and commands use as a user; the test itself uses it
// as the administrator.
type asUser struct{ redisStore }

func (s asUser) URL() string { return redistest.As(s.redisStore.URL(), aclUser, aclPassword) }

// checkRights holds the rights of a user against what was done with them: nothing was
// refused, and each right was used, or would be where something has gone wrong.
func checkRights(t *testing.T, servers []*redistest.Server, rules []string) {
	t.Helper()
	used := map[string]bool{
		"select": true, // by a REDIS_URL with a database
		"sscan":  true, // a script of the doctor has the name in a variable
		"asking": true, // while slots move from node to node
	}
	for _, s := range servers {
		log, err := s.Client(t).ACLLog(t.Context(), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range log {
			t.Errorf("refused to %s: %s %s %q", entry.Username, entry.Reason, entry.Context, entry.Object)
		}
		for name := range s.CommandStats(t) {
			used[name] = true
		}
	}
	for _, sources := range []map[string]bool{commandsIn(t, ".lua", inScripts), commandsIn(t, ".go", inCode)} {
		maps.Copy(used, sources)
	}
	for _, rule := range rules {
		command, is := strings.CutPrefix(rule, "+")
		whole, _, _ := strings.Cut(command, "|") // scripts are searched for it
		if is && !used[command] && !used[whole] {
			t.Errorf("the right %s was not used", rule)
		}
	}
}

var (
	inScripts = regexp.MustCompile(`redis\.p?call\(\s*['"]([A-Za-z]+)`)
	inCode    = regexp.MustCompile(`\.([A-Z][A-Za-z]+)\(ctx`)
)

// commandsIn are the commands that the program calls in files of a kind.
func commandsIn(t *testing.T, ext string, call *regexp.Regexp) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ext || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range call.FindAllSubmatch(text, -1) {
			out[strings.ToLower(string(found[1]))] = true
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d commands in %s: %v", len(out), ext, err)
	}
	return out
}

// Each command that a script calls is among the rights.
func TestScriptsNeedNoOtherRights(t *testing.T) {
	t.Parallel()
	rights := leastRights(t)
	for command := range commandsIn(t, ".lua", inScripts) {
		if !slices.ContainsFunc(rights, func(r string) bool { return r == "+"+command || strings.HasPrefix(r, "+"+command+"|") }) {
			t.Errorf("a script calls %s", command)
		}
	}
}

// What the user may not do is refused.
func TestLeastRightsRefuseTheRest(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.SetUser(t, aclUser, aclPassword, leastRights(t)...)
	rdb := open(t, asUser{s}.URL())
	for _, command := range [][]any{
		{"FLUSHALL"},
		{"FLUSHDB"},
		{"KEYS", "*"},
		{"CONFIG", "GET", "*"},
		{"CONFIG", "SET", "maxmemory", "1"},
		{"SHUTDOWN"},
		{"ACL", "LIST"},
		{"ACL", "SETUSER", aclUser, "+@all"},
		{"CLIENT", "LIST"},
		{"CLIENT", "KILL", "TYPE", "normal"},
		{"MONITOR"},
		{"SAVE"},
		{"REPLICAOF", "127.0.0.1", "1"},
		{"SCRIPT", "FLUSH"},
		{"MODULE", "LIST"},
		{"SWAPDB", 0, 1},
		{"MIGRATE", "h", 1, "asynq:a", 0, 1},
		{"GET", "other"},
		{"SET", "other", 1},
		{"DEL", "other"},
		{"EVAL", "return redis.call('GET', 'other')", 0},
		{"EVAL", "return redis.call('FLUSHALL')", 0},
		{"PUBLISH", "other", 1},
		{"SUBSCRIBE", "other"},
		{"GETDEL", "asynq:queues"},
		{"RENAME", "asynq:queues", "other"},
	} {
		if err := rdb.Do(t.Context(), command...).Err(); err == nil || !redisconn.Refused(err) {
			t.Errorf("%v: %v", command, err)
		}
	}
}
