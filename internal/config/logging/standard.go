package logging

import (
	stdlog "log" //nolint:depguard // to take what others write
	"log/slog"
	"regexp"
	"strings"
)

// SetStandard has what libraries write with package log, by default to stderr, logged by log at debug
// level, without what they quote: net/http quotes what an API has sent after an answer, which may
// repeat credentials. Package log has one logger for the whole process, so the last call counts.
func SetStandard(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(standard{log})
}

type standard struct{ log *slog.Logger }

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Write logs one message.
func (s standard) Write(message []byte) (int, error) {
	s.log.Debug("a library", "detail", quoted.ReplaceAllString(strings.TrimSpace(string(message)), `"…"`))
	return len(message), nil
}
