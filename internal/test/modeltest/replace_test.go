package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// version is a payload. Its text is long, and says the same: one that is half another one's is seen.
type version struct {
	Key, Caller, N int
	Text           string
}

func (v version) text() string {
	return strings.Repeat(fmt.Sprint(v.Key, "/", v.Caller, "/", v.N, " "), 500)
}

// Many callers replace each other's jobs while workers fetch them, fail some of them and reschedule others: the newest job
// of each replace-key is published, each job that is not was replaced by a newer one, and each payload is whole.
func TestReplacesWhileWorkersFetch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("beta"), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	published := map[string]version{} // by id
	publish := func(_ context.Context, job *jobs.Job) error {
		var v version
		if err := json.Unmarshal(job.Payload, &v); err != nil || v.Text != v.text() {
			t.Errorf("the payload of %s is not whole: %v", job.ID, err)
		}
		switch rand.IntN(10) {
		case 0:
			return jobs.Fail(fmt.Errorf("no"))
		case 1:
			return jobs.Reschedule(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		published[job.ID] = v
		return nil
	}
	p, err := publisher.New(rdb, publisher.Options{Logger: slog.New(slog.DiscardHandler), RetryLoopInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle("beta", publisher.Func(publish), publisher.Concurrency(4), publisher.Breaker(breaker.Options{Disabled: true}), publisher.Order(jobs.OrderKey, publisher.OnFailSkip)); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(over) }()

	var callers sync.WaitGroup
	all := make([][]*jobs.Job, replacers)
	for caller := range replacers {
		callers.Go(func() {
			for n := range replaces / replacers {
				v := version{Key: rand.IntN(replacedKeys), Caller: caller, N: n}
				v.Text = v.text()
				opts := []jobs.Option{jobs.Replace(fmt.Sprint("k", v.Key)), jobs.Retry(jobs.RetryPolicy{MaxRetries: 10, InitialDelay: time.Second, MaxDelay: time.Second})}
				switch v.Key % 3 {
				case 1: // its jobs are published one at a time
					opts = append(opts, jobs.Key(fmt.Sprint("k", v.Key)))
				case 2:
					opts = append(opts, jobs.Delay(10*time.Millisecond), jobs.ReplaceMax(50*time.Millisecond))
				}
				job, err := client.Enqueue(ctx, jobs.New("beta", v, opts...))
				if err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				all[caller] = append(all[caller], job)
			}
		})
	}
	callers.Wait()
	newest := rdb.HGetAll(ctx, store.ReplaceKey(store.DefaultNamespace.Queue("beta", store.Default))).Val()
	if len(newest) != replacedKeys {
		t.Errorf("%d keys have a newest job, want %d", len(newest), replacedKeys)
	}
	byID, replaced := map[string]*jobs.Job{}, map[string]string{}
	for _, some := range all {
		for _, j := range some {
			byID[j.ID] = j
			if j.Replaced != "" {
				replaced[j.Replaced] = j.ID
			}
		}
	}
	publishedAs := func(id string) (version, bool) {
		mu.Lock()
		defer mu.Unlock()
		v, done := published[id]
		return v, done
	}
	for id := range byID {
		last, err := client.Wait(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		v, done := publishedAs(id)
		switch by, was := replaced[id]; {
		case done != (last.Status == jobs.Completed):
			t.Errorf("%s was published: %t, and is %s", id, done, last.Status)
		case done && byID[id].Replace != fmt.Sprint("k", v.Key):
			t.Errorf("%s of %s was published with the payload of k%d", id, byID[id].Replace, v.Key)
		case was && (last.Status != jobs.Cancelled || last.LastError != "replaced by "+by):
			t.Errorf("%s was replaced by %s, and is %s: %s", id, by, last.Status, last.LastError)
		case last.Status == jobs.Cancelled && byID[strings.TrimPrefix(last.LastError, "replaced by ")] == nil:
			t.Errorf("%s is cancelled: %s", id, last.LastError)
		case last.Status == jobs.Cancelled && newest[" "+last.Replace] == id:
			t.Errorf("%s is the newest of its key, and is cancelled: %s", id, last.LastError)
		}
	}
	for name, id := range newest {
		if _, done := publishedAs(id); !done {
			t.Errorf("%s, the newest job of%s, was not published", id, name)
		}
	}
	b := newBook(t.Errorf)
	b.healthy(rdb)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d enqueues, %d published, %d replaced before they started", len(byID), len(published), len(replaced))
	if len(replaced) == 0 || len(published) == 0 || len(replaced)+len(published) > len(byID) {
		t.Error("that was no race")
	}
}
