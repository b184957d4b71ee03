package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOAuth(t *testing.T) {
	t.Parallel()
	const key = "CREDENTIALS_KEY=cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU="
	const url, id, secret = "OAUTH_TOKEN_URL=https://auth.example.com/token", "OAUTH_CLIENT_ID=c", "OAUTH_CLIENT_SECRET=hunter2"
	file := "OAUTH_REFRESH_TOKENS_FILE=" + writeFile(t, `{"alice":"r1"}`, 0o600)
	for name, row := range map[string]struct {
		environ  []string // DESTINATION_0_ is put before OAUTH_ and AUTH_
		problems []string
		warnings []string
	}{
		"client credentials": {environ: []string{key, url, id, secret, "OAUTH_SCOPES=a b"}},
		"a public client":    {environ: []string{key, url, id, file}},
		"no key, client credentials": {
			environ:  []string{url, id, secret},
			warnings: []string{"CREDENTIALS_KEY: is not set: each worker fetches its own access tokens for a; set it to what `openssl rand -base64 32` prints"},
		},
		"no key, refresh tokens": {
			environ:  []string{url, id, file},
			warnings: []string{"CREDENTIALS_KEY: is not set: each worker renews the tokens of a by itself, and if the token server rotates refresh tokens they are lost when a worker stops; set it to what `openssl rand -base64 32` prints"},
		},
		"no token endpoint": {
			environ:  []string{key, id, secret},
			problems: []string{"DESTINATION_0_OAUTH_CLIENT_ID: is set without a token endpoint", "DESTINATION_0_OAUTH_CLIENT_SECRET: is set without a token endpoint"},
		},
		"nothing else": {
			environ:  []string{key, url},
			problems: []string{"DESTINATION_0_OAUTH_CLIENT_ID: is not set, and DESTINATION_0_OAUTH_TOKEN_URL is", "DESTINATION_0_OAUTH_CLIENT_SECRET: is not set, and client credentials need it"},
		},
		"two kinds of tokens": {
			environ:  []string{key, url, id, secret, "AUTH_TOKEN=hunter2"},
			problems: []string{"DESTINATION_0_AUTH_TOKEN: is set, and DESTINATION_0_OAUTH_TOKEN_URL too"},
		},
		"a short key": {environ: []string{"CREDENTIALS_KEY=aHVudGVyMg=="}, problems: []string{"CREDENTIALS_KEY: has 7 bytes, not 32"}},
		"unencrypted": {
			environ:  []string{key, "OAUTH_TOKEN_URL=http://auth.example.com/token", id, secret},
			warnings: []string{"DESTINATION_0_OAUTH_TOKEN_URL: is http: the secrets of this destination are sent unencrypted; use https"},
		},
		"credentials in the URL": {environ: []string{key, "OAUTH_TOKEN_URL=https://hunter2@auth.example.com/token", id, secret}, problems: []string{"DESTINATION_0_OAUTH_TOKEN_URL: holds a user or password"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			environ := []string{"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://api.example.com"}
			for _, entry := range row.environ {
				if !strings.HasPrefix(entry, "CREDENTIALS_KEY") {
					entry = "DESTINATION_0_" + entry
				}
				environ = append(environ, entry)
			}
			cfg, warned, err := Load(environ)
			var warnings []string
			for _, w := range warned {
				warnings = append(warnings, w.String())
			}
			var problems []string
			all, _ := errors.AsType[Errors](err)
			for _, one := range all {
				if e, ok := errors.AsType[*Error](one); ok {
					problems = append(problems, e.Variable+": "+e.Problem)
				}
			}
			slices.Sort(problems)
			if diff := cmp.Diff(row.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.warnings, warnings); diff != "" && row.problems == nil {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
			if err == nil && row.environ[len(row.environ)-1] == secret && !slices.Contains(cfg.Secrets(), "hunter2") {
				t.Error("the client's secret is not redacted")
			}
		})
	}
}
