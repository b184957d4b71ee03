// Package slack notifies people through Slack: with a bot token, which can update messages
// and reply to them, or an incoming webhook, which can do neither.
package slack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/notice"
)

// DefaultAPI is the base of Slack's methods.
const DefaultAPI = "https://slack.com/api/"

// Options configure a notifier. A token or a webhook is required.
type Options struct {
	// Token is the bot token (xoxb-…) of a Slack app in Channel, a name ("#publishing") or
	// an id. It needs the scope chat:write; with channels:read a wrong channel is found at
	// the start, with channels:history no message is posted twice even if Slack's answer is
	// lost.
	Token, Channel string
	// Webhook is an incoming webhook. Each step of an incident is a short message of its
	// own. With a token, the webhook gets what the token may not post (revoked, channel
	// gone).
	Webhook string
	// API is the base of Slack's methods. Default [DefaultAPI].
	API string
	// Mention is the recipient of a page: @name, @here, @channel, @everyone, the id of a user
	// (U…, W…) or of a user group (S…), or any of them in Slack's own form (<@U…>,
	// <!subteam^S…>, <!here>).
	Mention string
	// OnDelivery, if set, observes each message and update.
	OnDelivery notice.Observer
	// Transport makes the HTTP calls. Default: one of its own.
	Transport http.RoundTripper
}

// New returns a notifier. It sends nothing. The error holds all invalid options.
func New(o Options) (notice.Notifier, error) {
	if o.API = cmp.Or(o.API, DefaultAPI); !strings.HasSuffix(o.API, "/") {
		o.API += "/"
	}
	var errs []error
	if (o.Token == "") != (o.Channel == "") {
		errs = append(errs, errors.New("a Slack token and a Slack channel need each other"))
	}
	if o.Token == "" && o.Webhook == "" {
		errs = append(errs, errors.New("neither a Slack token nor a Slack webhook is set"))
	}
	errs = append(errs, notice.CheckURL("the Slack API", o.API))
	if o.Webhook != "" {
		errs = append(errs, notice.CheckURL("the Slack webhook", o.Webhook))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	client := notice.NewHTTPClient(o.Transport)
	r := renderer{mention: mentionText(o.Mention)}
	var h *webhook
	if o.Webhook != "" {
		h = &webhook{client: client, url: o.Webhook, observer: o.OnDelivery, renderer: r}
	}
	if o.Token == "" {
		return h, nil
	}
	readable := *client
	readable.Transport = readableLimits{client.Transport}
	// slack-go's own repetitions are off: they could post twice.
	api := slack.New(o.Token, slack.OptionHTTPClient(&readable), slack.OptionAPIURL(o.API))
	return &bot{api: api, client: client, channel: o.Channel, webhook: h, observer: o.OnDelivery, renderer: r}, nil
}

// service is what a bot and a webhook have in common.
type service struct{}

// Name implements notice.Notifier.
func (service) Name() string { return "slack" }

// Label implements notice.Notifier.
func (service) Label() string { return "Slack" }

// Pager implements notice.Notifier.
func (service) Pager() bool { return false }

// bot posts with a bot token.
type bot struct {
	service
	api      *slack.Client
	client   *http.Client
	channel  string
	webhook  *webhook // nil: none
	observer notice.Observer
	renderer renderer

	mu sync.Mutex
	id string // of the channel, as Slack's answers give it
}

// Close implements notice.Notifier.
func (b *bot) Close() { b.client.CloseIdleConnections() }

// readableLimits removes a Retry-After that slack-go cannot read: it would report no limit.
type readableLimits struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t readableLimits) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && notice.RetryAfter(resp.Header) == 0 {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// place is where a message is: updates and threads need the id of its channel.
type place struct{ channel, ts string }

func (p place) ref() string {
	if p.ts == "" {
		return ""
	}
	return p.channel + "/" + p.ts
}

func placeOf(ref string) place {
	channel, ts, _ := strings.Cut(ref, "/")
	return place{channel, ts}
}

// thread is where a notice is to reply, if it does.
func thread(n *notice.Notice, root *notice.Root) place {
	if !n.Kind.Reply() {
		return place{}
	}
	return placeOf(root.Ref)
}

// Send implements notice.Notifier. A reply whose thread is gone stands by itself, in the
// channel that is configured now.
func (b *bot) Send(ctx context.Context, n *notice.Notice, root *notice.Root) error {
	m := b.renderer.message(n)
	at, err := b.post(ctx, m, n, thread(n, root))
	if thread(n, root).ts != "" && orphaned(err) {
		b.forget()
		if err := root.Extend(ctx); err != nil {
			return err
		}
		if at, err = b.post(ctx, m, n, place{}); err == nil {
			root.Ref = ""
		}
	}
	if err != nil {
		return b.throughWebhook(ctx, n, root, err)
	}
	if !n.Kind.Reply() {
		root.Ref, root.Shown = at.ref(), digest(m)
	}
	return nil
}

// throughWebhook sends what the token may not post, if there is a webhook.
func (b *bot) throughWebhook(ctx context.Context, n *notice.Notice, root *notice.Root, err error) error {
	e, ok := errors.AsType[*notice.Error](err)
	if !ok || !e.Permanent || b.webhook == nil {
		return err
	}
	if err := root.Extend(ctx); err != nil {
		return err
	}
	if b.webhook.Send(ctx, n, root) != nil {
		return err
	}
	return delivered(e)
}

// delivered is an error to be corrected that prevented no delivery.
func delivered(e *notice.Error) error {
	d := *e
	d.Delivered = true
	return &d
}

// metadataType distinguishes Tidegate's messages from others of the app.
const metadataType = "tidegate_alert"

// post posts a message and returns where it is.
func (b *bot) post(ctx context.Context, m message, n *notice.Notice, thread place) (at place, err error) {
	defer func() { b.observer.Observe(notice.ReceiverSlack, notice.KindMessage, err) }()
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	options := append(content(m), slack.MsgOptionMetadata(slack.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"id": n.ID},
	}))
	channel := b.where()
	if thread.ts != "" {
		options = append(options, slack.MsgOptionTS(thread.ts))
		channel = thread.channel // which may not be the one that is configured now
	}
	if n.Attention {
		options = append(options, slack.MsgOptionBroadcast())
	}
	if n.Kind == notice.Page {
		options = append(options, slack.MsgOptionLinkNames(true)) // @name becomes a mention
	}
	channel, ts, err := b.api.PostMessageContext(ctx, channel, options...)
	if err != nil && thread.ts == "" && orphaned(err) && b.forget() {
		// The name may be another channel's by now.
		channel, ts, err = b.api.PostMessageContext(ctx, b.where(), options...)
	}
	if err == nil && ts == "" {
		err = notice.ErrNotTheAPI
	}
	if err != nil {
		return place{}, newError("post to Slack", err)
	}
	if thread.ts == "" {
		b.learn(channel)
	}
	return place{cmp.Or(channel, b.where()), ts}, nil
}

// Update implements notice.Editor. A message that is gone, or may not be edited any more, is
// left as it is.
func (b *bot) Update(ctx context.Context, n *notice.Notice, root *notice.Root) (bool, error) {
	m := b.renderer.message(n)
	next := digest(m)
	if root.Ref == "" || root.Shown == next {
		return false, nil
	}
	if err := root.Extend(ctx); err != nil {
		return false, err
	}
	err := b.update(ctx, placeOf(root.Ref), m)
	e, _ := errors.AsType[*notice.Error](err)
	switch {
	case err == nil:
	case e.Limited:
		return false, err
	case e.Permanent && b.webhook != nil:
		err = delivered(e) // the webhook reports what matters
	case orphaned(err):
		root.Shown = next
		return false, nil
	default:
		return false, err
	}
	root.Shown = next
	return err == nil, err
}

func (b *bot) update(ctx context.Context, at place, m message) (err error) {
	defer func() { b.observer.Observe(notice.ReceiverSlack, notice.KindUpdate, err) }()
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	_, ts, _, err := b.api.UpdateMessageContext(ctx, at.channel, at.ts, content(m)...)
	if err == nil && ts == "" {
		err = notice.ErrNotTheAPI
	}
	if err != nil {
		return newError("update a message in Slack", err)
	}
	return nil
}

func content(m message) []slack.MsgOption {
	return []slack.MsgOption{
		slack.MsgOptionText(m.Text, false), // it is escaped already
		slack.MsgOptionBlocks(m.Blocks...),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
	}
}

// digest changes with a message.
func digest(m message) string {
	raw, err := json.Marshal(m.Blocks)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append(raw, m.Text...))
	return hex.EncodeToString(sum[:8])
}

// SendOnce implements notice.Editor. If two processes post at the same time, the first
// message stays.
func (b *bot) SendOnce(ctx context.Context, n *notice.Notice, root *notice.Root, since time.Time) error {
	if found, err := b.Find(ctx, n, root, since); found || err != nil {
		return err
	}
	if err := b.Send(ctx, n, root); err != nil {
		return err
	}
	mine := placeOf(root.Ref)
	if first, ok, err := b.find(ctx, n.ID, place{}, since); err == nil && ok && first.ts < mine.ts && b.remove(ctx, mine) == nil {
		root.Ref = first.ref()
	}
	return nil
}

// Find implements notice.Editor.
func (b *bot) Find(ctx context.Context, n *notice.Notice, root *notice.Root, since time.Time) (bool, error) {
	at, ok, err := b.find(ctx, n.ID, thread(n, root), since)
	if ok && !n.Kind.Reply() {
		root.Ref, root.Shown = at.ref(), "" // it may show earlier things
	}
	return ok, err
}

const (
	// pageSize messages on each of maxPages pages are searched for one that may have been
	// posted. Alerts are few, but the channel may not be ours alone.
	pageSize = 200
	maxPages = 5
	// clockDifference is how far Slack's clock may be from Redis's.
	clockDifference = 10 * time.Minute
)

// find looks for a message that was posted at since or later, in a thread if one is
// given; for the first one if there are more. ok is false if there is none, or if Slack
// does not let the app look.
func (b *bot) find(ctx context.Context, id string, thread place, since time.Time) (at place, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	channel := thread.channel
	if channel == "" {
		channel, _, err = b.channelID(ctx)
	}
	oldest := fmt.Sprintf("%d.000000", since.Add(-clockDifference).Unix())
	for cursor, n := "", 0; err == nil && channel != "" && n < maxPages; n++ {
		var found []slack.Message
		if found, cursor, err = b.read(ctx, channel, thread.ts, oldest, cursor); err != nil {
			break
		}
		for _, m := range found {
			ours := m.Metadata.EventType == metadataType && m.Metadata.EventPayload["id"] == id
			if ours && (!ok || m.Timestamp < at.ts) {
				at, ok = place{channel, m.Timestamp}, true
			}
		}
		if cursor == "" {
			break
		}
	}
	if err != nil {
		e := newError("look for a message in Slack", err)
		if e.Limited || slackCode(err) == "" && !mayNot(err) || unclear(err) {
			return place{}, false, e
		}
	}
	return at, ok, nil
}

// remove deletes a message.
func (b *bot) remove(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	if _, _, err := b.api.DeleteMessageContext(ctx, at.channel, at.ts); err != nil {
		return newError("delete a message in Slack", err)
	}
	return nil
}

// read returns a page of a channel's messages, or of a thread's.
func (b *bot) read(ctx context.Context, channel, thread, oldest, cursor string) (found []slack.Message, next string, err error) {
	if thread != "" {
		found, _, next, err = b.api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{
			ChannelID: channel, Timestamp: thread, Oldest: oldest, Cursor: cursor, Limit: pageSize, IncludeAllMetadata: true,
		})
		return found, next, err
	}
	history, err := b.api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{
		ChannelID: channel, Oldest: oldest, Cursor: cursor, Limit: pageSize, IncludeAllMetadata: true,
	})
	if err != nil {
		return nil, "", err
	}
	return history.Messages, history.ResponseMetaData.NextCursor, nil
}
