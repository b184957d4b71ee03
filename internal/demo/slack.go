package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/publisher"
)

const (
	// channel is where the alerts go, channelID what Slack calls it.
	channel   = "alerts"
	channelID = "C0000000000"
	// pageMargin is how much longer than a cooldown a breaker is open before on-call is
	// paged, so that there is a page to see.
	pageMargin = 2 * time.Second
	// lastWords is how long the end waits for alerts that are on their way.
	lastWords = 3 * time.Second
)

// office is the Slack channel that the workers alert, and prints what arrives there. It
// answers what alerts ask of Slack's API, and no more than that.
type office struct {
	server *fakehttp.Server
	o      Options
	read   map[string]string // what was printed of a message, by its timestamp

	mu       sync.Mutex
	messages []*message
	changed  chan struct{} // closed at the next change
}

// message is one of the channel, as it was last edited. ts is its timestamp, by which
// Slack knows it; thread is that of the message whose thread it is in.
type message struct {
	ts, thread, text string
	broadcast        bool
	edits            int
}

// newOffice starts the Slack.
func newOffice(o Options) (*office, error) {
	f := &office{o: o, read: map[string]string{}, changed: make(chan struct{})}
	f.server = fakehttp.NewServer("slack", f)
	if _, err := f.server.Start(""); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return f, nil
}

// ServeHTTP answers a method of Slack's API.
func (f *office) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := map[string]any{"ok": true, "channel": channelID}
	switch method := path.Base(r.URL.Path); method {
	case "chat.postMessage", "chat.update":
		answer["ts"] = f.write(r.FormValue("ts"), message{
			thread: r.FormValue("thread_ts"), text: r.FormValue("text"), broadcast: r.FormValue("reply_broadcast") == "true",
		})
	case "conversations.list":
		answer["channels"] = []map[string]any{{"id": channelID, "name": channel, "is_channel": true, "is_member": true}}
	case "conversations.history", "conversations.replies":
		answer["messages"] = []any{} // what was posted is known to have arrived
	default:
		answer = map[string]any{"ok": false, "error": "unknown_method"}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the caller has left
}

// write posts a message, or edits the one with a timestamp, and returns its timestamp.
func (f *office) write(ts string, m message) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
	for _, old := range f.messages {
		if old.ts == ts {
			old.text = m.text
			old.edits++
			return ts
		}
	}
	m.ts = fmt.Sprintf("%d.%06d", time.Now().Unix(), len(f.messages))
	f.messages = append(f.messages, &m)
	return m.ts
}

// posted returns the messages, and a channel that is closed when they change.
func (f *office) posted() (out []message, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		out = append(out, *m)
	}
	return out, f.changed
}

// alerts makes a worker's part in the alerting.
func (f *office) alerts(rdb redis.UniversalClient, worker string) (*alerts.Alerts, error) {
	to, err := slack.New(slack.Options{ //nolint:gosec // the demo's own server takes any token
		Token:   "xoxb-demo",
		Channel: "#" + channel, API: f.server.URL() + "/api/", Mention: "@oncall",
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	a, err := alerts.New(rdb, alerts.Options{
		Notifiers: []notice.Notifier{to}, OpenTooLong: f.o.Cooldown + pageMargin, Destinations: []string{destination},
		Logger: slog.New(slog.DiscardHandler), Worker: worker,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return a, nil
}

// follow prints what arrives in the channel until ctx ends.
func (f *office) follow(ctx context.Context, say func(t tone, format string, args ...any)) {
	for {
		messages, changed := f.posted()
		f.print(messages, say)
		select {
		case <-changed:
		case <-ctx.Done():
			messages, _ = f.posted()
			f.print(messages, say)
			return
		}
	}
}

func (f *office) print(messages []message, say func(t tone, format string, args ...any)) {
	for _, m := range messages {
		was, seen := f.read[m.ts]
		if was == m.text {
			continue
		}
		f.read[m.ts] = m.text
		where := "Slack #" + channel
		switch {
		case seen:
			where += ", the same message now"
		case m.broadcast:
			where += ", page in the thread"
		case m.thread != "":
			where += ", in the thread"
		}
		say(aloud, "%s: %s", where, html.UnescapeString(m.text))
	}
}

// counts are the messages and the replies.
func (f *office) counts() (messages, edits, replies int) {
	all, _ := f.posted()
	for _, m := range all {
		if m.thread != "" {
			replies++
			continue
		}
		messages++
		edits += m.edits
	}
	return messages, edits, replies
}

// settled waits until nothing more arrives.
func (f *office) settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for {
		_, changed := f.posted()
		quiet := time.NewTimer(lastWords / 2)
		select {
		case <-changed:
			quiet.Stop()
		case <-quiet.C:
			return
		case <-ctx.Done():
			quiet.Stop()
			return
		}
	}
}

// employ has a worker alert and deliver alerts, until the returned function is called.
func (f *office) employ(ctx context.Context, a *alerts.Alerts, p *publisher.Publisher) (stop func() error, err error) {
	if err := a.Serve(p); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = a.Run(ctx) })
	return func() error {
		cancel()
		work.Wait()
		a.Close()
		return nil
	}, nil
}
