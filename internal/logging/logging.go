// Package logging makes the logger of a process.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"unicode"

	"github.com/lmittmann/tint"

	"github.com/tidegate/tidegate/internal/config"
)

// NewLogger returns a logger that writes to w at l.Level and above.
//
// The format auto is text on a terminal and JSON elsewhere; text is coloured on
// a terminal. Whatever the format, an attribute whose name, or whose group's
// name, speaks of a token, secret, password or authorization is written as
// [config.Redacted]. Text is one line per record and holds no control characters
// or escape sequences, wherever the message and attributes come from, so that an
// answer of an API cannot act on the terminal; JSON escapes them.
func NewLogger(w io.Writer, isTerminal bool, l config.Log) *slog.Logger {
	text := l.Format == "text" || (l.Format != "json" && isTerminal)
	if !text {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l.Level, ReplaceAttr: redact}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level:      l.Level,
		TimeFormat: "15:04:05.000",
		NoColor:    !isTerminal,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			return clean(redact(groups, a))
		},
	}))
}

// credentialNames are parts of names that attributes with credentials have.
var credentialNames = []string{"token", "secret", "password", "passwd", "authorization", "credential", "api_key", "apikey", "cookie"}

func redact(groups []string, a slog.Attr) slog.Attr {
	if isCredential(a.Key) || slices.ContainsFunc(groups, isCredential) {
		return slog.String(a.Key, config.Redacted)
	}
	return a
}

func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(credentialNames, func(part string) bool { return strings.Contains(name, part) })
}

// clean takes out of an attribute what a terminal would act on.
func clean(a slog.Attr) slog.Attr {
	a.Key = printable(a.Key)
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(printable(a.Value.String()))
	case slog.KindAny:
		if _, isLevel := a.Value.Any().(slog.Level); !isLevel {
			a.Value = slog.StringValue(printable(text(a.Value.Any())))
		}
	}
	return a
}

// text is what fmt makes of a value; a byte slice is text, not numbers.
func text(value any) string {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return fmt.Sprintf("%+v", value)
}

// printable replaces white space of any kind by a space and drops control
// characters (C0, DEL, C1), with them what starts an escape sequence, and
// characters that change the direction of text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
}
