package alerts

import (
	"context"
	"strings"

	"github.com/slack-go/slack"
)

// Problem is something that keeps alerts from being delivered, or may.
type Problem struct {
	// Of is "Slack" or "PagerDuty".
	Of string
	// Text is what is wrong and what to do, in words and without secrets.
	Text string
	// Fatal says that nothing can be delivered that way until it is mended.
	Fatal bool
}

// Check asks Slack whether it knows the token and the channel. It posts nothing, so
// that it may miss a channel that the app cannot look at; [Alerts.Test] does not.
// It finds nothing of a webhook or of PagerDuty, which cannot be asked without being
// told something.
func (a *Alerts) Check(ctx context.Context) []Problem {
	if a.bot == nil {
		return nil
	}
	problem, err := a.bot.check(ctx)
	switch {
	case ctx.Err() != nil || err == nil && problem == "":
		return nil
	case err == nil:
		return []Problem{{Of: nameOf(toSlack), Text: problem}}
	case needsAPerson(err) && statusOf(err) == 0:
		return []Problem{{Of: nameOf(toSlack), Text: inWords(err), Fatal: true}}
	}
	return []Problem{{Of: nameOf(toSlack), Text: "Slack could not be asked about token and channel: " + inWords(err)}}
}

// check asks for the token and, as far as the app may, for the channel. problem is what
// may be wrong.
func (b *bot) check(ctx context.Context) (problem string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*slackTimeout)
	defer cancel()
	auth, err := b.api.AuthTestContext(ctx)
	if err != nil {
		return "", &tellError{"ask Slack for the token", err}
	}
	if scopes := auth.Header.Get("X-OAuth-Scopes"); scopes != "" && !strings.Contains(scopes, "chat:write") {
		return "", &tellError{"ask Slack for the token", slack.SlackErrorResponse{Err: errMissingScope, Needed: "chat:write"}}
	}
	id, sees, err := b.channelID(ctx)
	switch {
	case err != nil || sees == seesNone:
		return "", err
	case id == "" && sees == seesAll:
		return "", &tellError{"look for the channel in Slack", slack.SlackErrorResponse{Err: errChannelNotFound}}
	case id == "":
		return "the channel is not among those that the Slack app may list. If it is private, set SLACK_CHANNEL to its id; to be sure, run: tidegate alerts test", nil
	}
	c, err := b.api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: id})
	switch {
	case err != nil && mayNot(err):
		return "", nil
	case err != nil:
		return "", &tellError{"ask Slack for the channel", err}
	case c.IsArchived:
		return "", &tellError{"ask Slack for the channel", slack.SlackErrorResponse{Err: "is_archived"}}
	}
	return "", nil
}

// sayProblems logs what is wrong with the configuration.
func (a *Alerts) sayProblems(ctx context.Context) {
	for _, p := range a.Check(ctx) {
		if p.Fatal && a.logOnce(toSlack+p.Text) {
			a.log.ErrorContext(ctx, "alerts cannot be delivered", "to", p.Of, "problem", p.Text)
		} else if !p.Fatal {
			a.log.WarnContext(ctx, "alerts may not be delivered", "to", p.Of, "problem", p.Text)
		}
	}
}
