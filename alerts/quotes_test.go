package alerts

import (
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// A quote is in italics; one that begins with the name of the examples' destination is a quote anywhere.
	quoted      = regexp.MustCompile(`(?:^|[^*])\*([A-Za-z0-9][^*\n]*)\*(?:$|[^*])`)
	alternative = regexp.MustCompile(`!\[(?:Message|Page|Reply): ([^]]+)\]\(images/alerts/(\w+)\.svg\)`)
	drawn       = regexp.MustCompile(`>([^<]+)</(?:text|tspan)>`)
	figure      = regexp.MustCompile(`[0-9][0-9,]*`)
)

// plain is text without figures, spaces and the joiners that keep Slack from making links.
func plain(s string) string {
	return strings.ToLower(figure.ReplaceAllString(strings.Join(strings.Fields(strings.ReplaceAll(s, "\u2060", "")), ""), "0"))
}

// texts are all texts of a rendered message.
func texts(v any) string {
	switch v := v.(type) {
	case map[string]any:
		all := ""
		for _, name := range []string{"text", "fallback", "fields", "elements", "blocks"} {
			all += " " + texts(v[name])
		}
		return all
	case []any:
		all := ""
		for _, x := range v {
			all += texts(x)
		}
		return all
	case string:
		return v
	}
	return ""
}

// Messages that the pages quote, and draw, are messages that the code makes.
func TestQuotedMessagesExist(t *testing.T) {
	t.Parallel()
	made := map[string]string{} // by example
	all := ""
	for _, e := range examples() {
		m := rendered(t, e.notice, "S0123ABCD", e.short)
		var blocks any
		if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
			t.Fatal(err)
		}
		made[e.name] = plain(strings.NewReplacer("*", "", "`", "", "&gt;", ">").Replace(texts(blocks)))
		all += plain(m.Text) + "\n" + made[e.name] + "\n"
	}
	exists := func(page, quote string) {
		t.Helper()
		parts := strings.Split(plain(quote), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		if !regexp.MustCompile(strings.Join(parts, ".*")).MatchString(all) {
			t.Errorf("%s quotes %q, which no message says", page, quote)
		}
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := 0
	for _, page := range append(pages, "../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(m[1], "shop") || filepath.Base(page) == "runbook.md" {
					quotes++
					exists(page, m[1])
				}
			}
		}
		for _, m := range alternative.FindAllStringSubmatch(string(raw), -1) {
			quotes++
			exists(page, m[1])
			svg, err := os.ReadFile("../docs/images/alerts/" + m[2] + ".svg")
			if err != nil {
				t.Fatal(err)
			}
			chrome := regexp.MustCompile(`^(Tidegate|APP|\d\d:\d\d|replied to a thread:|today .*|@oncall|shop is still .*)$`)
			for _, d := range drawn.FindAllStringSubmatch(string(svg), -1) {
				text := html.UnescapeString(d[1])
				if !chrome.MatchString(text) && !strings.Contains(made[m[2]], plain(text)) {
					t.Errorf("%s.svg shows %q, which the message does not say: %s", m[2], text, made[m[2]])
				}
			}
		}
	}
	if quotes < 15 {
		t.Errorf("%d quotes were found", quotes)
	}
}
