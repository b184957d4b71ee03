package config

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/dest/presets"
)

func TestPreset(t *testing.T) {
	t.Parallel()
	cfg, warnings := load(t, "DESTINATION_0_NAME=issues", "DESTINATION_0_PRESET=GitHub")
	if len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}
	d := cfg.Destinations[0]
	if d.URL != "https://api.github.com" || d.Headers.Get("Accept") != "application/vnd.github+json" ||
		time.Duration(d.Breaker.Cooldown) != time.Minute || d.Breaker.CooldownMultiplier != 2 {
		t.Errorf("got %+v", d)
	}
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"DESTINATION_0_PRESET=github  # set",
		"DESTINATION_0_URL=https://api.github.com  # preset",
		"DESTINATION_0_METHOD=POST  # default",
		"DESTINATION_0_HEADERS=Accept:application/vnd.github+json,X-Github-Api-Version:2022-11-28  # preset",
		"DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS=60000  # preset",
	} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("%q is not printed:\n%s", line, &out)
		}
	}
	if cfg.IsSet("DESTINATION_0_URL") {
		t.Error("the environment is said to set what the preset does")
	}
	if secrets := cfg.Secrets(); len(secrets) > 0 {
		t.Errorf("%q of a preset count as secret", secrets)
	}
}

// Whatever is set by hand wins: a variable, one header, a file, the breaker's value for all.
func TestPresetIsBelowWhatIsSet(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "DESTINATION_0_NAME=issues", "DESTINATION_0_PRESET=github",
		"DESTINATION_0_URL=https://github.example.com/api/v3", "DESTINATION_0_HEADERS=X-Client:shop,accept:text/plain",
		"CIRCUIT_BREAKER_COOLDOWN_MS=7000", "DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=3")
	d := cfg.Destinations[0]
	if d.URL != "https://github.example.com/api/v3" || time.Duration(d.Breaker.Cooldown) != 7*time.Second || d.Breaker.CooldownMultiplier != 3 {
		t.Errorf("got %+v", d)
	}
	want := map[string][]string{"X-Client": {"shop"}, "Accept": {"text/plain"}, "X-Github-Api-Version": {"2022-11-28"}}
	if diff := cmp.Diff(want, map[string][]string(d.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	byFile, _ := load(t, "DESTINATION_0_NAME=issues", "DESTINATION_0_PRESET=github", "DESTINATION_0_HEADERS_FILE="+writeFile(t, "X-Client:shop", 0o600))
	if h := byFile.Destinations[0].Headers; h.Get("X-Client") != "shop" || h.Get("X-Github-Api-Version") == "" {
		t.Errorf("headers of a file: %v", h)
	}
}

// A rate by hand replaces all windows of the preset's.
func TestPresetRates(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "45/1s:5", "10/1s,100/1m": "10/1s,100/1m", "off": ""} {
		cfg, _ := load(t, "DESTINATION_0_NAME=chat", "DESTINATION_0_PRESET=discord", "DESTINATION_0_RATE="+given)
		if got := cfg.Destinations[0].Rate.String(); got != want {
			t.Errorf("RATE=%s: %q, want %q", given, got, want)
		}
	}
	cfg, _ := load(t, "DESTINATION_0_NAME=chat", "DESTINATION_0_PRESET=slack")
	if got := cfg.Destinations[0].KeyRate.String(); got != "1/1s" {
		t.Errorf("KEY_RATE of slack is %q", got)
	}
}

func TestPresetErrors(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"githup":   `DESTINATION_0_PRESET: "githup" is not a preset; did you mean github? tidegate presets lists them all`,
		"../names": `DESTINATION_0_PRESET: "../names" is not a preset; use one of ` + strings.Join(presets.Names(), ", "),
	} {
		_, _, err := Load(with("DESTINATION_0_PRESET=" + given))
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
	_, _, err := Load([]string{"DESTINATION_0_NAME=a", "DESTINATION_0_PRESET=githup"})
	if err == nil || !strings.Contains(err.Error(), "DESTINATION_0_URL: is required but not set") {
		t.Errorf("got %v", err)
	}
}

// Every preset is complete, and its settings are variables with values that are allowed.
func TestEveryPresetLoads(t *testing.T) {
	t.Parallel()
	known := knownNames("<i>")
	for _, name := range presets.Names() {
		p, _ := presets.Get(name)
		for setting := range p.Settings {
			if !strings.Contains(strings.Join(known, " ")+" ", blockPrefix+setting+" ") {
				t.Errorf("%s: %s is not a variable of a destination", name, setting)
			}
		}
		settings := []string{"DESTINATION_0_NAME=a", "DESTINATION_0_PRESET=" + name}
		if p.Settings["URL"] == "" { // rules for any API
			settings = append(settings, "DESTINATION_0_URL=https://api.example.com/graphql")
		}
		cfg, warnings := load(t, settings...)
		if len(warnings) > 0 {
			t.Errorf("%s: warnings: %q", name, warnings)
		}
		if d := cfg.Destinations[0]; !strings.HasPrefix(d.URL, "https://") {
			t.Errorf("%s: URL %q", name, d.URL)
		}
	}
}
