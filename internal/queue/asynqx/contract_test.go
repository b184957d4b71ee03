package asynqx

import (
	"crypto/sha1" // it is how Redis names scripts
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// neverSent are the scripts that asynq's server code could send but never does
// for us, each with the reason.
var neverSent = map[string]string{
	"doneUniqueCmd":           "only for tasks with a unique key, which no job has: an id is what makes it unique",
	"markAsCompleteUniqueCmd": "only for tasks with a unique key",
	"aggregationCheckCmd":     "only where the Server has a GroupAggregator",
	"readAggregationSetCmd":   "only where the Server has a GroupAggregator",
	"deleteAggregationSetCmd": "only where the Server has a GroupAggregator",
	// A GroupAggregator enqueues what it has aggregated through a Client; no
	// other part of a Server has one.
	"enqueueCmd":                     "of the Client",
	"enqueueUniqueCmd":               "of the Client",
	"scheduleCmd":                    "of the Client",
	"scheduleUniqueCmd":              "of the Client",
	"addToGroupCmd":                  "of the Client",
	"addToGroupUniqueCmd":            "of the Client",
	"writeSchedulerEntriesCmd":       "of the Scheduler",
	"recordSchedulerEnqueueEventCmd": "of the Scheduler",
}

// serverFiles are the parts of asynq that a Server runs. What else speaks to
// Redis are the Client, the Inspector, the Scheduler and its manager, which are
// given clients of their own; were one of them given a Server's, its scripts
// would be unknown and stop it.
var serverFiles = []string{
	"aggregator.go", "forwarder.go", "healthcheck.go", "heartbeat.go", "janitor.go",
	"processor.go", "recoverer.go", "server.go", "subscriber.go", "syncer.go",
	"asynq.go", // ResultWriter, which handlers are given
}

// otherFiles are asynq's that no Server runs. A file that is in neither list is
// new and must be looked at.
var otherFiles = []string{
	"client.go", "context.go", "doc.go", "inspector.go", "periodic_task_manager.go", "scheduler.go",
	"servemux.go", "signals_unix.go", "signals_windows.go",
}

// The table of known scripts is what asynq's source holds: every script that a
// Server can send under its own name, and no other one.
func TestScriptsOfAsynqAreKnown(t *testing.T) {
	t.Parallel()
	dir := asynqDir(t)
	inSource := map[string]string{} // name → SHA-1
	rdb := parse(t, filepath.Join(dir, "internal", "rdb", "rdb.go"))
	for name, src := range scriptsOf(t, rdb) {
		sum := sha1.Sum([]byte(src))
		inSource[name] = hex.EncodeToString(sum[:])
	}
	if len(inSource) != 25 {
		t.Errorf("%d scripts found in rdb.go of %s, it has 25", len(inSource), AsynqVersion)
	}

	known := map[string]string{}
	for sha, s := range asynqScripts {
		known[s.name] = sha
	}
	want := map[string]string{}
	sendable := sentByServer(t, dir, rdb)
	for _, name := range sendable {
		if _, ok := neverSent[name]; !ok {
			want[name] = inSource[name]
		}
	}
	if diff := cmp.Diff(want, known); diff != "" {
		t.Errorf("scripts that a Server sends, by name and SHA-1 (-asynq's source +known):\n%s", diff)
	}
	var accounted []string
	for name := range neverSent {
		accounted = append(accounted, name)
	}
	for name := range known {
		accounted = append(accounted, name)
	}
	slices.Sort(accounted)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(inSource)), accounted); diff != "" {
		t.Errorf("scripts of rdb.go (-asynq's source +known or excused):\n%s", diff)
	}

	// The Inspector's scripts must not be mistaken for a Server's.
	for name, src := range scriptsOf(t, parse(t, filepath.Join(dir, "internal", "rdb", "inspect.go"))) {
		sum := sha1.Sum([]byte(src))
		if s, ok := asynqScripts[hex.EncodeToString(sum[:])]; ok {
			t.Errorf("the Inspector's %s is known as %s", name, s.name)
		}
	}
}

// Nothing in asynq speaks to Redis outside the files that were looked at.
func TestFilesOfAsynqAreKnown(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(asynqDir(t))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, name)
		}
	}
	want := slices.Sorted(slices.Values(append(slices.Clone(serverFiles), otherFiles...)))
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files of asynq (-looked at +there):\n%s", diff)
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	if err := CheckVersion(); err != nil {
		t.Errorf("this build: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != AsynqVersion {
		t.Errorf("go.mod has asynq %s, the scripts are of %s", got, AsynqVersion)
	}
}

// asynqDir is where the module's source lies.
func asynqDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatalf("find asynq's source: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// scriptsOf returns the source of every `var x = redis.NewScript("…")`.
func scriptsOf(t *testing.T, f *ast.File) map[string]string {
	t.Helper()
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		made, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || selected(made.Fun) != "NewScript" {
			return true
		}
		src, ok := made.Args[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is not made of a literal", spec.Names[0].Name)
		}
		text, err := strconv.Unquote(src.Value)
		if err != nil {
			t.Fatal(err)
		}
		out[spec.Names[0].Name] = text
		return true
	})
	return out
}

// sentByServer follows the calls from the files of a Server through the methods
// of the broker to the scripts.
func sentByServer(t *testing.T, dir string, rdb *ast.File) []string {
	t.Helper()
	uses := map[string]map[string]bool{} // method → what it names
	for _, d := range rdb.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names := map[string]bool{}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
		uses[f.Name.Name] = names
	}
	scripts := scriptsOf(t, rdb)
	found, seen := map[string]bool{}, map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if _, ok := scripts[name]; ok {
			found[name] = true
		}
		for next := range uses[name] {
			follow(next)
		}
	}
	for _, file := range serverFiles {
		ast.Inspect(parse(t, filepath.Join(dir, file)), func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && (selected(sel.X) == "broker" || selected(sel.X) == "rdb") {
				follow(sel.Sel.Name)
			}
			return true
		})
	}
	if !found["dequeueCmd"] || !found["retryCmd"] || !found["forwardCmd"] {
		t.Fatalf("the way from a Server to its scripts is lost; found %v", slices.Sorted(maps.Keys(found)))
	}
	return slices.Sorted(maps.Keys(found))
}

// selected is the last name of an expression: c of a.b.c.
func selected(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
