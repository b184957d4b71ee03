package config

import (
	"bytes"
	"strings"
	"testing"
)

func TestLoadRefusesRequests(t *testing.T) {
	t.Parallel()
	const shop, keyed = "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://{key}.example.com/v1"
	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"key without pattern": {[]string{shop, keyed}, "DESTINATION_0_KEY_PATTERN: is not set, and DESTINATION_0_URL holds {key}; set it to a regular expression of the keys that may be in the URL, such as [a-z0-9-]{1,40}"},
		"key at the end":      {[]string{shop, "DESTINATION_0_URL=https://{key}/v1", "DESTINATION_0_KEY_PATTERN=a"}, "DESTINATION_0_URL: may hold {key} in its host, but not at the end, in its path or in its query, and nowhere else; write it like https://{key}.example.com/v1"},
		"key by":              {with("DESTINATION_0_KEY_BY=request.path +"), "DESTINATION_0_KEY_BY: \"request.path +\" is not a valid expression: column 14: unexpected token EOF; use one over key, request, payload and priority, such as request.path or key + \":\" + payload.model"},
		"pattern":             {with("DESTINATION_0_KEY_PATTERN=a)|(b"), "DESTINATION_0_KEY_PATTERN: \"a)|(b\" is not a regular expression: error parsing regexp: unexpected ): `a)|(b`; use one of RE2, such as [a-z0-9-]{1,40}"},
		"header":              {with("DESTINATION_0_AUTH_HEADER=X Key"), `DESTINATION_0_AUTH_HEADER: "X Key" is not the name of a header; use letters, digits and hyphens, such as X-Api-Key`},
		"header of ours":      {with("DESTINATION_0_SIGN_HEADER=content-type"), `DESTINATION_0_SIGN_HEADER: "content-type" is a header with another meaning; use one such as X-Api-Key`},
		"scheme":              {with("DESTINATION_0_AUTH_SCHEME=Bearer token"), `DESTINATION_0_AUTH_SCHEME: "Bearer token" is not a scheme; use one word, such as Bearer, Basic or none`},
		"basic":               {with("DESTINATION_0_AUTH_SCHEME=basic", "DESTINATION_0_AUTH_TOKEN=hunter2"), "DESTINATION_0_AUTH_TOKEN: is not what DESTINATION_0_AUTH_SCHEME Basic sends; write user:password, or user: without a password"},
		"query":               {[]string{shop, "DESTINATION_0_URL=https://api.example.com/?key=1", "DESTINATION_0_AUTH_QUERY=key"}, `DESTINATION_0_AUTH_QUERY: "key" is in the query of DESTINATION_0_URL too; take the parameter out of one of them`},
		"header of both":      {with("DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_SIGN_SECRET=hunter3", "DESTINATION_0_SIGN_HEADER=authorization"), `DESTINATION_0_SIGN_HEADER: "authorization" is that of DESTINATION_0_AUTH_HEADER too; name another header`},
		"body":                {with("DESTINATION_0_RESPONSE_BODY_BYTES=2000000"), `DESTINATION_0_RESPONSE_BODY_BYTES: "2000000" is too large; use a whole number from 1 to 1048576`},
	} {
		_, _, err := Load(test.environ)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: %v\nwant %s", name, err, test.want)
		}
	}
}

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
