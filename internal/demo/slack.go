package demo

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/publisher"
)

const (
	// channel is where the alerts go.
	channel = "alerts"
	// pageMargin is how much longer than a cooldown a breaker is open before on-call is
	// paged, so that there is a page to see.
	pageMargin = 2 * time.Second
	// lastWords is how long the end waits for alerts that are on their way.
	lastWords = 3 * time.Second
)

// office is the Slack that the workers alert, and who reads it aloud.
type office struct {
	slack *fakeslack.Slack
	o     Options
	read  map[string]string // what was read of a message, by its timestamp
}

// newOffice starts the Slack.
func newOffice(o Options) (*office, error) {
	f := &office{slack: fakeslack.New(fakeslack.Options{Channels: []fakeslack.Channel{{ID: fakeslack.DefaultChannel, Name: channel}}}), o: o, read: map[string]string{}}
	if _, err := f.slack.Start(""); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return f, nil
}

// alerts makes a worker's part in the alerting.
func (f *office) alerts(rdb redis.UniversalClient, worker string) (*alerts.Alerts, error) {
	to, err := slack.New(slack.Options{
		Token: fakeslack.DefaultToken, Channel: "#" + channel, API: f.slack.APIURL(), Mention: "@oncall",
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

// follow reads the channel aloud until ctx ends.
func (f *office) follow(ctx context.Context, say func(t tone, format string, args ...any)) {
	for {
		changed := f.slack.Changed()
		f.readAloud(say)
		select {
		case <-changed:
		case <-ctx.Done():
			f.readAloud(say)
			return
		}
	}
}

func (f *office) readAloud(say func(t tone, format string, args ...any)) {
	for _, m := range f.slack.Messages() {
		was, seen := f.read[m.TS]
		if was == m.Text {
			continue
		}
		f.read[m.TS] = m.Text
		how := "Slack #" + channel
		switch {
		case seen:
			how += ", the same message now"
		case m.Broadcast:
			how += ", page in the thread"
		case m.ThreadTS != "":
			how += ", in the thread"
		}
		say(aloud, "%s: %s", how, html.UnescapeString(m.Text))
	}
}

// counts are the messages and the replies.
func (f *office) counts() (messages, edits, replies int) {
	for _, m := range f.slack.Messages() {
		if m.ThreadTS != "" {
			replies++
			continue
		}
		messages++
		edits += m.Edits
	}
	return messages, edits, replies
}

// settled waits until a Slack that nobody talks to any more is quiet.
func (f *office) settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for {
		changed := f.slack.Changed()
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
