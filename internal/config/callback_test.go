package config

import (
	"strings"
	"testing"
)

const goodSecret = "whsec_cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU="

func TestCallbackErrors(t *testing.T) {
	t.Parallel()
	const url = "DESTINATION_0_CALLBACK_URL=https://app.example.com/hooks"
	for _, tc := range []struct {
		name    string
		environ []string
		want    []string // parts of the one error
	}{
		{"no secret", []string{url}, []string{"DESTINATION_0_CALLBACK_SECRET: is not set", "openssl rand -base64 32"}},
		{"no prefix", []string{url, "DESTINATION_0_CALLBACK_SECRET=hunter2"}, []string{"DESTINATION_0_CALLBACK_SECRET: ", "whsec_"}},
		{"too short", []string{url, "DESTINATION_0_CALLBACK_SECRET=whsec_aHVudGVyMg=="}, []string{"DESTINATION_0_CALLBACK_SECRET: ", "24"}},
		{"one of two", []string{url, "DESTINATION_0_CALLBACK_SECRET=" + goodSecret + ",hunter2"}, []string{"DESTINATION_0_CALLBACK_SECRET: "}},
		{"no address", []string{"DESTINATION_0_CALLBACK_URL=app.example.com", "DESTINATION_0_CALLBACK_SECRET=" + goodSecret}, []string{"DESTINATION_0_CALLBACK_URL: ", "https://"}},
		{"listen", []string{"LISTEN_ADDR=8080"}, []string{`LISTEN_ADDR: "8080" is not an address to listen on`, "127.0.0.1:8080"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(append(one, tc.environ...))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want it to say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "aHVudGVyMg") {
				t.Errorf("the error holds the secret: %q", err)
			}
		})
	}
	_, warnings := load(t, append(one, "DESTINATION_0_CALLBACK_SECRET="+goodSecret)...)
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "DESTINATION_0_CALLBACK_SECRET: is set, but DESTINATION_0_CALLBACK_URL is not") {
		t.Errorf("warnings %q", warnings)
	}
}
