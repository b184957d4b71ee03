// Package logging makes the logger of a process.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/lmittmann/tint"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
)

// NewLogger returns a logger that writes to w at l.Level and above.
//
// The format auto is text on a terminal and JSON elsewhere; text is coloured on
// a terminal. Whatever the format, an attribute whose name, or whose group's
// name, speaks of a token, secret, password or authorization is written as
// [config.Redacted], and so are the secrets wherever they stand in messages and
// values. Text is one line per record and holds no control characters
// or escape sequences, wherever the message and attributes come from, so that an
// answer of an API cannot act on the terminal; JSON escapes them.
func NewLogger(w io.Writer, isTerminal bool, l config.Log, secrets *secret.Redactor) *slog.Logger {
	redact := redactor(secrets)
	if l.Format == "json" || l.Format != "text" && !isTerminal {
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

// redactor returns the function that takes secrets out of attributes.
func redactor(secrets *secret.Redactor) func([]string, slog.Attr) slog.Attr {
	return func(groups []string, a slog.Attr) slog.Attr {
		if secret.Attribute(a.Key) || slices.ContainsFunc(groups, secret.Attribute) {
			return slog.String(a.Key, config.Redacted)
		}
		switch a.Value.Kind() {
		case slog.KindString:
			a.Value = slog.StringValue(secrets.Redact(a.Value.String()))
		case slog.KindAny:
			shown := valueText(a.Value.Any())
			if redacted := secrets.Redact(shown); redacted != shown {
				a.Value = slog.StringValue(redacted)
			}
		}
		return a
	}
}

// clean takes out of an attribute what a terminal would act on.
func clean(a slog.Attr) slog.Attr {
	a.Key = oneLine(a.Key)
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(oneLine(a.Value.String()))
	case slog.KindAny:
		if _, isLevel := a.Value.Any().(slog.Level); !isLevel {
			a.Value = slog.StringValue(oneLine(valueText(a.Value.Any())))
		}
	}
	return a
}

// valueText is what fmt makes of a value; a byte slice is text, not numbers.
func valueText(value any) string {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return fmt.Sprintf("%+v", value)
}

// oneLine drops what is not UTF-8 too.
func oneLine(s string) string { return text.OneLine(strings.ToValidUTF8(s, "")) }
