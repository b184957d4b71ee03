package alerts

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/internal/testkit/slackpreview"
)

// updateFiles writes testdata and docs/images/alerts anew: go generate ./alerts
var updateFiles = flag.Bool("update", false, "write the messages' files in testdata and docs/images/alerts")

const picturesDir = "../docs/images/alerts"

// TestMessages holds the JSON of one message of each kind, as Slack gets it.
func TestMessages(t *testing.T) {
	t.Parallel()
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

// TestPreviews holds the pictures of the documentation to what the messages are now.
func TestPreviews(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	for _, e := range examples() {
		if e.title == "" {
			continue
		}
		m := rendered(t, e.notice, "S0123ABCD", e.short)
		picture, err := slackpreview.Render(m.Blocks, slackpreview.Options{Title: e.title, Now: e.posted, Thread: e.thread})
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		want[e.name+".svg"] = true
		compareFile(t, filepath.Join(picturesDir, e.name+".svg"), picture)
	}
	files, err := os.ReadDir(picturesDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f.Name()] {
			t.Errorf("%s is of no message", filepath.Join(picturesDir, f.Name()))
		}
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
