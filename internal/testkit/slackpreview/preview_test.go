package slackpreview

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// texts draws blocks and returns what can be read, one string for each piece, in
// order. It fails if the picture is no XML.
func texts(t *testing.T, blocks string) []string {
	t.Helper()
	out, err := Render([]byte(blocks), Options{Title: "A <test>", Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	inside := false
	d := xml.NewDecoder(strings.NewReader(string(out)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inside = x.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				list = append(list, string(x))
			}
		}
	}
	return list[3:] // behind Tidegate, APP, 12:00
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, blocks string
		want         []string
	}{
		{"header", `[{"type":"header","text":{"type":"plain_text","text":"🔴 shop *is* limited"}}]`, []string{"shop *is* limited"}},
		{
			"mrkdwn", `[{"type":"section","text":{"type":"mrkdwn","text":"*Why:* a &lt;b&gt; ` + "`code`" + `\n<https://e.example|Open> <!here> <@U1>"}}]`,
			[]string{"Why:", "a <b>", "code", "Open", "@here", "@ann"},
		},
		{
			"dates", `[{"type":"section","text":{"type":"mrkdwn","text":"<!date^1795262096^{date_short_pretty} {time_secs}|x>, <!date^1795175696^{date_short_pretty}|x>, <!date^1794000000^{date_short_pretty}|x>"}}]`,
			[]string{"today 11:54:56, yesterday, Nov 6, 2026"},
		},
		{
			"fields", `[{"type":"section","fields":[{"type":"mrkdwn","text":"*A*\n1"},{"type":"mrkdwn","text":"*B*\n2"},{"type":"mrkdwn","text":"*C*\n3"}]}]`,
			[]string{"A", "1", "B", "2", "C", "3"},
		},
		{
			"rich text", `[{"type":"rich_text","elements":[
				{"type":"rich_text_section","elements":[{"type":"text","text":"bold","style":{"bold":true}},{"type":"text","text":" *raw* a\u2060b"}]},
				{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_section","elements":[{"type":"date","timestamp":1795262096,"format":"{time_secs}"},{"type":"text","text":"x","style":{"code":true}}]}]},
				{"type":"rich_text_preformatted","elements":[{"type":"text","text":"one\n# two"}]}]}]`,
			[]string{"bold", "*raw* ab", "11:54:56", "x", "one", "# two"},
		},
		{"button and context", `[{"type":"divider"},{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Open"},"url":"https://e.example"}]},{"type":"context","elements":[{"type":"mrkdwn","text":"small"}]}]`, []string{"Open", "small"}},
	} {
		if diff := cmp.Diff(row.want, texts(t, row.blocks)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	for blocks, want := range map[string]string{
		`{`:                     "slackpreview: decode: unexpected end of JSON input",
		`[{"type":"carousel"}]`: `slackpreview: block 0: type "carousel" is not known`,
		`[{"type":"rich_text","elements":[{"type":"rich_text_quote"}]}]`:                                 `slackpreview: block 0: type "rich_text_quote" is not known`,
		`[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"emoji"}]}]}]`: `slackpreview: block 0: type "emoji" is not known`,
	} {
		if _, err := Render([]byte(blocks), Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", blocks, err, want)
		}
	}
}

// No line is wider than the place that it has, and no character is lost.
func TestWrap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("rate limited until noon ", 30) + strings.Repeat("x", 300) + strings.Repeat("😀", 90)
	runs := []run{{long, style{}}, {long, style{bold: true}}, {long, style{code: true}}}
	read := 0
	for i, line := range wrap(runs, 300, 13) {
		wide := 0.0
		for _, r := range line {
			wide += measure(r.text, r.style, 13)
			read += len(strings.ReplaceAll(r.text, " ", ""))
		}
		if wide > 300 {
			t.Errorf("line %d is %.1f wide: %v", i, wide, line)
		}
	}
	if want := 3 * len(strings.ReplaceAll(long, " ", "")); read != want {
		t.Errorf("%d bytes are left of %d", read, want)
	}
	if got, want := wrap([]run{{"a\n\nb", style{}}}, 100, 13), 3; len(got) != want {
		t.Errorf("%d lines, want %d", len(got), want)
	}
}

// A reply names what it replies to, in one line.
func TestThread(t *testing.T) {
	t.Parallel()
	out, err := Render([]byte(`[]`), Options{Now: noon, Thread: strings.Repeat("a long headline ", 20)})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "a…</text>"); n != 1 || !strings.Contains(string(out), ">replied to a thread:<") {
		t.Errorf("thread of\n%s", out)
	}
}
