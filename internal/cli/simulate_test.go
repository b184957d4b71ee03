package cli

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two configurations are compared without a Redis, in text, JSON and a picture.
func TestSimulate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.env", "# reacts\nexport CIRCUIT_BREAKER_LEARN=false\nCIRCUIT_BREAKER_EARLY_TESTS=false\nCIRCUIT_BREAKER_COOLDOWN_MS='240000'\nCIRCUIT_BREAKER_COOLDOWN_JITTER=0\n")
	b := write("b.env", "DESTINATION_0_RATE=\"20/10m\"\n")
	picture := filepath.Join(folder, "out.svg")
	args := []string{"simulate", "--config", a, "--against", b, "--api", "window:20/10m", "--jobs", "60", "--expire-in", "25m", "--svg", picture}
	runIn(t, nil, "", args...).want(t, 0, `                      a.env             b.env
drained               in 24m4s          in 25m
jobs                  60                60
completed             60                50
failed                0                 0
expired               0                 10
calls                 88                50
refused by the limit  28                0
failed in an outage   0                 0
breaker opened        2                 0
Redis commands        181, 2.06 a call  101, 2.02 a call
wait, half of jobs    12m2s             12m
wait, 90 % of jobs    24m4s             22m
wait, longest         24m4s             24m30s
`, "")
	drawn, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = drawn.Close() }()
	for d := xml.NewDecoder(drawn); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal("the picture:", err)
		}
	}
	doc := decode[simulation](t, runIn(t, nil, "", append(args, "-o", "json")...).ok(t))
	if len(doc.Runs) != 2 || doc.Runs[0].Wasted != 28 || doc.Runs[0].Commands != 181 || doc.Runs[1].PerCall != 2.02 || doc.Runs[1].Expired != 10 || doc.API != "window:20/10m" {
		t.Errorf("%+v", doc)
	}
	preset := runIn(t, nil, "", "simulate", "--config", b, "--api", "preset:github", "--jobs", "3", "--for", "1h")
	if preset.status != 0 || !strings.Contains(preset.stdout, "in 1m1s\n") || !strings.Contains(preset.stderr, "5000/1h") {
		t.Errorf("%+v", preset)
	}
	for args, want := range map[string]string{
		"--api window:60/1h":                                                         "give --jobs, --arrivals or both",
		"--api leaky:1 --jobs 1":                                                     `--api: "leaky:1"`,
		"--api preset:none --jobs 1":                                                 "there is no preset none",
		"--api window:60/1h --arrivals poisson:1":                                    "want jobs per time",
		"--api window:60/1h --arrivals poisson:9999/1s":                              "shorten --for",
		"--api window:60/1h --jobs 1 --config /none":                                 "--config: cannot read /none",
		"--api window:60/1h --jobs 1 -d other --config " + b:                         "other is not configured",
		"--api window:60/1h --jobs 1 --latency 0s":                                   "--latency must be",
		"--api window:60/1h --jobs 1 --config " + write("c", "DESTINATION_0_RATE=x"): "--config " + filepath.Join(folder, "c") + ":\ntidegate: DESTINATION_0_RATE",
	} {
		if r := runIn(t, nil, "", append([]string{"simulate"}, strings.Fields(args)...)...); r.status == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
