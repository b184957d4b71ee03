package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// notRun marks a block of commands that TestDocumentedCommands leaves out. It stands on
// the line before the block, and the block in leftOut.
const notRun = "<!-- not run -->"

// leftOut has the first lines of the blocks that are not run, and why.
var leftOut = map[string]string{
	"git clone https://github.com/tidegate/tidegate && cd tidegate": "needs the network",
	`go install ./cmd/tidegate`:                                     "the test has built the binary",
}

// The default ports of Redis, "tidegate api" and "tidegate fake-api". A test replaces
// them in commands by ports of its own and, the other way round, in what they print.
const redisPort, apiPort, fakePort = "6379", "8080", "8090"

// The commands of the documents for new users work when they are pasted into a shell,
// and print what the documents say.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	var marked []string
	for _, name := range []string{"README.md", "docs/quickstart.md"} {
		text, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		var run []commandBlock
		for _, b := range commandBlocks(string(text)) {
			if b.notRun {
				first, _, _ := strings.Cut(b.commands, "\n")
				marked = append(marked, first)
				continue
			}
			run = append(run, b)
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			pasteBlocks(t, name, run)
		})
	}
	for first := range leftOut {
		if !slices.Contains(marked, first) {
			t.Errorf("no block that is marked as not run begins with %q", first)
		}
	}
	for _, first := range marked {
		if leftOut[first] == "" {
			t.Errorf("the block that begins with %q is marked as not run: say why in leftOut", first)
		}
	}
}

// commandBlock is a block of shell commands in a document.
type commandBlock struct {
	line     int    // of the first command
	commands string // as they stand
	output   string // the block of text that follows, "" without one
	notRun   bool
}

// commandBlocks finds the blocks of shell commands in Markdown, each with the block of
// text after it as its output.
func commandBlocks(markdown string) []commandBlock {
	var (
		out      []commandBlock
		language string
		body     strings.Builder
		last     string // line that is not empty, before the block
		inside   bool
		follows  bool // the last block was one of commands, with nothing after it
	)
	for n, line := range strings.Split(markdown, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case inside && isFence:
			inside = false
			switch {
			case slices.Contains([]string{"sh", "bash", "shell", "console", "zsh"}, language):
				first := n + 1 - strings.Count(body.String(), "\n")
				out = append(out, commandBlock{line: first, commands: body.String(), notRun: last == notRun})
				follows = true
			case language == "text" && follows:
				out[len(out)-1].output = body.String()
				follows = false
			default:
				follows = false
			}
			last = ""
		case inside:
			body.WriteString(line + "\n")
		case isFence:
			inside, language = true, strings.TrimSpace(fence)
			body.Reset()
		case line != "":
			follows = false
			last = line
		}
	}
	return out
}

// pasteBlocks gives the blocks to one shell, all at once, and compares what each prints.
func pasteBlocks(t *testing.T, name string, blocks []commandBlock) {
	t.Helper()
	redis, api, fake := strconv.Itoa(redistest.Port(t)), strconv.Itoa(redistest.Port(t)), strconv.Itoa(redistest.Port(t))
	there := strings.NewReplacer(redisPort, redis, apiPort, api, fakePort, fake,
		"tidegate fake-api", "tidegate fake-api --listen 127.0.0.1:"+fake)
	back := strings.NewReplacer(redis, redisPort, api, apiPort, fake, fakePort)
	const (
		failure = "\x1e" // begins the line that names a command that failed
		end     = "\x1d" // ends the output of a block
	)
	var script strings.Builder
	fmt.Fprintf(&script, "trap 'printf \"\\n%s%%s: %%s\\n\" \"$?\" \"$BASH_COMMAND\"' ERR\n", failure)
	for _, b := range blocks {
		script.WriteString(there.Replace(b.commands) + "printf '" + end + "'\n")
	}
	environ := []string{"LISTEN_ADDR=127.0.0.1:" + api, "OPS_ADDR=127.0.0.1:0"}
	if name != "README.md" { // there tidegate dev brings its own
		environ = append(environ, "REDIS_URL=redis://127.0.0.1:"+redis)
	}
	printed := back.Replace(runShell(t, script.String(), environ...))
	outputs := strings.Split(printed, end)
	if len(outputs) != len(blocks)+1 {
		t.Errorf("%s: %d of %d blocks came to their end", name, len(outputs)-1, len(blocks))
	}
	for i, b := range blocks[:min(len(blocks), len(outputs))] {
		if strings.Contains(outputs[i], failure) {
			t.Errorf("%s:%d: commands failed, marked with their exit status:\n%s", name, b.line, strings.ReplaceAll(outputs[i], failure, "exit status "))
			continue
		}
		if !outputPattern(b.output).MatchString(plain(outputs[i])) {
			t.Errorf("%s:%d: output (-documented +printed):\n%s", name, b.line, cmp.Diff(b.output, outputs[i]))
		}
	}
}

// runShell gives a script to a shell's standard input, as a paste does, in an empty
// directory with the tidegate command in PATH, and returns all that was printed.
func runShell(t *testing.T, script string, environ ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var printed bytes.Buffer
	shell := exec.CommandContext(ctx, "bash", "--noprofile", "--norc")
	shell.Dir = t.TempDir()
	bin := t.TempDir()
	for name, path := range map[string]string{"tidegate": binary, "redis-server": redistest.Binary(t)} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	shell.Env = append(environ, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+shell.Dir, "TMPDIR="+shell.Dir)
	shell.Stdin, shell.Stdout, shell.Stderr = strings.NewReader(script), &printed, &printed
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stop := func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.Cancel, shell.WaitDelay = stop, time.Second
	err := shell.Run()
	if stop() == nil {
		t.Error("processes were left at the end")
	}
	if err != nil {
		t.Errorf("the shell: %v", err)
	}
	return printed.String()
}

// varies are the parts of an output that differ from run to run, and what stands for
// them in a comparison.
var varies = []struct {
	is *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT`), ""},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|s|m|h))+\b`), "DURATION"},
	{regexp.MustCompile(`\b[a-z][a-z0-9.-]*:\d+\b`), "WORKER"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "TOKEN"},
	{regexp.MustCompile(` +`), " "}, // widths of columns
	{regexp.MustCompile(` +\n`), "\n"},
}

// plain makes outputs of different runs the same.
func plain(output string) string {
	for _, v := range varies {
		output = v.is.ReplaceAllString(output, v.as)
	}
	return output
}

// outputPattern matches what is the same as a documented output, in which an ellipsis
// stands for any text within a line, or, alone in its line, for any lines.
func outputPattern(output string) *regexp.Regexp {
	p := regexp.QuoteMeta(plain(output))
	p = strings.ReplaceAll("\n"+p, "\n…\n", "\n(?s:.*\n)?")[1:]
	return regexp.MustCompile(`^` + strings.ReplaceAll(p, "…", ".*") + `$`)
}
