package alerts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"
)

// slackTimeout bounds one call to Slack or PagerDuty.
const slackTimeout = 10 * time.Second

// metadataType marks the messages of ours among others of the app.
const metadataType = "tidegate_alert"

// post is one message to be sent.
type post struct {
	message
	// ID is in the message's metadata, by which it is found again.
	ID string
	// Thread is the message that it replies to, if any; Broadcast shows the reply in the
	// channel, too.
	Thread    place
	Broadcast bool
	// Names makes Slack turn @name into mentions.
	Names bool
}

// bot posts with a bot token.
type bot struct {
	api     *slack.Client
	channel string
	told    observer

	mu sync.Mutex
	id string // of the channel, as Slack's answers give it
}

func newBot(o Options, client *http.Client) *bot {
	readable := *client
	readable.Transport = readableLimits{client.Transport}
	// slack-go's own repetitions are off: they could post twice.
	api := slack.New(o.SlackToken, slack.OptionHTTPClient(&readable), slack.OptionAPIURL(o.SlackAPI))
	return &bot{api: api, channel: o.SlackChannel, told: o.OnDelivery}
}

// readableLimits takes a Retry-After away that slack-go cannot read: to it, such an
// answer is none.
type readableLimits struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t readableLimits) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && retryAfter(resp.Header) == 0 {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// CloseIdleConnections lets an http.Client close those of the transport.
func (t readableLimits) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// place is where a message is: updates and threads need the id of its channel.
type place struct {
	Channel string `json:"channel,omitempty"`
	TS      string `json:"ts,omitempty"`
}

// send posts a message and returns where it is.
func (b *bot) send(ctx context.Context, p post) (at place, err error) {
	defer func() { b.told.tell(ReceiverSlack, KindMessage, err) }()
	ctx, cancel := context.WithTimeout(ctx, slackTimeout)
	defer cancel()
	options := append(b.content(p.message), slack.MsgOptionMetadata(slack.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"id": p.ID},
	}))
	channel := b.where()
	if p.Thread.TS != "" {
		options = append(options, slack.MsgOptionTS(p.Thread.TS))
		channel = p.Thread.Channel // which may not be the one that is configured now
	}
	if p.Broadcast {
		options = append(options, slack.MsgOptionBroadcast())
	}
	if p.Names {
		options = append(options, slack.MsgOptionLinkNames(true))
	}
	channel, ts, err := b.api.PostMessageContext(ctx, channel, options...)
	if err != nil && p.Thread.TS == "" && orphaned(err) && b.forget() {
		// The name may be another channel's by now.
		channel, ts, err = b.api.PostMessageContext(ctx, b.where(), options...)
	}
	if err != nil {
		return place{}, &tellError{"post to Slack", err}
	}
	if ts == "" {
		return place{}, &tellError{"post to Slack", errNotTheAPI}
	}
	if p.Thread.TS == "" {
		b.learn(channel)
	}
	return place{cmp.Or(channel, b.where()), ts}, nil
}

// update shows another message in the place of one.
func (b *bot) update(ctx context.Context, at place, m message) (err error) {
	defer func() { b.told.tell(ReceiverSlack, KindUpdate, err) }()
	ctx, cancel := context.WithTimeout(ctx, slackTimeout)
	defer cancel()
	_, ts, _, err := b.api.UpdateMessageContext(ctx, at.Channel, at.TS, b.content(m)...)
	if err == nil && ts == "" {
		err = errNotTheAPI
	}
	if err != nil {
		return &tellError{"update a message in Slack", err}
	}
	return nil
}

func (b *bot) content(m message) []slack.MsgOption {
	return []slack.MsgOption{
		slack.MsgOptionText(m.Text, false), // it is escaped already
		slack.MsgOptionBlocks(m.Blocks...),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
	}
}

const (
	// lookBack messages on each of lookPages pages are looked through for one that may
	// have been posted. Alerts are few, but the channel may not be ours alone.
	lookBack  = 200
	lookPages = 5
	// clocksApart is how far Slack's clock may be from Redis's.
	clocksApart = 10 * time.Minute
)

// find looks for a message that was posted at since or later, in a thread if one is
// given; for the first one if there are more. ok is false if there is none, or if Slack
// does not let the app look.
func (b *bot) find(ctx context.Context, id string, thread place, since time.Time) (at place, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, slackTimeout)
	defer cancel()
	channel := thread.Channel
	if channel == "" {
		channel, _, err = b.channelID(ctx)
	}
	oldest := fmt.Sprintf("%d.000000", since.Add(-clocksApart).Unix())
	for cursor, n := "", 0; err == nil && channel != "" && n < lookPages; n++ {
		var found []slack.Message
		if found, cursor, err = b.read(ctx, channel, thread.TS, oldest, cursor); err != nil {
			break
		}
		for _, m := range found {
			ours := m.Metadata.EventType == metadataType && m.Metadata.EventPayload["id"] == id
			if ours && (!ok || m.Timestamp < at.TS) {
				at, ok = place{channel, m.Timestamp}, true
			}
		}
		if cursor == "" {
			break
		}
	}
	code := slackCode(err)
	if err != nil && (isRateLimit(err) || code == "" && !mayNot(err) || slices.Contains(unclear, code)) {
		return place{}, false, &tellError{"look for a message in Slack", err}
	}
	return at, ok, nil
}

// remove deletes a message.
func (b *bot) remove(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, slackTimeout)
	defer cancel()
	if _, _, err := b.api.DeleteMessageContext(ctx, at.Channel, at.TS); err != nil {
		return &tellError{"delete a message in Slack", err}
	}
	return nil
}

// read returns a page of a channel's messages, or of a thread's.
func (b *bot) read(ctx context.Context, channel, thread, oldest, cursor string) (found []slack.Message, next string, err error) {
	if thread != "" {
		found, _, next, err = b.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
			ChannelID: channel, Timestamp: thread, Oldest: oldest, Cursor: cursor, Limit: lookBack, IncludeAllMetadata: true,
		})
		return found, next, err
	}
	history, err := b.api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{
		ChannelID: channel, Oldest: oldest, Cursor: cursor, Limit: lookBack, IncludeAllMetadata: true,
	})
	if err != nil {
		return nil, "", err
	}
	return history.Messages, history.ResponseMetaData.NextCursor, nil
}

// where is the channel as posts name it: by its id as soon as that is known, because a
// renamed channel keeps it.
func (b *bot) where() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.id != "" {
		return b.id
	}
	return b.channel
}

func (b *bot) learn(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id != "" {
		b.id = id
	}
}

// forget makes posts name the channel as it is configured. It says whether that is
// anything new.
func (b *bot) forget() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.id != "" && b.id != b.channel
	b.id = ""
	return known
}

// sight is which channels the app may list.
type sight int

const (
	seesNone sight = iota
	seesPublic
	seesAll
)

// channelID is the id of the channel; "" if it is not among those that the app sees.
func (b *bot) channelID(ctx context.Context) (id string, sees sight, err error) {
	if where := b.where(); isChannelID(where) {
		return where, seesAll, nil
	}
	types := []string{"public_channel", "private_channel"}
	id, err = b.listed(ctx, types)
	if err != nil && mayNot(err) {
		// Private ones need a scope of their own.
		id, err = b.listed(ctx, types[:1])
		if err != nil && mayNot(err) {
			return "", seesNone, nil
		}
		return id, seesPublic, err
	}
	return id, seesAll, err
}

// listed looks for the channel by its name.
func (b *bot) listed(ctx context.Context, types []string) (string, error) {
	name := strings.TrimPrefix(b.channel, "#")
	for cursor := ""; ; {
		channels, next, err := b.api.GetConversationsContext(ctx, &slack.GetConversationsParameters{
			Cursor: cursor, ExcludeArchived: true, Limit: 1000, Types: types,
		})
		if err != nil {
			return "", &tellError{"list the channels of Slack", err}
		}
		for _, c := range channels {
			if c.Name == name {
				b.learn(c.ID)
				return c.ID, nil
			}
		}
		if next == "" || next == cursor {
			return "", nil
		}
		cursor = next
	}
}

// isChannelID tells ids from names, which have no upper-case letters.
func isChannelID(s string) bool {
	return len(s) > 7 && strings.ContainsRune("CGD", rune(s[0])) && strings.ToUpper(s) == s && !strings.ContainsAny(s, "#-_ ")
}
