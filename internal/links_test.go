package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdFence   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	mdTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchorsOf returns the anchors that GitHub makes of a page's headings.
func anchorsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(mdFence.ReplaceAllString(page, ""), -1) {
		heading := notInSlug.ReplaceAllString(strings.ToLower(mdTarget.ReplaceAllString(m[1], "")), "")
		anchors[strings.ReplaceAll(strings.TrimSpace(heading), " ", "-")] = true
	}
	return anchors
}

// The links between pages lead to files and headings that are there.
func TestLayoutLinks(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	seen := 0
	for page := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join("..", page))
		if os.IsNotExist(err) {
			continue // deleted, not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(mdFence.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			seen++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join("..", page)
			if file != "" {
				target = filepath.Join(filepath.Dir(target), file)
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); err != nil && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			} else if anchor != "" && filepath.Ext(target) == ".md" && !anchorsOf(string(content))[anchor] {
				t.Errorf("%s links to %s, and no heading has that anchor", page, m[1])
			}
		}
	}
	if seen < 100 {
		t.Errorf("found only %d links", seen)
	}
}
