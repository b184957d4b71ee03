package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The services of docs/services.md, as they stand there, answer jobs of a worker with the configuration that stands there.
func TestServices(t *testing.T) {
	t.Parallel()
	block := func(language string) string { return codeBlock(t, "../../../docs/services.md", language) }
	write := func(t *testing.T, name, content string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct{ language, command, file string }{{"python", "python3", "service.py"}, {"js", "node", "service.mjs"}} {
		t.Run(tc.language, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Start(t), fakeapi.Options{})
			f.dest = "exports"
			for name := range f.env {
				if strings.HasPrefix(name, "DESTINATION_") {
					delete(f.env, name)
				}
			}
			port := strconv.Itoa(redistest.Port(t))
			f.env["PORT"], f.env["SHUTDOWN_TIMEOUT"] = port, "2m"
			f.env["DESTINATIONS_FILE"] = write(t, "d.yaml", strings.Replace(block("yaml"), ":9000", ":"+port, 1))
			f.run(exec.Command(tc.command, write(t, tc.file, block(tc.language))))
			redistest.Await(t, time.Minute, "the service listens", func() bool {
				c, err := net.Dial("tcp", "127.0.0.1:"+port)
				if err == nil {
					_ = c.Close()
				}
				return err == nil
			})
			f.start()
			client, err := jobs.NewClient(f.rdb, jobs.WithDestinations("exports"))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for _, picture := range []string{"dawn", "dusk", "none"} {
				job := jobs.New("exports", map[string]string{"picture": picture}, jobs.ID(picture), jobs.TTL(time.Hour))
				if _, err := client.Enqueue(t.Context(), job); err != nil {
					t.Fatal(err)
				}
			}
			for picture, want := range map[string]string{"dawn": "completed", "dusk": "pending rescheduled by Tidegate-Outcome", "none": "failed"} {
				var job *jobs.Job
				redistest.Await(t, time.Minute, picture+" is "+want, func() bool {
					job, err = client.Get(t.Context(), picture)
					return err == nil && strings.HasPrefix(strings.TrimSpace(fmt.Sprint(job.Status, " ", job.Reason)), want)
				})
				later := job.ExpiresAt.Sub(began) > time.Hour+100*time.Second
				if job.Response == nil || !strings.Contains(job.Response.Body, map[string]string{"dawn": "dawn", "dusk": "", "none": ""}[picture]) || later != (picture == "dusk") {
					t.Errorf("%s: expires in %s, response %+v", picture, job.ExpiresAt.Sub(began), job.Response)
				}
			}
		})
	}
}
