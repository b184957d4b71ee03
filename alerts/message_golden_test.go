package alerts

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/notice"
)

// updateFiles writes testdata anew: go generate ./alerts
var updateFiles = flag.Bool("update", false, "write the messages' files in testdata")

// TestMessages holds the JSON of one message of each kind, as Slack gets it.
func TestMessages(t *testing.T) {
	t.Parallel()
	if files, err := filepath.Glob("testdata/*.json"); !*updateFiles && (err != nil || len(files) != len(examples())) {
		t.Errorf("%d files of %d messages, %v", len(files), len(examples()), err)
	}
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := rendered(t, e.notice, "S0123ABCD", e.short)
			mustBeValid(t, m, "<!subteam^S0123ABCD>")
			var blocks slack.Blocks
			if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(struct {
				Text   string        `json:"text"`
				Blocks []slack.Block `json:"blocks"`
			}{m.Text, blocks.BlockSet}); err != nil {
				t.Fatal(err)
			}
			compareFile(t, filepath.Join("testdata", e.name+".json"), out.Bytes())
		})
	}
}

// compareFile compares with a file, or writes it.
func compareFile(t *testing.T, path string, got []byte) {
	t.Helper()
	if *updateFiles {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go generate ./alerts", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale; write it anew with: go generate ./alerts\nit would be\n%.2000s", path, got)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 jobs", 1: "1 job", 999: "999 jobs", 1000: "1,000 jobs", 1234567: "1,234,567 jobs", -1000: "-1,000 jobs"} {
		same(t, "count", want, count(n, "job", "jobs"))
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", time.Millisecond: "less than 1 s", 1499 * time.Millisecond: "1 s", 59*time.Second + 600*time.Millisecond: "1 min",
		14*time.Minute + 32*time.Second: "14 min 32 s", 59*time.Minute + 59600*time.Millisecond: "1 h", 2*time.Hour + 5*time.Minute + 29*time.Second: "2 h 5 min",
		48 * time.Hour: "2 d", 76 * time.Hour: "3 d 4 h",
	} {
		same(t, "span", want, span(d))
	}
	for name, want := range map[string]string{"shop/alice@example.com:1": "shop/alice@example.com:1", "$(reboot)*": "'??reboot?*'", "--help": "'--help'"} {
		same(t, "in a command", want, command(mark(notice.StyleCode, plainName(name))))
	}
}
