package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// payload of 200 bytes, unless something else is said.
const usualPayload = 200

// payload is JSON of so many bytes.
func payload(size int) []byte {
	const head, tail = `{"text":"`, `"}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// redisServer is a redis-server of ours with its client.
type redisServer struct {
	*redistest.Server
	rdb    redis.UniversalClient
	client *jobs.Client
}

// newStore starts a redis-server as docs/operations.md advises, with another
// appendfsync if that is not "".
func newStore(t testing.TB, fsync string) (*redisServer, error) {
	if fsync == "" {
		fsync = "everysec"
	}
	s := &redisServer{Server: redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", fsync))}
	s.rdb = s.Client(t)
	var err error
	s.client, err = jobs.NewClient(s.rdb, jobs.WithDestinations(destination), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	return s, err
}

func specs(n, size int) []*jobs.Spec {
	out := make([]*jobs.Spec, n)
	body := payload(size)
	for i := range out {
		out[i] = jobs.New(destination, body)
	}
	return out
}

// fill enqueues n jobs.
func (s *redisServer) fill(ctx context.Context, n, size int) error {
	results, err := s.client.EnqueueMany(ctx, specs(n, size))
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// info reads a number from INFO.
func (s *redisServer) info(ctx context.Context, section, field string) (float64, error) {
	text, err := s.rdb.Info(ctx, section).Result()
	if err != nil {
		return 0, fmt.Errorf("info %s: %w", section, err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("info %s has no %s", section, field)
}

// connections counts those of workers.
func (s *redisServer) connections(ctx context.Context) (float64, error) {
	text, err := s.rdb.ClientList(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("client list: %w", err)
	}
	return float64(strings.Count(text, " name=tidegate-worker ")), nil
}

// api accepts every call at once.
type api struct {
	url   string
	calls atomic.Int64
}

func newAPI(t testing.TB) (*api, error) {
	a := &api{}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a.calls.Add(1)
		_, _ = io.WriteString(w, `{"ok":true}`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	a.url = "http://" + l.Addr().String() + "/"
	return a, nil
}

// scraper asks without keeping connections, as an orchestrator does.
var scraper = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns how long an answer took and its length; another status than 200 is an
// error.
func get(ctx context.Context, url string) (took time.Duration, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	started := time.Now()
	resp, err := scraper.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	size, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return time.Since(started), size, err
}

// memory reads a field of /proc/PID/status, in bytes; 0 where there is none.
func memory(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024
		}
	}
	return 0
}

// pollEvery is the pause between two looks.
const pollEvery = 5 * time.Millisecond

// poll asks until the answer is yes or an error.
func poll(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
