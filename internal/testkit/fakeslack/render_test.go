package fakeslack_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // Berlin, wherever the test runs

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/testkit/fakeslack"
)

// asOf is Tuesday, 14 November 2023, 22:13:20 UTC: 23:13:20 in Berlin.
var asOf = time.Unix(1_700_000_000, 0)

func TestRenderBlocks(t *testing.T) {
	t.Parallel()
	m := fakeslack.Message{PostedAt: asOf, Text: "fallback", Blocks: []byte(`[
		{"type":"header","text":{"type":"plain_text","text":"shop is rate limited"}},
		{"type":"section","text":{"type":"mrkdwn","text":"*Why:* it said ` + "`429 &lt;slow *down*&gt;`" + ` 3 times"},
		 "fields":[{"type":"mrkdwn","text":"*Since*\n12:00"},{"type":"mrkdwn","text":"*Jobs waiting*\n1204"},{"type":"mrkdwn","text":"*Key*\nalice"}],
		 "accessory":{"type":"button","text":{"type":"plain_text","text":"Open"},"url":"https://x.example/d"}},
		{"type":"divider"},
		{"type":"section","text":{"type":"mrkdwn","text":"` + "```tidegate breaker get shop\\ntidegate breaker reset shop```" + `"}},
		{"type":"context","elements":[{"type":"mrkdwn","text":"case c1"},{"type":"image","image_url":"https://i","alt_text":"logo"}]},
		{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Dashboard"},"url":"https://x.example"},{"type":"button","text":{"type":"plain_text","text":"Quiet"}}]}
	]`)}
	want := `shop is rate limited

Why: it said ` + "`429 <slow *down*>`" + ` 3 times
Since   Jobs waiting
12:00   1204
Key
alice
[Open] https://x.example/d

────────────────────────────────────────

tidegate breaker get shop
tidegate breaker reset shop

case c1  [logo]

[Dashboard] https://x.example
[Quiet]
`
	if diff := cmp.Diff(want, fakeslack.Render(m, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenderRichText(t *testing.T) {
	t.Parallel()
	m := fakeslack.Message{PostedAt: asOf, Blocks: []byte(`[
		{"type":"rich_text","elements":[
			{"type":"rich_text_section","elements":[{"type":"text","text":"Why: ","style":{"bold":true}},{"type":"text","text":"<!channel> *a* &lt;\u001b[31m"}]},
			{"type":"rich_text_list","style":"bullet","elements":[
				{"type":"rich_text_section","elements":[{"type":"date","timestamp":1700000000,"format":"{date_short_pretty} {time_secs}","fallback":"x"},{"type":"text","text":"  429","style":{"code":true}}]},
				{"type":"rich_text_section","elements":[{"type":"text","text":"the same"}]}]},
			{"type":"rich_text_list","style":"ordered","indent":1,"offset":2,"elements":[
				{"type":"rich_text_section","elements":[{"type":"link","url":"https://x.example","text":"Runbook"}]}]},
			{"type":"rich_text_preformatted","elements":[{"type":"text","text":"tidegate breaker get shop\n# hold:\ntidegate queue pause shop\n"}]},
			{"type":"rich_text_quote","elements":[{"type":"text","text":"one\ntwo"}]},
			{"type":"rich_text_section","elements":[{"type":"usergroup","usergroup_id":"S1"},{"type":"text","text":" "},{"type":"user","user_id":"U1"},{"type":"text","text":" "},{"type":"broadcast","range":"here"},{"type":"text","text":" "},{"type":"emoji","name":"wave"}]}
		]}
	]`)}
	want := `Why: <!channel> *a* &lt;[31m
• today 22:13:20` + "`  429`" + `
• the same
  3. Runbook (https://x.example)
tidegate breaker get shop
# hold:
tidegate queue pause shop
> one
> two
@S1 @U1 @here :wave:
`
	if diff := cmp.Diff(want, fakeslack.Render(m, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenderMarks(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ text, want string }{
		{"until <!date^1700000000^{time}|22:13 UTC>", "until 23:13"},
		{"<!date^1700000000^{date_num} {time_secs}|x>", "2023-11-14 23:13:20"},
		{"<!date^1700000000^{date}, {date_short}, {date_long}|x>", "November 14th, 2023, Nov 14, 2023, Tuesday, November 14th, 2023"},
		{"<!date^1700000000^{date_short_pretty} at {time}|x>", "today at 23:13"},
		{"<!date^1700003600^{date_pretty}|x> <!date^1699900000^{date_long_pretty}|x> <!date^1690000000^{date_pretty}|x>", "tomorrow yesterday July 22nd, 2023"},
		{"<!date^1699999880^{ago}|x> <!date^1700003600^{ago}|x>", "2 minutes ago in 1 hour"},
		{"<!date^1700000000^{time}^https://x.example|x>", "23:13 (https://x.example)"},
		{"<!date^soon^{time}|22:13 UTC> <!date^1700000000^{clock}|x>", "22:13 UTC x"},
		{"&lt;!channel&gt; &amp;amp; <!channel> <!here> <@U123> <!subteam^S1|@oncall> <!subteam^S1> <#C1|alerts>", "<!channel> &amp; @channel @here @U123 @oncall @S1 #alerts"},
		{"<https://x.example/a?b=1&amp;c=2|Runbook> <https://x.example> <mailto:a@x.example|Ann>", "Runbook (https://x.example/a?b=1&c=2) https://x.example Ann (a@x.example)"},
		{"*bold* and (*more bold*) 2*3*4 `a *b* c` *x*", "bold and (more bold) 2*3*4 `a *b* c` x"},
		{"red\x1b[31m\x07\u009b1m\r\ttab", "red[31m1m\ttab"},
	} {
		if got := strings.TrimSuffix(fakeslack.Render(fakeslack.Message{PostedAt: asOf, Text: row.text}, berlin), "\n"); got != row.want {
			t.Errorf("%q:\n got %q\nwant %q", row.text, got, row.want)
		}
	}
}
