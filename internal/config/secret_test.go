package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSecret(t *testing.T) {
	t.Parallel()
	s := Secret("hunter2")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%t", "%U"} {
		for _, text := range []string{fmt.Sprintf(verb, s), fmt.Sprintf(verb, []Secret{s}), fmt.Sprintf(verb, struct{ S Secret }{s})} {
			if !strings.Contains(text, Redacted) || strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
	if got, want := fmt.Sprintf("%#v", s), `config.Secret("[redacted]")`; got != want {
		t.Errorf("%%#v prints %s, want %s", got, want)
	}
	if got, err := json.Marshal(map[string]Secret{"a": s}); err != nil || string(got) != `{"a":"[redacted]"}` {
		t.Errorf("JSON %s, %v", got, err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "a", s, slog.Group("g", "b", []Secret{s}))
	if strings.Contains(logged.String(), "hunter2") || !strings.Contains(logged.String(), Redacted) {
		t.Errorf("slog wrote %s", logged.String())
	}
	if got := s.Reveal(); got != "hunter2" {
		t.Errorf("Reveal() = %q", got)
	}
	if got := fmt.Sprintf("%s|%v|%q", Secret(""), Secret(""), Secret("")); got != `||""` {
		t.Errorf("empty secret prints %s", got)
	}
	var read Secret
	if err := json.Unmarshal([]byte(`"hunter2\r\n\n"`), &read); err != nil || read.Reveal() != "hunter2" {
		t.Errorf("UnmarshalText made %q, %v", read.Reveal(), err)
	}
}

func TestSecretsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t,
		"REDIS_URL=redis-sentinel://app:hunter2@h1,h2/0?master=mymaster&sentinel_password=hunter3",
		"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items?sig=hunter4&v=1",
		"DESTINATION_0_AUTH_TOKEN=hunter5", "DESTINATION_0_HEADERS=X-Api-Key:hunter6,Accept:text/plain",
		"DESTINATION_0_CALLBACK_URL=https://app.example.com/hooks/B0123456789hunter7XYZ",
		"DESTINATION_0_CALLBACK_SECRET=whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=",
		"SLACK_BOT_TOKEN=hunter8", "SLACK_CHANNEL=#ops", "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T0/B0/hunter9hunter9hunter9",
		"PAGERDUTY_ROUTING_KEY=hunter10",
		"DESTINATION_1_NAME=art", "DESTINATION_1_URL=https://art.example.com", "DESTINATION_1_OAUTH_TOKEN_URL=https://art.example.com/token",
		"DESTINATION_1_OAUTH_CLIENT_ID=me", "DESTINATION_1_OAUTH_CLIENT_SECRET=hunter/11",
		"DESTINATION_2_NAME=basic", "DESTINATION_2_URL=https://basic.example.com", "DESTINATION_2_AUTH_SCHEME=Basic", "DESTINATION_2_AUTH_TOKEN=me:hunter12")
	got := cfg.Secrets()
	slices.Sort(got)
	want := []string{
		"B0123456789hunter7XYZ", "aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=", "app:hunter2", "hunter/11", "hunter10", "hunter12", "hunter2", "hunter3", "hunter4", "hunter5",
		"hunter6", "hunter8", "hunter9hunter9hunter9", "me:hunter%2F11", "me:hunter/11", "me:hunter12", "whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=",
	}
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A password is found wherever Redis's URL may hold one; the user's name, which may be
// tidegate, stands in any text.
func TestSecretsOfRedisURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		"redis://tidegate:hunter2@h":                          {"hunter2", "tidegate:hunter2"},
		" REDIS://:hunter%402@h:6379":                         {":hunter@2", "hunter@2"},
		"redis-cluster://app:hunter%5E2%7C@h1:6379,h2:6379/0": {"app:hunter^2|", "hunter^2|"},
		"redis://:abc@h":                                      {":abc"},
		"redis://h":                                           nil,
	} {
		got := (&Config{Redis: Redis{RedisURL: Secret(raw)}}).Secrets()
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want time.Duration
	}{
		{"0", 0},
		{"500ms", 500 * time.Millisecond},
		{"30s", 30 * time.Second},
		{"1h30m", 90 * time.Minute},
		{"7d", 168 * time.Hour},
		{"2w", 336 * time.Hour},
		{"1.5d", 36 * time.Hour},
		{".5w", 84 * time.Hour},
		{"1w2d3h", 219 * time.Hour},
		{"-1d", -24 * time.Hour},
		{"106751d", 106751 * 24 * time.Hour},
	}
	for _, tt := range tests {
		if got, err := ParseDuration(tt.in); err != nil || got != tt.want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "7", "d", "7days", "5md", "1d 2h", "106752d", "1e300w", "9999999999999999999999w", "NaNd", "🙂"} {
		got, err := ParseDuration(in)
		want := quote(in) + " is not a duration; write one such as 30s, 5m, 24h or 7d"
		if err == nil || err.Error() != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want error %s", in, got, err, want)
		}
	}
	for in, want := range map[time.Duration]string{
		0: "0s", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", 30 * time.Second: "30s",
		time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m", 1500 * time.Millisecond: "1.5s",
	} {
		got := FormatDuration(in)
		if back, err := ParseDuration(got); got != want || err != nil || back != in {
			t.Errorf("FormatDuration(%v) = %q (read back %v, %v), want %q", in, got, back, err, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("https://api.example.com", "a:b", "429", "30s", "redis://h")
	f.Add("https://u:p@h", "a", "1,2", "1w", "redis-sentinel://a,b/0?master=m")
	f.Fuzz(func(t *testing.T, url, headers, statuses, duration, redis string) {
		environ := []string{
			"DESTINATION_0_NAME=a", "DESTINATION_0_URL=" + url, "DESTINATION_0_HEADERS=" + headers,
			"DESTINATION_0_RATE_LIMITED_STATUS=" + statuses, "DESTINATION_0_TIMEOUT=" + duration, "REDIS_URL=" + redis,
		}
		cfg, _, err := Load(environ)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("Load(%q) = %v, %v", environ, cfg, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\r\x00\x1b") {
			t.Fatalf("error holds control characters: %q", err)
		}
	})
}

// A process takes out all secrets that its file has ever held.
func TestShareRedactor(t *testing.T) {
	var cfg *Config
	for _, token := range []string{"first-token", "second-token", "third-token"} {
		next := &Config{Destinations: []Destination{{AuthToken: Secret(token)}}}
		if cfg != nil {
			next.ShareRedactor(cfg)
		}
		next.Redactor()
		cfg = next
	}
	if got := cfg.Redactor().Redact("first-token second-token third-token"); strings.Contains(got, "token") {
		t.Error(got)
	}
}
