package config

import (
	"bytes"
	"strings"
	"testing"
)

// {key} is shown as it is written, and a URL that holds it is checked as others are.
func TestKeyInTheURL(t *testing.T) {
	t.Parallel()
	cfg, warnings := load(t, one[0], "DESTINATION_0_URL=http://{key}.example.com/v1?api_key=hunter22&u={key}", "DESTINATION_0_KEY_PATTERN=[a-z]+",
		"DESTINATION_0_AUTH_TOKEN=abcdef", "DESTINATION_0_SIGN_HEADER=X-Sig")
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	if want := "DESTINATION_0_URL=http://{key}.example.com/v1?api_key=[redacted]&u=[redacted]  # set\n"; !strings.Contains(out.String(), want) {
		t.Errorf("printed\n%s\nwant %s", out.String(), want)
	}
	text := strings.Join(warnings, "\n")
	for _, want := range []string{"DESTINATION_0_URL: is http: the token of this destination is sent unencrypted", "DESTINATION_0_SIGN_HEADER: is set, but DESTINATION_0_SIGN_SECRET is not"} {
		if !strings.Contains(text, want) {
			t.Errorf("warnings\n%s\nwant %s", text, want)
		}
	}
	if !strings.Contains(strings.Join(cfg.Secrets(), " "), "hunter22") {
		t.Errorf("the parameter of the URL is not a secret: %v", cfg.Secrets())
	}
}
