package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// roleEnv makes the command the API that it measures.
const roleEnv = "TIDEGATE_BENCH_API"

const destination = "shop"

// payload has 200 bytes.
var payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 189) + `"}`)

// line is a job as it is sent.
var line = `{"destination":"` + destination + `","payload":` + string(payload) + `}`

// serve is "tidegate api".
func serve(ctx context.Context, _ []string, _, stderr io.Writer) error {
	cfg, _, err := config.Load(os.Environ())
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return app.RunAPI(ctx, cfg, slog.New(slog.NewJSONHandler(stderr, nil)), app.Process{Version: "bench", Environ: os.Environ()})
}

// stage is a Redis and an API.
type stage struct {
	testing.TB
	rdb    redis.UniversalClient
	client *jobs.Client
	http   *http.Client
	url    string
}

// newStage starts them. Redis keeps an append-only file, as it should.
func newStage(ctx context.Context, t testing.TB) (*stage, error) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "everysec"))
	s := &stage{TB: t, rdb: server.Client(t)}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	s.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	if s.client, err = jobs.NewClient(s.rdb, jobs.WithDestinations(destination), jobs.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	child := exec.CommandContext(ctx, program)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = 10 * time.Second
	child.Env = append(os.Environ(), roleEnv+"=1", "REDIS_URL="+server.URL(), "LISTEN_ADDR=127.0.0.1:0",
		"DESTINATION_0_NAME="+destination, "DESTINATION_0_URL=http://127.0.0.1:9/")
	logs, err := child.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the API: %w", err)
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start the API: %w", err)
	}
	said := bufio.NewScanner(logs)
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = child.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := child.Wait(); err != nil {
			t.Error("the API ended with ", err)
		}
	})
	found := make(chan string, 1)
	go func() {
		defer close(ended)
		for said.Scan() {
			var l struct{ Msg, URL string }
			if json.Unmarshal(said.Bytes(), &l) == nil && l.Msg == "api started" {
				found <- l.URL
			}
		}
	}()
	select {
	case s.url = <-found:
		return s, nil
	case <-ended:
		return nil, errors.New("the API did not start")
	case <-time.After(20 * time.Second):
		return nil, errors.New("the API did not start in time")
	}
}

// fresh empties Redis, and tells both clients what they have to know again.
func (s *stage) fresh(ctx context.Context) error {
	if err := s.rdb.FlushDB(ctx).Err(); err != nil {
		return fmt.Errorf("empty Redis: %w", err)
	}
	if _, err := s.client.Enqueue(ctx, jobs.New(destination, payload)); err != nil {
		return err
	}
	return s.post(ctx, jsonType, strings.NewReader(line), new(bytes.Buffer))
}

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// post enqueues a body; the answer goes into buf.
func (s *stage) post(ctx context.Context, kind string, body io.Reader, buf *bytes.Buffer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/jobs", body)
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := s.http.Do(r)
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	buf.Reset()
	if _, err := buf.ReadFrom(answer.Body); err != nil {
		return fmt.Errorf("enqueue: read the answer: %w", err)
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("enqueue: %s: %.200s", answer.Status, buf.String())
	}
	return nil
}

// accepted checks that an answer says so of n jobs.
func accepted(buf *bytes.Buffer, n int) error {
	var doc struct{ Accepted, Rejected int }
	if err := json.Unmarshal(buf.Bytes(), &doc); err != nil {
		return fmt.Errorf("enqueue: read the answer: %w", err)
	}
	if doc.Accepted != n || doc.Rejected != 0 {
		return fmt.Errorf("enqueue: %d accepted and %d rejected of %d", doc.Accepted, doc.Rejected, n)
	}
	return nil
}
