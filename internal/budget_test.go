package internal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// overBudget compares the lines of each package, as scripts/count.sh -v prints them, with the figures of a budget.
func overBudget(counted, budget string) (problems []string) {
	most := map[string]int{}
	for line := range strings.Lines(budget) {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var pkg string
		var n int
		if _, err := fmt.Sscan(line, &n, &pkg); err != nil {
			problems = append(problems, fmt.Sprintf("%q is not a figure and a package", line))
		}
		most[pkg] = n
	}
	for line := range strings.Lines(counted) {
		var pkg string
		var lines int
		if _, err := fmt.Sscan(line, &lines, &pkg); err != nil {
			continue // the sum
		}
		figure, known := most[pkg]
		switch {
		case !known:
			problems = append(problems, fmt.Sprintf("%s has no budget; it has %d lines", pkg, lines))
		case lines > figure:
			problems = append(problems, fmt.Sprintf("%s has %d lines of product, its budget is %d: take lines away, or raise the figure and say why beside it", pkg, lines, figure))
		}
		delete(most, pkg)
	}
	for pkg := range most {
		problems = append(problems, pkg+" has a budget and no lines: remove it")
	}
	return problems
}

// Each package stays within the lines that scripts/budget.txt gives it.
func TestLayoutBudget(t *testing.T) {
	t.Parallel()
	budget, err := os.ReadFile("../scripts/budget.txt")
	if err != nil {
		t.Fatal(err)
	}
	counted, err := exec.CommandContext(t.Context(), filepath.Join("..", "scripts", "count.sh"), "-v").Output()
	if err != nil {
		t.Fatalf("scripts/count.sh: %v", err)
	}
	for _, p := range overBudget(string(counted), string(budget)) {
		t.Errorf("scripts/budget.txt: %s", p)
	}
}

func TestLayoutBudgetIsKept(t *testing.T) {
	t.Parallel()
	const budget = "# Figures\n  12 alerts\n100 jobs # one more script\n"
	for counted, want := range map[string]string{
		"  12 alerts\n   99 jobs\nproduct 111 lines, tests 5": "",
		"  13 alerts\n   99 jobs\n":                           "alerts has 13 lines of product, its budget is 12",
		"  12 alerts\n   99 jobs\n   4 internal/new\n":        "internal/new has no budget; it has 4 lines",
		"  12 alerts\n": "jobs has a budget and no lines",
	} {
		got := strings.Join(overBudget(counted, budget), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", counted, got, want)
		}
	}
}
