package bench

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// gatewayFigures are how long calls take, directly and through the gateway.
type gatewayFigures struct{ direct, waited []time.Duration }

// BenchmarkGateway measures what a caller waits for a response through the gateway, beside a direct call, with
// "tidegate api" and a worker in processes of their own and an idle API. It takes 20 s.
func BenchmarkGateway(b *testing.B) {
	f := measureGateway(b, 2000)
	rows := [][]string{{"call over HTTP, one at a time", "p50", "p90", "p99"}}
	for _, r := range []struct {
		name string
		took []time.Duration
	}{{"direct", f.direct}, {"through the gateway, `Prefer: wait`", f.waited}} {
		row := []string{r.name}
		for _, p := range []int{50, 90, 99} {
			row = append(row, fmt.Sprintf("%.1f ms", float64(r.took[len(r.took)*p/100].Microseconds())/1000))
		}
		rows = append(rows, row)
	}
	report(b, "benchmarks.md", "gateway", table(1, rows))
}

// measureGateway makes n calls of each kind in turn.
func measureGateway(t testing.TB, n int) (f gatewayFigures) {
	t.Helper()
	sink, _ := startSink(t)
	redis := startRedis(t, "everysec")
	s, _ := serveAPI(t, redis, []string{destination})
	p := startProcess(t, roleTidegate, []string{
		"REDIS_URL=" + redis.URL(), "DESTINATION_0_NAME=" + destination, "DESTINATION_0_URL=" + sink, "LOG_FORMAT=json", "OPS_ADDR=127.0.0.1:0",
	}, "worker")
	check(t, p.await(t.Context(), &p.log, logged("publishing", new(logEntry))))
	call := func(url string) time.Duration {
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(string(payload(usualPayload)))))(t)
		r.Header = http.Header{"Content-Type": {jsonType}, "Prefer": {"wait=60"}}
		began := time.Now()
		answer := must(s.http.Do(r))(t)
		_, err := io.Copy(io.Discard, answer.Body)
		check(t, err)
		check(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", url, answer.Status)
		}
		return time.Since(began)
	}
	gateway := s.url + "/to/" + destination + "/orders"
	for range 20 { // connections, and what is read first
		call(gateway)
	}
	for range n {
		f.direct = append(f.direct, call(sink))
		f.waited = append(f.waited, call(gateway))
	}
	slices.Sort(f.direct)
	slices.Sort(f.waited)
	return f
}

func TestEveryFigureOfTheGatewayIsMeasured(t *testing.T) {
	t.Parallel()
	f := measureGateway(t, 20)
	if len(f.direct) != 20 || f.direct[0] <= 0 || f.waited[0] <= f.direct[0] {
		t.Errorf("%+v", f)
	}
}
