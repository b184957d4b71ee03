package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// outboxes is where the programs of docs/outbox.md are.
const outboxes = "../../../docs/examples/outbox"

// docs/outbox.md shows the programs that TestOutbox runs.
func TestOutboxPage(t *testing.T) {
	t.Parallel()
	for file, language := range map[string]string{"outbox.sql": "sql", "go/main.go": "go", "python/relay.py": "python", "javascript/relay.mjs": "js"} {
		program, err := os.ReadFile(filepath.Join(outboxes, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(program), codeBlock(t, "../../../docs/outbox.md", language)) {
			t.Errorf("the page's first block of %s is not in %s", language, file)
		}
	}
}

// The loops of docs/outbox.md move committed rows of a real Postgres to real workers, each job once, also where the
// loop is killed between enqueue and delete and several loops run at once. A refused job stays, and says why.
func TestOutbox(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("installs packages")
	}
	pg := startPostgres(t)
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	f.env["LISTEN_ADDR"] = "127.0.0.1:0"
	f.start()
	api := f.apiInstance()
	for _, language := range []struct {
		name    string
		command func(t *testing.T) *exec.Cmd
	}{{"go", goRelay}, {"python", pythonRelay}, {"javascript", nodeRelay}} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			f := *f
			f.t = t
			o := outbox{fleet: &f, pg: pg, database: "outbox_" + language.name}
			command := language.command(t)
			pg.run("postgres", "CREATE DATABASE "+o.database)
			schema, err := os.ReadFile(filepath.Join(outboxes, "outbox.sql"))
			if err != nil {
				t.Fatal(err)
			}
			pg.run(o.database, string(schema))
			o.start = func() *worker {
				cmd := exec.Command(command.Path, command.Args[1:]...)
				cmd.Dir = command.Dir
				g := f
				g.env = map[string]string{
					"PATH": f.env["PATH"], "HOME": f.env["HOME"], "REDIS_URL": f.env["REDIS_URL"], "PYTHONDONTWRITEBYTECODE": "1",
					"PYTHONPATH": "../../../../sdk/python", "TIDEGATE_URL": api.url, "DATABASE_URL": pg.url(o.database),
				}
				return g.run(cmd)
			}
			o.test(t, language.name)
		})
	}
}

// outbox is a database with an outbox, and the program that empties it.
type outbox struct {
	*fleet
	pg       *postgres
	database string
	start    func() *worker
}

func (o *outbox) test(t *testing.T, name string) {
	t.Helper()
	const committed = 600 // more than a loop takes at once
	o.pg.run(o.database, fmt.Sprintf(`
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
		CREATE TRIGGER wait BEFORE DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION wait();
		BEGIN;
		INSERT INTO outbox (id, destination, payload) VALUES ('%[1]s-refused', 'nowhere', '{}');
		INSERT INTO outbox (id, destination, key, payload)
			SELECT '%[1]s-' || n, '%[2]s', 'key-' || n %% 7, json_build_object('n', n) FROM generate_series(1, %[3]d) AS n;
		COMMIT;
		BEGIN;
		INSERT INTO outbox (id, destination, payload) VALUES ('%[1]s-rolled-back', '%[2]s', '{}');
		ROLLBACK;`, name, o.dest, committed))
	var ids []string
	for n := 1; n <= committed; n++ {
		ids = append(ids, fmt.Sprintf("%s-%d", name, n))
	}

	// The first loop dies after it has enqueued and before it deletes.
	release := o.pg.hold(o.database, "SELECT FROM pg_advisory_lock(1);")
	first := o.start()
	redistest.Await(t, leastPatience, "the first loop has enqueued", func() bool {
		_, err := o.client.Get(context.Background(), ids[100])
		return err == nil
	})
	if code, _ := first.stop(syscall.SIGKILL); code != -1 {
		t.Fatalf("the loop ended with %d before it was killed", code)
	}
	release()
	if left := o.pg.run(o.database, "SELECT count(*) FROM outbox"); left != fmt.Sprint(committed+1) {
		t.Errorf("%s rows are left behind the killed loop, want %d", left, committed+1)
	}

	// Two loops at once do the rest, and enqueue again what the first one has enqueued.
	o.start()
	o.start()
	redistest.Await(t, leastPatience, "the outbox is empty but for the refused job", func() bool {
		return o.pg.run(o.database, "SELECT string_agg(id, ' ') FROM outbox") == name+"-refused"
	})
	if why := o.pg.run(o.database, "SELECT error FROM outbox"); !strings.Contains(why, "nowhere") || !strings.Contains(why, "is not known") {
		t.Errorf("error %q does not say why the job was refused", why)
	}
	o.pg.run(o.database, fmt.Sprintf("UPDATE outbox SET destination = '%s', error = NULL", o.dest))
	ids = append(ids, name+"-refused")
	o.waitCompleted(ids, time.Minute)
	accepted := o.api.Accepted()
	for _, id := range ids {
		if n := accepted[id]; n != 1 {
			t.Errorf("job %s was published %d times", id, n)
		}
	}
	job := o.job(ids[6])
	if strings.ReplaceAll(string(job.Payload), " ", "") != `{"n":7}` || job.Key != "key-0" {
		t.Errorf("job %s has key %s and payload %s", job.ID, job.Key, job.Payload)
	}
	if _, err := o.client.Get(context.Background(), name+"-rolled-back"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the job of the transaction that was rolled back: %v", err)
	}
}

// goRelay builds the program in Go, in its module.
func goRelay(t *testing.T) *exec.Cmd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir = filepath.Join(outboxes, "go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exec.Command(path)
}

// pythonRelay is the program in Python. The system's package of the driver is for the system's interpreter.
func pythonRelay(t *testing.T) *exec.Cmd {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import psycopg").Run() == nil {
			cmd := exec.Command(python, "relay.py")
			cmd.Dir = filepath.Join(outboxes, "python")
			return cmd
		}
	}
	missing(t, "psycopg is not installed: run make postgres")
	return nil
}

// nodeRelay is the program in JavaScript, with its packages beside it.
func nodeRelay(t *testing.T) *exec.Cmd {
	t.Helper()
	sdk, err := filepath.Abs("../../../sdk/typescript")
	if err != nil {
		t.Fatal(err)
	}
	folder := npmInstall(t, filepath.Join(outboxes, "javascript"), sdk)
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not installed: run make interpreters")
	}
	cmd := exec.Command(node, "relay.mjs")
	cmd.Dir = folder
	return cmd
}
