package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/base/text"
)

// withFile loads variables and a destinations file.
func withFile(t *testing.T, content string, environ ...string) (*Config, []Warning, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(append(environ, "DESTINATIONS_FILE="+name))
}

const exampleOfFile = `
defaults: {timeout: 20s, circuit_breaker: {failure_threshold: 2}}
destinations:
  shop:
    url: https://shop.example.com/v1
    rate: 60/1h@UTC
    timeout: 5s
    headers: {X-Client: app, Accept: text/plain}
    rate_limited_status: [429, 403]
    permanent_status: [400]
    token_env: SHOP
  posts:
    url: https://posts.example.com/v1
    circuit_breaker: {enabled: false}
`

// A file says what variables would say; what variables say wins.
func TestFileBesideVariables(t *testing.T) {
	cfg, _, err := withFile(t, exampleOfFile, "SHOP=secret", "DESTINATION_0_NAME=posts", "DESTINATION_0_TIMEOUT=1s", "DESTINATION_0_URL=https://other.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Destinations) != 2 {
		t.Fatalf("%d destinations", len(cfg.Destinations))
	}
	var got []string
	for _, d := range cfg.Destinations {
		got = append(got, fmt.Sprint(d.Name, " ", d.URL, " ", d.Timeout, " ", d.Rate, " ", d.Headers, " ", d.RateLimitedStatus, " ", d.AuthToken.Reveal(), " ", d.Breaker.FailureThreshold, " ", d.Breaker.Enabled))
	}
	want := []string{
		"posts https://other.example.com/ 1s  map[] [429]  2 false",
		"shop https://shop.example.com/v1 5s 60/1h@UTC map[Accept:[text/plain] X-Client:[app]] [403 429] secret 2 true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	if err := cfg.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"DESTINATION_1_RATE=60/1h@UTC  # d.yaml:6", "DESTINATION_0_TIMEOUT=1s  # set", "DESTINATION_0_CIRCUIT_BREAKER_ENABLED=false  # d.yaml:14",
		"DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD=2  # d.yaml:2", "DESTINATION_1_AUTH_TOKEN=[redacted]  # d.yaml:11",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	if strings.Contains(b.String(), "secret") {
		t.Error("a secret is printed")
	}
}

// Named limits are shown, converted and complete.
func TestNamedLimitsInFile(t *testing.T) {
	const content = `limits:
  requests: {rate: [500/1m, 9/1d@UTC]}
  tokens: {rate: "200000/1m:20000", concurrency: 10, unit: tokens, key: payload.model}
defaults: {limits: [requests]}
destinations:
  chat:
    url: https://a.example.com/
    limits:
      - requests
      - &tokens {name: tokens, estimate: "max(payload.a, payload.b)", actual: body.usage.total_tokens}
  pictures: {url: https://a.example.com/}
  none: {url: https://a.example.com/, limits: []}
  alias: {url: https://a.example.com/, limits: [*tokens]}
`
	cfg, _, err := withFile(t, content)
	if err != nil {
		t.Fatal(err)
	}
	converted, err := cfg.Convert()
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := withFile(t, string(converted))
	if err != nil {
		t.Fatalf("%v in\n%s", err, converted)
	}
	for i, d := range again.Destinations {
		if !reflect.DeepEqual(d.Limits, cfg.Destinations[i].Limits) || len(d.Limits) != []int{2, 1, 0, 1}[i] {
			t.Errorf("limits of %s are %v, want %v", d.Name, d.Limits, cfg.Destinations[i].Limits)
		}
	}
	tokens := cfg.Destinations[0].Limits[1]
	if got := strings.TrimSpace(fmt.Sprintln(tokens.Rate, tokens.Concurrency, tokens.Unit, tokens.Key, tokens.Estimate, tokens.Actual)); got != "200000/1m:20000 10 tokens payload.model max(payload.a, payload.b) body.usage.total_tokens" {
		t.Errorf("tokens are %s", got)
	}
	var b strings.Builder
	if err := cfg.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"DESTINATION_1_LIMITS=[requests]  # d.yaml:4", "limits.requests={rate: '500/1m,9/1d@UTC'}  # d.yaml:2",
		`limits.tokens={rate: '200000/1m:20000', concurrency: 10, unit: tokens, key: payload.model}  # d.yaml:3`,
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("%q is missing in\n%s", line, b.String())
		}
	}
}

// Each mistake is named with its place and what to do; none is passed over.
func TestMistakesInFile(t *testing.T) {
	for _, test := range []struct{ content, want string }{
		{"", `DESTINATIONS_FILE: d.yaml: is empty; write defaults, limits and destinations in YAML`},
		{"destinations: {a: [", `DESTINATIONS_FILE: d.yaml: line 1: `},
		{"destinations: {}\n---\nx: 1", `holds more than one YAML document`},
		{"destination: {}", `d.yaml:1:1: destination: is not a setting; did you mean destinations?`},
		{"destinations: [a]", `d.yaml:1:15: destinations: is not a mapping; write names with their values below it`},
		{"destinations:\n  a: {url: https://a.example.com/, tmeout: 1s}", `d.yaml:2:36: destinations.a.tmeout: is not a setting; did you mean timeout?`},
		{"destinations:\n  a: {url: https://a.example.com/, token_fiel: x}", `d.yaml:2:36: destinations.a.token_fiel: is not a setting; did you mean token_file?`},
		{"destinations:\n  a: {url: https://a.example.com/, timeout: soon}", `d.yaml:2:36: destinations.a.timeout: "soon" is not a duration`},
		{"destinations:\n  a: {url: https://a.example.com/}\n  a: {}", `d.yaml:3:3: destinations.a: is given twice; keep one`},
		{"destinations:\n  a: {url: https://a.example.com/, url: x}", `destinations.a.url: is given twice`},
		{"destinations:\n  a: {rate: 1/1s}", `d.yaml:2:3: destinations.a.url: is required but not set; set it`},
		{"destinations:\n  A: {url: https://a.example.com/}", `d.yaml:2:3: destinations.A: "A" `},
		{"destinations:\n  a: {url: https://a.example.com/, auth_token: x-secret}", `destinations.a.auth_token: is a secret, which this file may not hold; give auth_token_file or auth_token_env`},
		{"destinations:\n  a: {url: https://a.example.com/, token_env: NONE}", `destinations.a.token_env: names "NONE", a variable that is not set`},
		{"destinations:\n  a: {url: https://a.example.com/, headers: {Authorization: x-secret}}", `destinations.a.headers: holds the secret header "Authorization": give all headers by headers_file`},
		{"destinations:\n  a: {url: https://a.example.com/, token_env: x-secret}", `destinations.a.token_env: names a variable that is not set`},
		{"destinations:\n  a: {url: https://a.example.com/, headers: 'X-A:b, X-Api-Key:x-secret'}", `destinations.a.headers: holds the secret header "X-Api-Key"`},
		{"destinations:\n  a: {url: https://a.example.com/, headers: ['X-Api-Key:x-secret']}", `destinations.a.headers: holds the secret header "X-Api-Key"`},
		{"destinations:\n  a: {url: https://a.example.com/, timeout: }", `destinations.a.timeout: has no value`},
		{"destinations:\n  a: {url: https://a.example.com/, timeout: {a: {b: c}}}", `destinations.a.timeout: holds a part that is not a plain text`},
		{"destinations:\n  a: {url: 'https://{key}.example.com/'}", `destinations.a.key_pattern: is not set, and url holds {key}`},
		{"limits:\n  a: {rates: 1/1s}", `d.yaml:2:7: limits.a.rates: is not a setting; did you mean rate?`},
		{"limits:\n  a: {unit: tokens}", `d.yaml:2:3: limits.a: limits nothing; give it a rate`},
		{"limits:\n  A: {rate: 1/1s}", `d.yaml:2:3: limits.A: is not a name of a limit`},
		{"limits:\n  a: {rate: 1, concurrency: 0, unit: 'a b', key: payload.}", `d.yaml:2:16: limits.a.concurrency: "0" is not a whole number, 1 or more`},
		{"limits:\n  a: {rate: 1, concurrency: 0, unit: 'a b', key: payload.}", `d.yaml:2:32: limits.a.unit: "a b" is not a unit`},
		{"limits: {tokens: {rate: 9/1s}}\ndestinations:\n  a:\n    url: https://a.example.com/\n    limits: [\n      token]", `d.yaml:5:5: destinations.a.limits: names limit "token", which is not defined; did you mean tokens?`},
		{"limits: {calls: {rate: 9/1s}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [{name: calls, estimate: payload.n}]}", `gives an estimate or actual of "calls", whose unit is calls; set the unit of calls, such as unit: tokens`},
		{"limits: {tokens: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [{name: tokens, actuals: body.n}]}", `d.yaml:3:36: destinations.a.limits: "actuals" is not a setting of a limit here; did you mean actual?`},
		{"limits: {tokens: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [{name: tokens, actual: bdy.n}]}", `the actual of tokens is not a valid expression`},
		{"limits: {a: {rate: 9/1s}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [a, a, b, c, d, e, f, g, h]}", `names 9 limits, which is more than 8`},
		{"limits: {a: {rate: 9/1s}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [a, a]}", `names "a" twice; keep one`},
		{"limits: {t: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [{name: t, estimate: [payload.n]}]}", `destinations.a.limits: the estimate of a limit is not a text`},
		{"limits: {t: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [{name: t, name: u}]}", `destinations.a.limits: line 3: mapping key "name" already defined at line 3`},
		{"limits: {t: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: {name: t}}", `destinations.a.limits: is not a list`},
		{"limits: {t: {rate: 9/1s, unit: t}}\ndestinations:\n  a: {url: https://a.example.com/, limits: [[t]]}", `destinations.a.limits: an item has no name of a limit`},
		{"defaults: {ur: x}\ndestinations: {}", `d.yaml:1:12: defaults.ur: is not a setting; did you mean url?`},
		{"destinations: {a: {url: https://a.example.com/, name: b}}", `destinations.a.name: is not a setting`},
	} {
		_, _, err := withFile(t, test.content)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q:\n got %v\nwant %s", test.content, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "x-secret") {
			t.Errorf("%q: a secret is in the error", test.content)
		}
	}
	if _, _, err := Load([]string{"DESTINATIONS_FILE=/none.yaml"}); err == nil || !strings.Contains(err.Error(), "DESTINATIONS_FILE: cannot read file") {
		t.Error(err)
	}
}

// A mapping of settings may be written once, and more destinations than there can be are one mistake.
func TestManyDestinationsInFile(t *testing.T) {
	cfg, _, err := withFile(t, "destinations:\n  a: {url: https://a.example.com/, circuit_breaker: &b {failure_threshold: 7}}\n  b: {url: https://b.example.com/, circuit_breaker: *b}\n")
	if err != nil || cfg.Destinations[1].Breaker.FailureThreshold != 7 {
		t.Errorf("an alias: %v", err)
	}
	content := "destinations:\n"
	for i := range maxDestinations + 50 {
		content += fmt.Sprintf("  d-%d: {url: https://a.example.com/}\n", i)
	}
	_, _, err = withFile(t, content)
	if want := fmt.Sprintf("d.yaml:%d:3: destinations.d-%d: is one more than %d, which is the most; split the destinations between workers", maxDestinations+2, maxDestinations, maxDestinations); err == nil || err.Error() != want {
		t.Errorf("got %.300v\nwant %s", err, want)
	}
}

// A file that would take seconds to decode is refused before, and says why; a long list of mistakes has an end.
func TestHostileFile(t *testing.T) {
	t.Parallel()
	repeat := strings.Repeat
	const wide, deep = "holds more than 100000 lines and values, which is the most", "is nested more than 100 deep"
	for name, row := range map[string]struct{ content, want string }{
		"deep lists":     {"destinations: " + repeat("[", 9000) + repeat("]", 9000), "d.yaml: line 1: " + deep},
		"deep objects":   {"\ndestinations: {a: {limits: " + repeat("{a: ", 9000) + repeat("}", 9002), "d.yaml: line 2: " + deep},
		"many deep ones": {"destinations: [" + repeat(repeat("[", 90)+repeat("]", 90)+",", 20_000) + "]", wide},
		"many values":    {"destinations: {" + repeat("a,", 1_000_000) + "}", wide},
		"many lines":     {"destinations: {}\n" + repeat("#\n", 1_000_000), "d.yaml: line 100000: " + wide},
		"many in one":    {"destinations:\n  " + repeat("- ", 1_000_000), wide},
	} {
		if _, _, err := withFile(t, row.content); err == nil || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 300 {
			t.Errorf("%s: %.300v\nwant %s", name, err, row.want)
		}
	}
	common := "defaults: &d {rate: 1/1s}\ndestinations:\n"
	for i := range 100 {
		common += fmt.Sprintf("  d%d:\n    url: https://api.example.com/\n    <<: *d\n", i)
	}
	_, _, err := withFile(t, common)
	lines := strings.Split(fmt.Sprint(err), "\n")
	const first, last = "d.yaml:5:5: destinations.d0.<<: is not a setting; merge keys are not read; write what destinations share under defaults", "and 80 more problems; correct these first"
	if len(lines) != 21 || lines[0] != first || !strings.HasPrefix(lines[1], "d.yaml:8:5:") || lines[20] != last {
		t.Errorf("%d lines: %.400v … %s", len(lines), err, lines[len(lines)-1])
	}
	if _, _, err := withFile(t, "destinations: {a: {url: https://api.example.com/, ? "+repeat("x", 100_000)+" : 1}}"); err == nil || len(err.Error()) > 500 {
		t.Errorf("a long name: %.500v", err)
	}
	// What large but honest files hold is none of that.
	if err := text.CheckYAML([]byte(repeat("  shop:\n    when: body matches \"[{\" && a == [1, 2] # - {[\n    limits: [{name: a}, b]\n", 5_000))); err != nil {
		t.Error(err)
	}
}

// What Convert writes means what the variables mean.
func TestConvert(t *testing.T) {
	variables := []string{
		"DESTINATION_0_NAME=shop-eu", "DESTINATION_0_PRESET=shopify", "DESTINATION_0_URL=https://{key}.example.com/", "DESTINATION_0_KEY_PATTERN=[a-z]+: #x",
		"DESTINATION_0_HEADERS=X-Client:shop,Accept:text/plain", "DESTINATION_0_AUTH_TOKEN=secret", "DESTINATION_0_TRUST_OUTCOME=true", "DESTINATION_0_RATE=60/1h@UTC",
		"DESTINATION_1_NAME=posts", "DESTINATION_1_URL=https://posts.example.com/", "DESTINATION_1_CIRCUIT_BREAKER_COOLDOWN_MS=1000", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=7",
	}
	want, _, err := Load(variables)
	if err != nil {
		t.Fatal(err)
	}
	converted, err := want.Convert()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(converted), "secret") || !strings.HasPrefix(string(converted), "# Set SHOP_EU_HEADERS to what DESTINATION_0_HEADERS holds.\n") &&
		!strings.HasPrefix(string(converted), "# Set SHOP_EU_AUTH_TOKEN to what DESTINATION_0_AUTH_TOKEN holds.\n") {
		t.Errorf("%s", converted)
	}
	got, _, err := withFile(t, string(converted), "SHOP_EU_AUTH_TOKEN=secret", "SHOP_EU_HEADERS=X-Client:shop,Accept:text/plain", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=7")
	if err != nil {
		t.Fatalf("%v\n%s", err, converted)
	}
	if !reflect.DeepEqual(want.Destinations, got.Destinations) {
		t.Errorf("%+v\n%+v\n%s", want.Destinations, got.Destinations, converted)
	}
}

// TestGeneratedFileSchema fails when a setting changed and the schema was not generated again.
func TestGeneratedFileSchema(t *testing.T) {
	comments := readComments(t)
	properties, breaker := map[string]any{}, map[string]any{}
	for _, v := range table() {
		name, ok := strings.CutPrefix(v.name, blockPrefix)
		if name = strings.ToLower(name); !ok || name == "name" {
			continue
		}
		p := map[string]any{"description": strings.ReplaceAll(comments[v.comment], "\n", " "), "type": []string{"string", "number"}}
		if v.def != "" {
			p["default"] = v.def
		}
		switch v.typ.Kind() {
		case reflect.Bool:
			p["type"], p["default"] = "boolean", v.def == "true"
		case reflect.Slice:
			p["type"] = []string{"string", "number", "array"}
		case reflect.Map:
			p["type"] = []string{"string", "object"}
		}
		if len(v.oneOf) > 0 {
			p["enum"], p["type"] = v.oneOf, "string"
		}
		short, ofBreaker := strings.CutPrefix(name, "circuit_breaker_")
		switch {
		case ofBreaker:
			delete(p, "default") // the global value
			breaker[short] = p
			continue
		case v.typ != reflect.TypeFor[Secret]():
			properties[name] = p
		}
		if v.secret {
			properties[name+"_file"] = map[string]any{"type": "string", "description": "File that holds: " + p["description"].(string)}
			properties[name+"_env"] = map[string]any{"type": "string", "description": "Name of the variable that holds: " + p["description"].(string)}
		}
	}
	for _, form := range []string{"_file", "_env"} {
		properties["token"+form] = properties["auth_token"+form]
	}
	text := map[string]any{"type": "string"}
	properties["limits"].(map[string]any)["type"] = "array"
	properties["limits"].(map[string]any)["items"] = map[string]any{"anyOf": []any{
		text, map[string]any{"type": "object", "additionalProperties": false, "required": []string{"name"}, "properties": map[string]any{"name": text, "estimate": text, "actual": text}},
	}}
	properties["circuit_breaker"] = map[string]any{"type": "object", "additionalProperties": false, "properties": breaker}
	want, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Destinations of Tidegate", "type": "object", "additionalProperties": false,
		"properties": map[string]any{
			"defaults": map[string]any{"$ref": "#/$defs/destination"},
			"limits": map[string]any{"type": "object", "description": "Limits that destinations share, by name. See docs/limits.md.", "propertyNames": map[string]any{"pattern": limitName.String()}, "additionalProperties": map[string]any{
				"type": "object", "additionalProperties": false, "properties": map[string]any{
					"rate": map[string]any{"type": []string{"string", "array"}}, "concurrency": map[string]any{"type": []string{"integer", "string"}}, "unit": text, "key": text,
				},
			}},
			"destinations": map[string]any{"type": "object", "propertyNames": map[string]any{"pattern": "^[a-z0-9][a-z0-9-]{0,62}$"}, "additionalProperties": map[string]any{"$ref": "#/$defs/destination"}},
		},
		"$defs": map[string]any{"destination": map[string]any{"type": "object", "additionalProperties": false, "properties": properties}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("destinations.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(Schema)); diff != "" {
		t.Errorf("the schema is stale; run: go generate ./internal/config\n%s", diff)
	}
}

// A process that publishes nothing needs no secret of the file.
func TestLoadForAPI(t *testing.T) {
	name := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(name, []byte("destinations:\n  a: {url: 'https://{key}.example.com/', key_pattern: '[a-z]', token_env: NONE, answers_file: /none, oauth_token_url: https://a.example.com, rate: 5/1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := LoadForAPI([]string{"DESTINATIONS_FILE=" + name})
	if err != nil {
		t.Fatal(err)
	}
	if d := cfg.Destinations[0]; d.KeyPattern != "[a-z]" || d.Rate.String() != "5/1s" || d.OAuthTokenURL != "" {
		t.Errorf("%+v", d)
	}
}

// A variable for all destinations wins over the defaults of the file, not over what a destination has itself.
func TestGlobalVariableBesideFile(t *testing.T) {
	cfg, _, err := withFile(t, `
defaults: {circuit_breaker: {failure_threshold: 2, cooldown_ms: 7}}
destinations:
  a: {url: https://a.example.com/}
  b: {url: https://a.example.com/, circuit_breaker: {failure_threshold: 3}}
`, "CIRCUIT_BREAKER_FAILURE_THRESHOLD=9")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	if err := cfg.Print(&shown); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nCIRCUIT_BREAKER_FAILURE_THRESHOLD=9  # set\n",
		"\nDESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD=9  # default\n",
		"\nDESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS=7  # d.yaml:2\n",
		"\nDESTINATION_1_CIRCUIT_BREAKER_FAILURE_THRESHOLD=3  # d.yaml:5\n",
	} {
		if !strings.Contains(shown.String(), line) {
			t.Errorf("config check lacks %q in:\n%s", line, shown.String())
		}
	}
}

// Who calls no API needs no secret of a destination, neither by the file nor by variables.
func TestLoadForAPIWithoutSecrets(t *testing.T) {
	name := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(name, []byte("destinations:\n  a: {url: https://a.example.com/, token_file: /not/there, answers_file: /not/there}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"DESTINATIONS_FILE=" + name, "DESTINATION_0_NAME=b", "DESTINATION_0_URL=https://b.example.com/",
		"DESTINATION_0_AUTH_TOKEN_FILE=/not/there", "DESTINATION_0_AUTH_SCHEME=Token", "DESTINATION_0_ANSWERS_FILE=/not/there",
	}
	cfg, _, err := LoadForAPI(environ)
	if err != nil || len(cfg.Destinations) != 2 {
		t.Errorf("%v", err)
	}
	if _, _, err := Load(environ); err == nil {
		t.Error("Load needs no secrets")
	}
}
