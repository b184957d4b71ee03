package e2e

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
)

// Five processes see one incident, the worker that opened the breaker dies the moment it has, and
// people are notified of one: a message that follows it, a page, a recovery.
func TestIncidentOutlivesItsOpener(t *testing.T) {
	t.Parallel()
	const n, workers = 80, 5
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"ALERT_OPEN_TOO_LONG": "6s"})
	killed := a.killOpener(a.startWorkers(workers))
	a.wholeIncident(n)
	killed()
	in, s := a.checkOneIncident()

	var last time.Time
	updates := 0
	for _, at := range a.failedProbes() {
		if at.Sub(last) > time.Second {
			updates++
		}
		last = at
	}
	message := s.messages[0]
	if updates < 4 || message.Edits < updates {
		t.Errorf("%d updates of the message for %d failed probes that came more than a second apart", message.Edits, updates)
	}
	if in.Probes != len(a.failedProbes()) {
		t.Errorf("the incident has %d failed probes; there were %d", in.Probes, len(a.failedProbes()))
	}

	first := message.Versions[0]
	text := spoken(first.Text, first.Blocks)
	opened := a.history()[0]
	for _, want := range []string{
		a.dest, "*Until*\n<!date^" + strconv.FormatInt(ceil(opened.OpenUntil).Unix(), 10) + "^", "tidegate breaker get " + a.dest, in.ID,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the message does not say %q:\n%s", want, text)
		}
	}
	waiting := regexp.MustCompile(`\*Jobs waiting\*\n([0-9]+)`).FindStringSubmatch(text)
	if waiting == nil {
		t.Fatalf("the message does not say how many jobs wait:\n%s", text)
	}
	if got, _ := strconv.Atoi(waiting[1]); got < 1 || got > n {
		t.Errorf("%d jobs wait, of %d", got, n)
	}
	t.Logf("%d failed probes, %d edits, %d calls of Slack's methods; the message came %s after the opening",
		in.Probes, message.Edits, a.slack.Calls(), message.PostedAt.Sub(opened.At))
}

// ceil rounds up to a whole second.
func ceil(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// killOpener kills the worker that opens the breaker as soon as that is known. What it
// returns waits until it is dead.
func (a *alerting) killOpener(workers []*worker) (killed func()) {
	a.t.Helper()
	var once sync.Once
	dead := make(chan string, 1)
	opened := make(chan string, 1)
	b, err := breaker.New(context.Background(), a.rdb, breaker.Options{
		Destination: a.dest,
		OnEvent: func(e breaker.Event) {
			if e.From == breaker.Closed && e.To == breaker.Open {
				once.Do(func() { opened <- e.By })
			}
		},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = b.Close() })
	go func() {
		by := <-opened
		for _, w := range workers {
			if strings.HasSuffix(by, ":"+strconv.Itoa(w.pid())) {
				_ = w.cmd.Process.Kill()
			}
		}
		dead <- by
	}()
	return func() {
		a.t.Helper()
		select {
		case by := <-dead:
			w := workerOf(a.t, workers, by)
			err := <-w.done
			w.done <- err
			if err == nil {
				a.t.Errorf("worker %s was not killed", by)
			}
		case <-time.After(20 * time.Second):
			a.t.Fatal("no worker has opened the breaker")
		}
	}
}
