package alerts

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	all := []string{"chat:write", "channels:read", "groups:read"}
	fatal := func(text string) []notice.Problem { return []notice.Problem{{Of: "Slack", Text: text, Fatal: true}} }
	const unknown = "Slack does not know the channel, or the app may not see it: check SLACK_CHANNEL, and invite the app there with /invite"
	const archived = "the Slack channel is archived: set SLACK_CHANNEL to another one"
	tests := map[string]struct {
		channel string
		scopes  []string
		change  func(s *fakeslack.Slack)
		want    []notice.Problem
	}{
		"all is well":               {"#alerts", all, nil, nil},
		"without the #":             {"alerts", all, nil, nil},
		"an id":                     {fakeslack.DefaultChannel, all, nil, nil},
		"only the right to post":    {"#alerts", []string{"chat:write"}, nil, nil},
		"the same, and a wrong one": {"#nowhere", []string{"chat:write"}, nil, nil},
		"bad token": {"#alerts", all, func(s *fakeslack.Slack) { s.SetToken("xoxb-another") }, fatal(
			"Slack does not accept the bot token: check SLACK_BOT_TOKEN (it starts with xoxb- and belongs to the workspace)",
		)},
		"revoked token": {"#alerts", all, func(s *fakeslack.Slack) { s.SetFault(fakehttp.WithError("token_revoked")) }, fatal(
			"the Slack bot token is not valid any more (token_revoked): install the app again and set SLACK_BOT_TOKEN to its new token",
		)},
		"may not post":           {"#alerts", []string{"channels:read"}, nil, fatal("the Slack app lacks the scope chat:write: add it and install the app again")},
		"no such channel":        {"#nowhere", all, nil, fatal(unknown)},
		"no such id":             {"C0NOWHERE1", all, nil, fatal(unknown)},
		"archived, by its id":    {fakeslack.DefaultChannel, all, archive, fatal(archived)},
		"archived, by its name":  {"#alerts", all, archive, fatal(unknown)},
		"perhaps a private one":  {"#nowhere", []string{"chat:write", "channels:read"}, nil, []notice.Problem{{Of: "Slack", Text: "the Slack app does not see the channel. If it is private, set SLACK_CHANNEL to its id; to be sure, run: tidegate alerts test"}}},
		"Slack is away":          {"#alerts", all, func(s *fakeslack.Slack) { s.SetFault(fakehttp.WithStatus(http.StatusBadGateway)) }, []notice.Problem{{Of: "Slack", Text: "Slack could not be asked about token and channel: it answered with status 502"}}},
		"Slack refuses for long": {"#alerts", all, func(s *fakeslack.Slack) { s.SetFault(fakehttp.RateLimited(60e9)) }, []notice.Problem{{Of: "Slack", Text: "Slack could not be asked about token and channel: it is rate limited for 1m0s"}}},
		"not the API":            {"#alerts", all, func(s *fakeslack.Slack) { s.SetFault(fakehttp.WithStatus(http.StatusNotFound)) }, []notice.Problem{{Of: "Slack", Text: "Slack could not be asked about token and channel: it answered with status 404"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 0)
			b.slack.SetScopes(test.scopes...)
			if test.change != nil {
				test.change(b.slack)
			}
			a := b.worker(func(o *setup) { o.Slack.Channel = test.channel })
			same(t, "problems", test.want, a.Check(t.Context()))
			same(t, "posts", 0, b.slack.Calls("chat.postMessage"))
			// What stands in the way is logged as an error, and once.
			a.logProblems(t.Context())
			a.logProblems(t.Context())
			wantErrors := 0
			if len(test.want) > 0 && test.want[0].Fatal {
				wantErrors = 1
			}
			same(t, "errors in the log", wantErrors, strings.Count(b.log.String(), "level=ERROR"))
		})
	}
}

func archive(s *fakeslack.Slack) {
	s.SetChannel(fakeslack.Channel{ID: fakeslack.DefaultChannel, Name: "alerts", Archived: true})
}

func TestCheckOtherNotifiers(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 0)
	a := b.worker(func(o *setup) { withoutSlack(o); o.Slack.Webhook = b.slack.WebhookURL() })
	same(t, "problems", []notice.Problem(nil), a.Check(t.Context()))
	same(t, "calls", 0, b.slack.Calls()+b.pager.Calls())
}
