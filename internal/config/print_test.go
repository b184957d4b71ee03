package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The document holds what Print prints.
func TestDocument(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, with("DESTINATION_0_AUTH_TOKEN=hunter2")...)
	var out strings.Builder
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(cfg.Document())
	if err != nil {
		t.Fatal(err)
	}
	var decoded Document
	if err := json.Unmarshal(document, &decoded); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, e := range decoded.Items {
		fmt.Fprintf(&lines, "%s=%s  # %s\n", e.Name, e.Value, e.Source)
		if e.Name == "DESTINATION_0_AUTH_TOKEN" && !e.Secret {
			t.Errorf("%s does not count as secret", e.Name)
		}
	}
	if diff := cmp.Diff(out.String(), lines.String()); diff != "" {
		t.Errorf("document differs from Print (-print +document):\n%s", diff)
	}
}

// TestConfigHidesSecrets prints a Config in every way that a debug line might.
func TestConfigHidesSecrets(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, with("REDIS_URL=redis://:hunter2@h/0", "DESTINATION_0_AUTH_TOKEN=hunter2",
		"SLACK_BOT_TOKEN=xoxb-hunter2", "SLACK_CHANNEL=ops", "SLACK_WEBHOOK_URL=https://h/hunter2", "PAGERDUTY_ROUTING_KEY=hunter2")...)
	document, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("config", "cfg", *cfg, "secret", cfg.RedisURL)
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", *cfg), "%+v": fmt.Sprintf("%+v", *cfg), "%#v": fmt.Sprintf("%#v", *cfg),
		"json": string(document), "slog": logged.String(),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows a secret: %s", name, text)
		}
	}
}

// Tokens stand in paths and parameters of URLs, and in headers of any name.
func TestPrintMasksAllThatIsSecret(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "DESTINATION_0_NAME=shop",
		"DESTINATION_0_URL=https://api.example.com/bot123456:ABC-DEF1234ghIkl/sendMessage?sig=hunter2&chat=hunter2&v=1",
		"DESTINATION_0_HEADERS=X-Client:hunter2,Accept:text/plain,X-Version:v2",
		"DESTINATION_0_CALLBACK_URL=https://ops.example.com/hooks/B0123456789hunter2XYZ",
		"DESTINATION_0_CALLBACK_SECRET=whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=")
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"DESTINATION_0_URL=https://api.example.com/[redacted]/sendMessage?sig=[redacted]&chat=[redacted]&v=1  # set\n",
		"DESTINATION_0_HEADERS=Accept:text/plain,X-Client:[redacted],X-Version:v2  # set\n",
		"DESTINATION_0_CALLBACK_URL=https://ops.example.com/hooks/[redacted]  # set\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
	for _, e := range cfg.entries() {
		if strings.Contains(e.Value, Redacted) && !e.Secret {
			t.Errorf("%s=%s is not marked as secret", e.Name, e.Value)
		}
	}
}
