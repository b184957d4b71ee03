package slack

import (
	"context"
	"strings"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/notice"
)

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

// forget makes posts name the channel as it is configured. It returns whether that is
// another name.
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

// channelID is the id of the channel; "" if the app does not see it.
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
			return "", newError("list the channels of Slack", err)
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

// isChannelID reports whether it is an id: names have no upper-case letters.
func isChannelID(s string) bool {
	return len(s) > 7 && strings.ContainsRune("CGD", rune(s[0])) && strings.ToUpper(s) == s && !strings.ContainsAny(s, "#-_ ")
}

// Check implements notice.Checker. It may miss a channel that the app cannot look at; a
// test does not.
func (b *bot) Check(ctx context.Context) []notice.Problem {
	problem, err := b.check(ctx)
	switch {
	case ctx.Err() != nil || err == nil && problem == "":
		return nil
	case err == nil:
		return []notice.Problem{{Of: b.Label(), Text: problem}}
	}
	e := newError("", err)
	if e.Permanent && slackCode(err) != "" {
		return []notice.Problem{{Of: b.Label(), Text: e.Problem, Fatal: true}}
	}
	return []notice.Problem{{Of: b.Label(), Text: "Slack could not be asked about token and channel: " + e.Problem}}
}

// check asks for the token and, as far as the app may, for the channel. problem is what
// may be wrong.
func (b *bot) check(ctx context.Context) (problem string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*notice.CallTimeout)
	defer cancel()
	auth, err := b.api.AuthTestContext(ctx)
	if err != nil {
		return "", err
	}
	if scopes := auth.Header.Get("X-OAuth-Scopes"); scopes != "" && !strings.Contains(scopes, "chat:write") {
		return "", slack.SlackErrorResponse{Err: errMissingScope, Needed: "chat:write"}
	}
	id, sees, err := b.channelID(ctx)
	switch {
	case err != nil || sees == seesNone:
		return "", err
	case id == "" && sees == seesAll:
		return "", slack.SlackErrorResponse{Err: errChannelNotFound}
	case id == "":
		return "the Slack app does not see the channel. If it is private, set SLACK_CHANNEL to its id; to be sure, run: tidegate alerts test", nil
	}
	c, err := b.api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: id})
	switch {
	case err != nil && mayNot(err):
		return "", nil
	case err != nil:
		return "", err
	case c.IsArchived:
		return "", slack.SlackErrorResponse{Err: "is_archived"}
	}
	return "", nil
}

// Test implements notice.Tester: the token, the samples, then the webhook with those that
// it would get.
func (b *bot) Test(ctx context.Context, samples []notice.Sample, try notice.Try) {
	if try(b.Label(), "the bot token", func() error {
		ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
		defer cancel()
		_, err := b.api.AuthTestContext(ctx)
		if err == nil || mayNot(err) { // the next step finds out
			return nil
		}
		return newError("ask Slack for the token", err)
	}) {
		// A message that arrives through the webhook would hide what is wrong with the token.
		tokenOnly := &bot{api: b.api, client: b.client, channel: b.channel, observer: b.observer, renderer: b.renderer}
		notice.Test(ctx, b.Label(), samples, try, tokenOnly)
	}
	if b.webhook != nil {
		var short []notice.Sample
		for _, s := range samples {
			if s.Notice.Short != nil && len(short) < 3 {
				short = append(short, s)
			}
		}
		b.webhook.Test(ctx, short, try)
	}
}
