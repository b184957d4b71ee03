package cli

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args   string
		stderr string
	}{
		{"", `no command given; commands: dev, demo, worker, api, health, enqueue, get, list, history, batch, stats, errors, forecast, keys, cancel, complete, fail, pause, resume, retry, expire, queue, destinations, breaker, limits, audit, doctor, alerts, fake-api, token, answers, presets, simulate, config, time, version, completion; run "tidegate --help"`},
		{"foo", `unknown command foo; run "tidegate --help"`},
		{"workr", `unknown command workr, did you mean "worker"?; run "tidegate --help"`},
		{"--foo", `unknown flag --foo; run "tidegate --help"`},
		{"breaker", `no command given; commands: list, get, trip, reset, force, history, incidents; run "tidegate breaker --help"`},
		{"breaker foo", `unknown command foo; run "tidegate breaker --help"`},
		{"breaker get", `NAME is missing; run "tidegate breaker get --help"`},
		{"breaker get a b", `unexpected argument b; run "tidegate breaker get --help"`},
		{"limits forget", `NAME is missing; run "tidegate limits forget --help"`},
		{"get", `ID is missing; run "tidegate get --help"`},
		{"enqueue --expires 1h", `unknown flag --expires, did you mean "--expires-at"?; run "tidegate enqueue --help"`},
		{"enqueue --tttl 1h", `unknown flag --tttl, did you mean "--ttl"?; run "tidegate enqueue --help"`},
		{"history", `ID is missing; run "tidegate history --help"`},
		{"batch", `no command given; commands: get; run "tidegate batch --help"`},
		{"batch get", `BATCH is missing; run "tidegate batch get --help"`},
		{"batch get a b", `unexpected argument b; run "tidegate batch get --help"`},
		{"queue", `no command given; commands: pause, resume; run "tidegate queue --help"`},
		{"queue pause", "name a destination, or give --all"},
		{"destinations forget", `DESTINATION is missing; run "tidegate destinations forget --help"`},
		{"destinations forget --all", `unknown flag --all; run "tidegate destinations forget --help"`},
		{"stats shop", `unexpected argument shop; run "tidegate stats --help"`},
		{"doctor --dry", `unknown flag --dry, did you mean "--dry-run"?; run "tidegate doctor --help"`},
		{"cancel --foo", `unknown flag --foo; run "tidegate cancel --help"`},
		{"enqueue --max-reschedules many", `--max-reschedules: expected a valid 64 bit int but got "many"; run "tidegate enqueue --help"`},
		{"list -o xml", `--output must be one of "text","json" but got "xml"; run "tidegate list --help"`},
		{"list --limit", `--limit: expected int value but got "EOL" (<EOL>); run "tidegate list --help"`},
		{"worker -o text", `unknown flag -o, did you mean "-h"?; run "tidegate worker --help"`},
		{"demo --jobs 0", `--jobs: must be from 1 to 10000, is 0`},
		{"demo --fake many", `--fake: limit must be calls per time, such as 60/1m, or none, is "many"`},
		{"demo --jobs -1", `--jobs: expected int value but got "-1" (short flag); perhaps try --jobs="-1"?; run "tidegate demo --help"`},
	} {
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			runIn(t, nil, "", strings.Fields(row.args)...).want(t, 2, "", "tidegate: "+row.stderr+"\n")
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"", "demo", "worker", "enqueue", "get", "list", "history", "batch", "batch get", "stats", "cancel", "pause", "resume", "retry",
		"queue", "queue pause", "queue resume", "doctor", "breaker", "breaker list", "breaker get", "breaker trip",
		"breaker reset", "breaker history", "limits", "limits show", "limits forget", "alerts", "alerts test", "token new", "token list", "token remove", "presets", "presets show", "config", "config check", "version",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			out := runIn(t, nil, "", append(strings.Fields(command), "--help")...).ok(t)
			if want := strings.TrimSpace("Usage: tidegate " + command); !strings.HasPrefix(out, want) {
				t.Errorf("does not begin with %q:\n%s", want, out)
			}
			// Commands whose use is not plain from their name show it.
			plain := []string{"", "alerts", "batch", "breaker", "limits", "breaker list", "breaker history", "config", "queue", "version"}
			if !slices.Contains(plain, command) && !strings.Contains(out, "Example") {
				t.Errorf("no example:\n%s", out)
			}
		})
	}
}

// Each section of help.txt is that of a command.
func TestDetails(t *testing.T) {
	t.Parallel()
	for section := range strings.SplitSeq(details, "\n== ") {
		command, text, _ := strings.Cut(strings.TrimPrefix(section, "== "), "\n")
		out := runIn(t, nil, "", append(strings.Fields(command), "--help")...).ok(t)
		if !strings.HasPrefix(out, "Usage: tidegate "+command) || !strings.HasSuffix(out, "\n\n"+strings.TrimSpace(text)+"\n") {
			t.Errorf("%s --help does not end with its section:\n%s", command, out)
		}
	}
}

// Help is asked for by people who have not yet found the other arguments.
func TestHelpNeedsNoArguments(t *testing.T) {
	t.Parallel()
	runIn(t, []string{"REDIS_URL=nonsense"}, "", "breaker", "get", "-h").ok(t)
}

// Both are made from the grammar: a release has them beside the binary.
func TestCompletionAndManualPage(t *testing.T) {
	t.Parallel()
	if out := runIn(t, nil, "", "completion", "bash", "-c").ok(t); !strings.HasPrefix(out, "complete ") {
		t.Errorf("completion of bash: %s", out)
	}
	if out := runIn(t, nil, "", "--man").ok(t); !strings.Contains(out, "breaker trip") && !strings.Contains(out, `trip <name>`) {
		t.Errorf("the manual page has no breaker trip: %.2000s", out)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	p := Process{Version: "v1.2.3", Commit: "0123456789abcdef0123456789abcdef01234567"}
	want := "tidegate v1.2.3 (0123456789ab) " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	if got := p.version().String(); got != want {
		t.Errorf("version %q, want %q", got, want)
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if out := runIn(t, nil, "", args...).ok(t); !strings.HasPrefix(out, "tidegate ") || !strings.HasSuffix(out, runtime.GOARCH+"\n") {
			t.Errorf("%v printed %q", args, out)
		}
	}
	doc := decode[versionDocument](t, runIn(t, nil, "", "version", "-o", "json").ok(t))
	if doc.Version == "" || doc.Go != runtime.Version() {
		t.Errorf("document %+v", doc)
	}
}

// Every command that needs Redis says so in one line, soon.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	server := redistest.Start(t)
	server.Stop()
	env := append([]string{"REDIS_URL=" + server.URL()}, shop...)
	want := "tidegate: Redis not reachable at " + server.Addr() +
		" for 2s (connect: connection refused); check REDIS_URL or start Redis\n"
	// Not parallel subtests: they only wait, and would wait for each other.
	var all sync.WaitGroup
	for _, args := range []string{
		"enqueue -d shop", "get x", "list", "breaker list", "breaker get shop", "breaker trip shop", "breaker reset shop",
		"breaker history shop", "limits", "limits shop", "limits forget shop", "enqueue --file -", "history x", "batch get x", "batch get x --wait", "stats", "cancel x", "cancel --batch x",
		"pause x", "resume x", "retry x --reason y", "retry --status failed --dry-run", "queue pause shop", "queue resume shop", "doctor",
	} {
		all.Go(func() {
			started := time.Now()
			runFor(t, 0, env, "", strings.Fields(args)...).want(t, 1, "", want)
			if took := time.Since(started); took > 20*time.Second { // far more than patience: the machine may be busy
				t.Errorf("%s took %v, want about 2 s", args, took)
			}
		})
	}
	all.Wait()
}

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	env := []string{
		"REDIS_URL=http://user:hunter2@host",
		"DESTINATION_0_NAME={shop}", "DESTINATION_0_URL=api.example.com",
		"DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_AUTH_TOKEN_FILE=/run/secrets/shop",
		"DESTINATION_1_NAME=my shop", "DESTINATION_1_URL=https://hunter2@api.example.com",
		"CIRCUIT_BREAKER_TRESHOLD=3", "MAX_PAYLOAD_BYTES=lots",
	}
	for _, args := range []string{"config check", "worker", "enqueue -d shop", "get x", "list", "history x", "batch get x", "stats", "cancel x", "queue pause shop", "doctor", "breaker list", "breaker get shop"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := runIn(t, env, "", strings.Fields(args)...)
			if got.status != 78 || got.stdout != "" || strings.Contains(got.stderr, "hunter2") {
				t.Errorf("exit status %d, stdout %q, stderr:\n%s\nwant 78, nothing, and no secret", got.status, got.stdout, got.stderr)
			}
			var variables []string
			for line := range strings.Lines(got.stderr) {
				rest, found := strings.CutPrefix(line, "tidegate: ")
				variable, problem, _ := strings.Cut(rest, ": ")
				if !found || strings.TrimSpace(problem) == "" {
					t.Errorf("line %q is not of the form tidegate: VARIABLE: problem", line)
				}
				variables = append(variables, variable)
			}
			want := "CIRCUIT_BREAKER_TRESHOLD DESTINATION_0_AUTH_TOKEN DESTINATION_0_NAME DESTINATION_0_URL DESTINATION_1_NAME DESTINATION_1_URL MAX_PAYLOAD_BYTES REDIS_URL"
			if args != "config check" && args != "worker" { // they need no secrets of destinations
				want = strings.Replace(want, "DESTINATION_0_AUTH_TOKEN ", "", 1)
			}
			if got := strings.Join(variables, " "); got != want {
				t.Errorf("lines for %s\nwant one each for %s\n%s", got, want, strings.Join(variables, "\n"))
			}
		})
	}
}
