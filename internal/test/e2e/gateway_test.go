package e2e

import (
	"context"
	"fmt"
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

// The clients send N requests to URL with TOKEN, some at once, and print status and job of each.
const (
	curlClient = `seq "$N" | xargs -P 20 -I{} curl -s -o /dev/null -w '%{http_code} %header{tidegate-job}\n' "$URL?n={}" -d '{}' \
  -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -H 'Prefer: wait=60'`
	pythonClient = `
import os, urllib.request, concurrent.futures
def call(n):
    r = urllib.request.Request(os.environ["URL"], b'a=%d' % n, {"Authorization": "Bearer " + os.environ["TOKEN"], "Prefer": "wait=60"})
    with urllib.request.urlopen(r) as a: return "%d %s" % (a.status, a.headers["Tidegate-Job"])
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    print(*pool.map(call, range(int(os.environ["N"]))), sep="\n")
`
	nodeClient = `
const {URL: url, TOKEN, N} = process.env; let n = 0
const work = async () => { while (n++ < +N) {
  const r = await fetch(url, {method: 'PUT', body: Buffer.from([0, n]), headers: {'X-Api-Key': TOKEN, Prefer: 'wait=60'}})
  await r.text(); console.log(r.status, r.headers.get('tidegate-job')) } }
Promise.all(Array.from({length: 20}, work))
`
)

// Clients in three languages publish by their base URL, with a limit in the middle: each request is answered or
// accepted once. GATEWAY_REQUESTS is how many of each.
func TestGateway(t *testing.T) {
	t.Parallel()
	n := 60
	if text := os.Getenv("GATEWAY_REQUESTS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	f := newFleet(t, redistest.Start(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: max(20, n/5), Window: time.Second}, Hints: fakeapi.RetryAfter, Dedupe: true,
	})
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := f.token(file, "shop", "enqueue")
	f.env["API_TOKENS_FILE"], f.env["LISTEN_ADDR"] = file, "127.0.0.1:0"
	api := f.apiInstance()
	f.start()
	for name, args := range map[string][]string{
		"curl": {"sh", "-c", curlClient}, "python": {"python3", "-c", pythonClient}, "node": {"node", "-e", nodeClient},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Logf("%s is not on this machine", args[0])
			continue
		}
		before := f.api.Accepted()
		began := time.Now()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "URL="+api.url+"/to/"+f.dest+"/orders", "TOKEN="+token, fmt.Sprintf("N=%d", n))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		ids, statuses := map[string]bool{}, map[string]int{}
		for line := range strings.Lines(string(out)) {
			status, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			statuses[status]++
			ids[id] = true
		}
		if len(ids) != n || statuses["201"]+statuses["202"] != n {
			t.Errorf("%s: %d jobs of %d requests, %v", name, len(ids), n, statuses)
		}
		redistest.Await(t, leastPatience, "all are done", func() bool {
			stats, err := f.client.Stats(context.Background(), f.dest)
			return err == nil && len(stats) == 1 && stats[0].Counts[jobs.Pending]+stats[0].Counts[jobs.Running] == 0
		})
		accepted := f.api.Accepted()
		for id := range ids {
			if accepted[id] != 1 {
				t.Errorf("%s: job %s was accepted %d times", name, id, accepted[id])
			}
		}
		if more := len(accepted) - len(before); more != n {
			t.Errorf("%s: %d accepted of %d", name, more, n)
		}
		t.Logf("%s: %d requests, %v, in %s", name, n, statuses, time.Since(began).Round(time.Millisecond))
	}
	if f.api.Stats().Limited == 0 {
		t.Error("no limit was met")
	}
}
