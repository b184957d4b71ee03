package rig

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDoCleansUpHoweverItEnds(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for name, tc := range map[string]struct {
		body func(t testing.TB) error
		want string // the error
	}{
		"return": {func(testing.TB) error { return nil }, ""},
		"error":  {func(testing.TB) error { return own }, "own"},
		"Fatalf": {func(t testing.TB) error { t.Fatalf("broken %d", 1); return nil }, "name: broken 1"},
		"Errorf": {func(t testing.TB) error { t.Errorf("first"); return own }, "own\nname: first"},
		"Skip":   {func(t testing.TB) error { t.Skip("no server"); return nil }, "name: no server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var order []string
			var dir string
			err := Do(t.Context(), "name", func(s testing.TB) error {
				dir = s.TempDir()
				s.Cleanup(func() { order = append(order, "first") })
				s.Cleanup(func() { order = append(order, "last") })
				return tc.body(s)
			})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if diff := cmp.Diff([]string{"last", "first"}, order); diff != "" {
				t.Errorf("cleanups (-want +got):\n%s", diff)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

func TestDoReportsWhatFailsInACleanup(t *testing.T) {
	t.Parallel()
	err := Do(t.Context(), "name", func(s testing.TB) error {
		s.Cleanup(func() { s.Error("late") })
		return nil
	})
	if err == nil || err.Error() != "name: late" {
		t.Errorf("error %v, want that of the cleanup", err)
	}
}

func TestDoLetsOtherPanicsThroughAfterCleaningUp(t *testing.T) {
	t.Parallel()
	cleaned := false
	defer func() {
		if v := recover(); v != "boom" || !cleaned {
			t.Errorf("recovered %v, cleaned up %t", v, cleaned)
		}
	}()
	_ = Do(context.Background(), "name", func(s testing.TB) error {
		s.Cleanup(func() { cleaned = true })
		panic("boom")
	})
}

func TestMedian(t *testing.T) {
	t.Parallel()
	in := []float64{3, 1, 2}
	if got := Median(in); got != 2 || in[0] != 3 {
		t.Errorf("Median = %v, and the values are now %v", got, in)
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	const doc = "head\n<!-- begin a: made by x -->\nold\n<!-- end a -->\ntail\n<!-- begin b: y -->\n<!-- end b -->\n"
	got, err := replaceSection(doc, "a", "\nnew\nlines\n\n")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(doc, "old", "new\nlines", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got, err = replaceSection(doc, "b", "text"); err != nil || !strings.Contains(got, "y -->\ntext\n<!-- end b -->\n") {
		t.Errorf("empty section became %q, %v", got, err)
	}
	if _, err := replaceSection(doc, "c", "text"); err == nil {
		t.Error("a section that is not there was replaced")
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	want := "| a    |   bb |\n" +
		"|------|-----:|\n" +
		"| long |   µs |\n" +
		"|      | 1234 |\n"
	got := Table(1, [][]string{{"a", "bb"}, {"long", "µs"}, {"", "1234"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
