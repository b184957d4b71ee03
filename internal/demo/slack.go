package demo

import (
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
)

// pageMargin is how much longer than a cooldown a breaker is open before on-call is
// paged, so that there is a page to see.
const pageMargin = 2 * time.Second

// channel is a Slack with one channel, #alerts: it prints what the alerts of the workers
// send, and answers no more of Slack's API than they ask for.
type channel struct {
	say func(format string, args ...any)

	mu                       sync.Mutex
	messages, edits, replies int
}

// ServeHTTP answers a method of Slack's API.
func (c *channel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const id = "C0000000000"
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := map[string]any{"ok": true, "channel": id, "ts": r.FormValue("ts")}
	where := ""
	switch path.Base(r.URL.Path) {
	case "chat.postMessage":
		answer["ts"] = fmt.Sprintf("%d.%06d", time.Now().Unix(), c.messages+c.replies)
		switch {
		case r.FormValue("thread_ts") == "":
			c.messages++
			where = "Slack #alerts"
		case r.FormValue("reply_broadcast") == "true":
			c.replies++
			where = "Slack #alerts, page in the thread"
		default:
			c.replies++
			where = "Slack #alerts, in the thread"
		}
	case "chat.update":
		c.edits++
		where = "Slack #alerts, the same message now"
	case "conversations.list":
		answer["channels"] = []map[string]any{{"id": id, "name": "alerts", "is_channel": true, "is_member": true}}
	case "conversations.history", "conversations.replies":
		answer["messages"] = []any{} // what was posted is known to have arrived
	default:
		answer = map[string]any{"ok": false, "error": "unknown_method"}
	}
	if where != "" {
		c.say("%s: %s", where, html.UnescapeString(r.FormValue("text")))
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the caller has left
}

// newAlerts makes a worker's part in the alerting.
func (s *stage) newAlerts(rdb redis.UniversalClient, worker string) (*alerts.Alerts, error) {
	to, err := slack.New(slack.Options{ //nolint:gosec // the demo's own server takes any token
		Token: "xoxb-demo", Channel: "#alerts", API: s.slack.URL() + "/api/", Mention: "@oncall",
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	a, err := alerts.New(rdb, alerts.Options{
		Notifiers: []notice.Notifier{to}, OpenTooLong: s.o.Cooldown + pageMargin, Destinations: []string{destination},
		Logger: slog.New(slog.DiscardHandler), Worker: worker,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return a, nil
}
