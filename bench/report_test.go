package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/markdown"
)

// docs is the directory of the documentation.
var docs = filepath.Join("..", "docs")

// report prints what a benchmark has measured. With -write it also replaces what stands
// in a file of docs between the lines
//
//	<!-- begin SECTION: … -->
//	<!-- end SECTION -->
func report(b *testing.B, file, section, text string) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // says nothing here
	fmt.Print("\n" + text)
	if !*write {
		return
	}
	file = filepath.Join(docs, file)
	old := must(os.ReadFile(file))(b)
	updated := must(markdown.ReplaceSection(string(old), section, text))(b)
	check(b, os.WriteFile(file, []byte(updated), 0o644))
}

// table is short for [markdown.Table].
func table(first int, rows [][]string) string { return markdown.Table(first, rows) }

// count writes a number rounded to three digits, with commas.
func count(n float64) string {
	unit := 1.0
	for n/unit >= 1000 {
		unit *= 10
	}
	text := strconv.FormatFloat(float64(int64(n/unit+0.5))*unit, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func millis(seconds float64) string {
	ms, digits := seconds*1000, 0
	if ms < 10 {
		digits = 1
	}
	return strconv.FormatFloat(ms, 'f', digits, 64) + " ms"
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// median returns the median of a figure of all values: the upper one of the two in the
// middle if their number is even.
func median[T any](values []T, figure func(T) float64) float64 {
	all := make([]float64, len(values))
	for i, v := range values {
		all[i] = figure(v)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// medianOf returns the median of what the rounds return.
func medianOf(rounds int, round func() float64) float64 {
	values := make([]float64, rounds)
	for i := range values {
		values[i] = round()
	}
	return median(values, itself)
}

func itself(v float64) float64 { return v }

func TestMedian(t *testing.T) {
	t.Parallel()
	in := []float64{3, 1, 2}
	if got := median(in, itself); got != 2 || in[0] != 3 {
		t.Errorf("median = %v, and the values are now %v", got, in)
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	const doc = "head\n<!-- begin a: made by x -->\nold\n<!-- end a -->\ntail\n<!-- begin b: y -->\n<!-- end b -->\n"
	got, err := markdown.ReplaceSection(doc, "a", "\nnew\nlines\n\n")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(doc, "old", "new\nlines", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got, err = markdown.ReplaceSection(doc, "b", "text"); err != nil || !strings.Contains(got, "y -->\ntext\n<!-- end b -->\n") {
		t.Errorf("empty section became %q, %v", got, err)
	}
	for _, doc := range []string{"", doc, "<!-- begin c: x -->\nold\n", "old\n<!-- end c -->"} {
		if _, err := markdown.ReplaceSection(doc, "c", "text"); err == nil {
			t.Errorf("a section that is not there was replaced in %q", doc)
		}
	}
}

// TestDocumentsHaveTheirSections holds docs to the benchmarks that write into them.
func TestDocumentsHaveTheirSections(t *testing.T) {
	t.Parallel()
	for section, file := range map[string]string{
		"api": "benchmarks.md", "limits": "benchmarks.md", "drain": "benchmarks.md", "destinations": "benchmarks.md", "fleet": "benchmarks.md", "peers": "benchmarks.md", "publishing": "benchmarks.md", "capacity": "operations.md",
	} {
		doc := must(os.ReadFile(filepath.Join(docs, file)))(t)
		if _, err := markdown.ReplaceSection(string(doc), section, ""); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	want := "| a    |   bb |\n" +
		"|------|-----:|\n" +
		"| long |   µs |\n" +
		"|      | 1234 |\n"
	got := table(1, [][]string{{"a", "bb"}, {"long", "µs"}, {"", "1234"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 7.4: "7", 648.4: "648", 999: "999", 999.6: "1,000", 1234: "1,230", 1764: "1,760", 17_250: "17,300",
		98_765: "98,800", 181_499: "181,000", 1_000_000: "1,000,000", 1_234_567: "1,230,000",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%v) = %q, want %q", n, got, want)
		}
	}
	for seconds, want := range map[float64]string{0.0037: "3.7 ms", 0.0726: "73 ms", 1.2: "1200 ms"} {
		if got := millis(seconds); got != want {
			t.Errorf("millis(%v) = %q, want %q", seconds, got, want)
		}
	}
	if got := megabytes(0); got != "not known on this system" {
		t.Errorf("megabytes(0) = %q", got)
	}
}
