package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

// The lines in docs/operations.md that the table stands between.
const (
	beginMark = "<!-- begin capacity: made by `go run ./internal/bench/capacity -write` -->\n"
	endMark   = "<!-- end capacity -->"
)

// writeSection renews the table in docs/operations.md.
func writeSection(text string) error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "operations.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	updated, err := replaceSection(string(old), text)
	if err != nil {
		return fmt.Errorf("write the table into %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(updated), 0o644); err != nil { //nolint:gosec // a page for all to read
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func replaceSection(doc, text string) (string, error) {
	head, rest, begun := strings.Cut(doc, beginMark)
	_, tail, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return "", errors.New("the lines that the table stands between are missing")
	}
	return head + beginMark + strings.Trim(text, "\n") + "\n" + endMark + tail, nil
}
