// Package markdown writes tables into documents, for the commands that measure them.
package markdown

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Table returns the rows, the heading first, as a table that is also aligned for a terminal: the first columns to the
// left, the others to the right.
func Table(first int, rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], 2, utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		var rule strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			dashes := "|-" + strings.Repeat("-", width[i])
			if i < first {
				b.WriteString("| " + cell + pad + " ")
				rule.WriteString(dashes + "-")
			} else {
				b.WriteString("| " + pad + cell + " ")
				rule.WriteString(dashes + ":")
			}
		}
		b.WriteString("|\n")
		if n == 0 {
			b.WriteString(rule.String() + "|\n")
		}
	}
	return b.String()
}

// ReplaceSection returns the document with another text between the lines
//
//	<!-- begin NAME: … -->
//	<!-- end NAME -->
func ReplaceSection(doc, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+":", "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(doc, begin)
	line, rest, ok2 := strings.Cut(rest, "\n")
	_, tail, ok3 := strings.Cut(rest, end)
	if !ok || !ok2 || !ok3 {
		return "", fmt.Errorf("no section between %q and %q", begin+" … -->", end)
	}
	return head + begin + line + "\n" + strings.Trim(text, "\n") + "\n" + end + tail, nil
}
