package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Root returns the repository's directory: the working directory or the nearest one
// above it that has docs/benchmarks.md.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("rig: find the repository: %w", err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "docs", "benchmarks.md"))
		if err == nil {
			return dir, nil
		}
		if up := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && up != dir {
			dir = up
			continue
		}
		return "", fmt.Errorf("rig: find the repository from the working directory: %w", err)
	}
}

// WriteSection replaces what stands in docs/benchmarks.md between the markers
//
//	<!-- begin NAME: … -->
//	<!-- end NAME -->
func WriteSection(name, text string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "benchmarks.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("rig: write section %s: %w", name, err)
	}
	updated, err := replaceSection(string(old), name, text)
	if err != nil {
		return fmt.Errorf("rig: write section %s of %s: %w", name, file, err)
	}
	if err := os.WriteFile(file, []byte(updated), 0o644); err != nil { //nolint:gosec // a page for all to read
		return fmt.Errorf("rig: write section %s: %w", name, err)
	}
	return nil
}

func replaceSection(doc, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+":", "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(doc, begin)
	line, rest, ok2 := strings.Cut(rest, "\n")
	_, tail, ok3 := strings.Cut(rest, end)
	if !ok || !ok2 || !ok3 {
		return "", fmt.Errorf("no section between %q and %q", begin+" … -->", end)
	}
	return head + begin + line + "\n" + strings.Trim(text, "\n") + "\n" + end + tail, nil
}

// Table returns the rows, the first of which is the heading, as a Markdown table
// that is also aligned for a terminal. The first columns, so many of them, are
// aligned to the left, the others to the right.
func Table(first int, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], 2, utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i < first {
				b.WriteString("| " + cell + pad + " ")
			} else {
				b.WriteString("| " + pad + cell + " ")
			}
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, w := range width {
			b.WriteString("|-" + strings.Repeat("-", w))
			if i < first {
				b.WriteString("-")
			} else {
				b.WriteString(":")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}
