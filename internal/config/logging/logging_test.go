package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/config"
)

var clock = regexp.MustCompile(`^(\x1b\[2m)?\d\d:\d\d:\d\d\.\d\d\d(\x1b\[0m)? `)

func TestFormats(t *testing.T) {
	t.Parallel()
	const (
		isJSON   = `"level":"INFO","msg":"hello","a":"b"}`
		plain    = "INF hello a=b"
		coloured = "\x1b[92mINF\x1b[0m hello \x1b[2ma=\x1b[0mb"
	)
	tests := []struct {
		format     string
		isTerminal bool
		want       string
	}{
		{"auto", true, coloured},
		{"auto", false, isJSON},
		{"text", true, coloured},
		{"text", false, plain},
		{"json", true, isJSON},
		{"json", false, isJSON},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		log := NewLogger(&out, tt.isTerminal, config.Log{Level: slog.LevelInfo, Format: tt.format}, nil)
		log.Debug("not written")
		log.Info("hello", "a", "b")
		line := out.String()
		if !strings.HasSuffix(line, tt.want+"\n") || strings.Count(line, "\n") != 1 {
			t.Errorf("%s, terminal %t: %q, want one line that ends with %q", tt.format, tt.isTerminal, line, tt.want)
		}
		if tt.want != isJSON && clock.ReplaceAllString(line, "") != tt.want+"\n" {
			t.Errorf("%s, terminal %t: %q does not start with the time", tt.format, tt.isTerminal, line)
		}
	}
}

func TestLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, false, config.Log{Level: slog.LevelError, Format: "text"}, nil)
	log.Warn("no")
	log.Error("yes")
	if got := clock.ReplaceAllString(out.String(), ""); got != "ERR yes\n" {
		t.Errorf("wrote %q", got)
	}
}

func TestCredentialsAreRedacted(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		for _, isTerminal := range []bool{true, false} {
			var out bytes.Buffer
			log := NewLogger(&out, isTerminal, config.Log{Format: format}, nil)
			log.With("Access_Token", "hunter2").WithGroup("password").Info("x",
				"inside", "hunter2", slog.Group("more", "deep", []string{"hunter2"}))
			log.Info("x", "SLACK_SECRET", []byte("hunter2"), "err", config.Secret("hunter2"),
				"Authorization", map[string]string{"a": "hunter2"}, "url", struct{ S config.Secret }{"hunter2"})
			got := out.String()
			if strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMg") {
				t.Errorf("%s: a secret is written: %s", format, got)
			}
			if n := strings.Count(got, config.Redacted); n != 7 {
				t.Errorf("%s: %d values redacted, want 7: %s", format, n, got)
			}
		}
	}
}

// What is secret of the configuration is taken out wherever it stands.
func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := NewLogger(&out, false, config.Log{Format: format}, secret.New("hunter2/x"))
		log.With("url", "https://h/hunter2%2Fx").WithGroup("g").Info("said hunter2/x",
			"error", fmt.Errorf("call: %w", errors.New("with hunter2/x")), "header", map[string]string{"X": "aHVudGVyMi94"}, "body", []byte("hunter2/x"), "n", 1)
		got := out.String()
		if strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMi94") || strings.Count(got, config.Redacted) != 5 {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// TestTextHoldsNoControlCharacters logs what an answer of an API could hold.
func TestTextHoldsNoControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;title\x07b\x1b[2Jc\nINF forged\r\td\u009b31m\u202ee\x00\x7f\xffé"
	const want = "a]0;titleb[2Jc INF forged  d31meé"
	for _, isTerminal := range []bool{true, false} {
		var out bytes.Buffer
		log := NewLogger(&out, isTerminal, config.Log{Format: "text"}, nil)
		log.WithGroup("g").Info(evil, "string", evil, "error", errors.New(evil), "bytes", []byte(evil),
			"any", map[string]string{"k": evil}, evil, 1)
		log.Info("x", "level", evil)
		line := out.String()
		if strings.Count(line, "\n") != 2 {
			t.Errorf("not two lines: %q", line)
		}
		rest := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(strings.ReplaceAll(line, "\n", ""), "")
		if strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || (r >= 0x7f && r < 0xa0) || r == '\u202e' }) {
			t.Errorf("control characters are left: %q", rest)
		}
		if !isTerminal && strings.Contains(line, "\x1b") {
			t.Errorf("colours without a terminal: %q", line)
		}
		if n := strings.Count(rest, want); n != 7 {
			t.Errorf("cleaned text is there %d times, want 7: %q", n, rest)
		}
	}

	var out bytes.Buffer
	NewLogger(&out, false, config.Log{Format: "json"}, nil).Info("x", "body", evil)
	var record map[string]string
	if err := json.Unmarshal(out.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(bytes.TrimSuffix(out.Bytes(), []byte("\n")), "\x1b\n\x07") || !strings.HasPrefix(record["body"], "a\x1b]0;title") {
		t.Errorf("JSON: %q", out.String())
	}
}
