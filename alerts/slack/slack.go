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
	"net/http"
	"strings"
	"sync"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
)

// DefaultAPI is the base of Slack's methods.
const DefaultAPI = "https://slack.com/api/"

// Options configure a notifier. A token or a webhook is required.
type Options struct {
	// Token is the bot token (xoxb-…) of a Slack app in Channel, a name ("#publishing") or
	// an id. It needs the scope chat:write; with channels:read a wrong channel is found at
	// the start.
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
	errs = append(errs, post.CheckURL("the Slack API", o.API))
	if o.Webhook != "" {
		errs = append(errs, post.CheckURL("the Slack webhook", o.Webhook))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	client := post.Client(o.Transport)
	service := service{client, o.OnDelivery, renderer{mention: mentionText(o.Mention)}}
	var hook *webhook
	if o.Webhook != "" {
		hook = &webhook{service, o.Webhook}
	}
	if o.Token == "" {
		return hook, nil
	}
	readable := *client
	readable.Transport = readableLimits{client.Transport}
	// slack-go's own repetitions are off: they could post twice.
	api := slack.New(o.Token, slack.OptionHTTPClient(&readable), slack.OptionAPIURL(o.API))
	return &bot{service: service, api: api, channel: o.Channel, webhook: hook}, nil
}

// service is what a bot and a webhook have in common.
type service struct {
	client   *http.Client
	observer notice.Observer
	renderer renderer
}

// Name implements notice.Notifier.
func (service) Name() string { return "slack" }

// Label implements notice.Notifier.
func (service) Label() string { return "Slack" }

// Pager implements notice.Notifier.
func (service) Pager() bool { return false }

// Close implements notice.Notifier.
func (s service) Close() { s.client.CloseIdleConnections() }

// errNilNotice is of Send.
var errNilNotice = errors.New("slack: send: the notice is nil")

// webhook posts through an incoming webhook, which can neither update a message nor reply to one.
type webhook struct {
	service
	url string
}

// Send implements notice.Notifier.
func (w *webhook) Send(ctx context.Context, n *notice.Notice, _ *notice.Root) (err error) {
	if n == nil {
		return errNilNotice
	}
	defer func() { w.observer.Observe("webhook", "message", err) }()
	off := false
	m := w.renderer.short(n)
	body := slack.WebhookMessage{Text: m.Text, Blocks: &slack.Blocks{BlockSet: m.Blocks}, UnfurlLinks: &off, UnfurlMedia: &off}
	// Slack answers with a code, such as no_service.
	code := func(body []byte) string { return codeOnly(strings.TrimSpace(string(body))) }
	if err := post.JSON(ctx, w.client, w.url, body, code); err != nil {
		return newError("post to Slack's webhook", err)
	}
	return nil
}

// bot posts with a bot token.
type bot struct {
	service
	api     *slack.Client
	channel string
	webhook *webhook // nil: none

	mu sync.Mutex
	id string // of the channel, as Slack gives it
}

// readableLimits removes a Retry-After that slack-go cannot read: it would report no limit.
type readableLimits struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t readableLimits) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && post.RetryAfter(resp.Header) == 0 {
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
// channel that is configured now. The webhook, if there is one, gets what the token may not post.
func (b *bot) Send(ctx context.Context, n *notice.Notice, root *notice.Root) error {
	if n == nil {
		return errNilNotice
	}
	m := b.renderer.message(n)
	in := thread(n, root)
	at, err := b.post(ctx, m, n, in)
	if in.ts != "" && is(err, orphans) {
		b.know("")
		if at, err = b.post(ctx, m, n, place{}); err == nil {
			root.Ref = ""
		}
	}
	if e, ok := errors.AsType[*notice.Error](err); ok && e.Permanent && b.webhook != nil {
		if b.webhook.Send(ctx, n, root) == nil {
			return nil // Check logs what is wrong with the token
		}
	}
	if err == nil && !n.Kind.Reply() {
		root.Ref, root.Shown = at.ref(), digest(m)
	}
	return err
}

// metadataType distinguishes Tidegate's messages from others of the app.
const metadataType = "tidegate_alert"

// post posts a message and returns where it is.
func (b *bot) post(ctx context.Context, m message, n *notice.Notice, thread place) (at place, err error) {
	defer func() { b.observer.Observe(b.Name(), "message", err) }()
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	options := append(content(m), slack.MsgOptionMetadata(slack.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"id": n.ID},
	}))
	channel := cmp.Or(thread.channel, b.known(), b.channel)
	if thread.ts != "" {
		options = append(options, slack.MsgOptionTS(thread.ts))
	}
	if n.Attention {
		options = append(options, slack.MsgOptionBroadcast())
	}
	if n.Kind == notice.Page {
		options = append(options, slack.MsgOptionLinkNames(true)) // @name becomes a mention
	}
	id, ts, err := b.api.PostMessageContext(ctx, channel, options...)
	if err != nil && thread.ts == "" && is(err, orphans) && channel != b.channel {
		b.know("") // the name may be another channel's by now
		id, ts, err = b.api.PostMessageContext(ctx, b.channel, options...)
	}
	if err == nil && ts == "" {
		err = post.ErrNotTheAPI
	}
	if err != nil {
		return place{}, newError("post to Slack", err)
	}
	if thread.ts == "" {
		b.know(id)
	}
	return place{cmp.Or(id, channel), ts}, nil
}

// Update implements notice.Editor. A message that is gone, or may not be edited any more, is
// left as it is; so is one that the token may not edit if there is a webhook, which gets what matters.
func (b *bot) Update(ctx context.Context, n *notice.Notice, root *notice.Root) error {
	m := b.renderer.message(n)
	next := digest(m)
	if root.Ref == "" || root.Shown == next {
		return nil
	}
	err := b.update(ctx, placeOf(root.Ref), m)
	if e, failed := errors.AsType[*notice.Error](err); failed && !is(err, orphans) && !(e.Permanent && b.webhook != nil) {
		return err
	}
	root.Shown = next
	return nil
}

func (b *bot) update(ctx context.Context, at place, m message) (err error) {
	defer func() { b.observer.Observe(b.Name(), "update", err) }()
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
	defer cancel()
	_, ts, _, err := b.api.UpdateMessageContext(ctx, at.channel, at.ts, content(m)...)
	if err == nil && ts == "" {
		err = post.ErrNotTheAPI
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

// known is the id of the channel, "" if it is not known: posts name the channel by it, because a
// renamed channel keeps it.
func (b *bot) known() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

func (b *bot) know(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id = id
}

// isChannelID reports whether it is an id: names have no upper-case letters.
func isChannelID(s string) bool {
	return len(s) > 7 && strings.ContainsRune("CGD", rune(s[0])) && strings.ToUpper(s) == s && !strings.ContainsAny(s, "#-_ ")
}

// errHidden is the error of a channel that the app may not list: it may be there all the same.
var errHidden = errors.New("the Slack app does not see the channel. If it is private, set SLACK_CHANNEL to its id; to be sure, run: tidegate alerts test")

// findChannel is the id of the channel, which the app may not see.
func (b *bot) findChannel(ctx context.Context) (id string, err error) {
	if id := cmp.Or(b.known(), b.channel); isChannelID(id) {
		return id, nil
	}
	types := []string{"public_channel", "private_channel"}
	for cursor := ""; ; {
		list, next, err := b.api.GetConversationsContext(ctx, &slack.GetConversationsParameters{
			Cursor: cursor, ExcludeArchived: true, Limit: 1000, Types: types,
		})
		if err != nil && mayNot(err) && len(types) > 1 {
			types = types[:1] // private ones need another scope
			continue
		}
		if err != nil {
			return "", err
		}
		for _, c := range list {
			if c.Name == strings.TrimPrefix(b.channel, "#") {
				b.know(c.ID)
				return c.ID, nil
			}
		}
		switch {
		case next != "" && next != cursor:
			cursor = next
		case len(types) > 1:
			return "", slack.SlackErrorResponse{Err: errChannelNotFound}
		default:
			return "", errHidden
		}
	}
}

// Check implements notice.Checker. It may miss a channel that the app cannot look at; a
// test does not.
func (b *bot) Check(ctx context.Context) []notice.Problem {
	ctx, cancel := context.WithTimeout(ctx, 2*notice.CallTimeout)
	defer cancel()
	err := b.check(ctx)
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	e := newError("", err)
	p := notice.Problem{Of: b.Label(), Text: e.Problem, Fatal: e.Permanent && slackCode(err) != ""}
	if !p.Fatal && !errors.Is(err, errHidden) {
		p.Text = "Slack could not be asked about token and channel: " + p.Text
	}
	return []notice.Problem{p}
}

// check asks for the token and, as far as the app may, for the channel.
func (b *bot) check(ctx context.Context) error {
	auth, err := b.api.AuthTestContext(ctx)
	if err != nil {
		return err
	}
	if scopes := auth.Header.Get("X-OAuth-Scopes"); scopes != "" && !strings.Contains(scopes, "chat:write") {
		return slack.SlackErrorResponse{Err: errMissingScope, Needed: "chat:write"}
	}
	id, err := b.findChannel(ctx)
	if err != nil && mayNot(err) && !errors.Is(err, errHidden) {
		return nil // the app may not look
	}
	if err != nil {
		return err
	}
	c, err := b.api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: id})
	switch {
	case err != nil && !mayNot(err):
		return err
	case err == nil && c.IsArchived:
		return slack.SlackErrorResponse{Err: "is_archived"}
	}
	return nil
}
