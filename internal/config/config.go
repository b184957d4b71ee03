package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Load reads NAME=value entries, as [os.Environ] returns them, and nothing else.
// On error the Config is nil and the error is [Errors] with everything that is
// wrong. The warnings are useful either way. No destinations are no error here:
// see [Config.RequireDestinations].
func Load(environ []string) (*Config, []Warning, error) { return loadWith(environ, nil) }

// LoadForAPI is Load for a process that calls no API: it takes what jobs are checked by, and what permits are
// granted by, but not what authenticates calls. It needs none of the secrets and files of destinations.
func LoadForAPI(environ []string) (*Config, []Warning, error) { return loadWith(environ, ofCalls) }

// LoadForRedis is LoadForAPI for a command that needs Redis alone: if anything but a REDIS_… variable is wrong, it goes on
// without the destinations and without what is wrong, which a warning names.
func LoadForRedis(environ []string) (*Config, []Warning, error) {
	cfg, warnings, err := LoadForAPI(environ)
	var wrong Errors
	if !errors.As(err, &wrong) || len(wrong) == 0 {
		return cfg, warnings, err
	}
	cfg, more, failed := LoadForAPI(slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !strings.HasPrefix(name, "REDIS_") && (strings.HasPrefix(name, "DESTINATION") || strings.HasPrefix(name, "CIRCUIT_BREAKER_") ||
			slices.ContainsFunc(wrong, func(one error) bool {
				e, ok := errors.AsType[*Error](one)
				return ok && strings.TrimSuffix(name, fileSuffix) == strings.TrimSuffix(e.Variable, fileSuffix)
			}))
	}))
	if failed != nil {
		return nil, warnings, err
	}
	message := "this command goes on without the destinations' configuration, because it is wrong: " + wrong[0].Error()
	if len(wrong) > 1 {
		message += fmt.Sprintf(" (and %d more; see tidegate config check)", len(wrong)-1)
	}
	return cfg, append(more, Warning{Variable: "configuration", Message: message}), nil
}

// ofCalls are the settings, with their files and variables, that only calls need.
var ofCalls = regexp.MustCompile(`^((AUTH|OAUTH|SIGN|CALLBACK)_.*|(HEADERS|ANSWERS)(_FILE|_ENV)?)$`)

// loadWith is Load without the settings that match; nil: none.
func loadWith(environ []string, without *regexp.Regexp) (*Config, []Warning, error) {
	l := &loader{env: newEnvironment(environ)}
	l.uncalled = without != nil
	l.readFile(without)
	blocks := l.env.checkNames(&l.found)
	for name := range l.env.values {
		if m := blockForm.FindStringSubmatch(name); without != nil && m != nil && without.MatchString(m[2]) {
			delete(l.env.values, name)
		}
	}
	applied := l.applyPresets(blocks)
	cfg := &Config{}
	l.read(group{into: cfg})
	l.checkBreaker(cfg.Breaker, "CIRCUIT_BREAKER_", "CIRCUIT_BREAKER_")
	l.warnEmbedded(cfg.RedisURL)
	l.checkAlerts(&cfg.Alerts)
	l.checkPublicURL(&cfg.API)
	cfg.Worker.completeOpsAddr()

	cfg.Destinations = l.readDestinations(blocks, cfg, applied)
	l.checkUnique(blocks, cfg.Destinations)
	warnings, err := l.found.result()
	if err != nil {
		return nil, warnings, err
	}
	cfg.env, cfg.blocks, cfg.limits = l.env, blocks, l.limits
	return cfg, warnings, nil
}

// checkUnique checks that no two destinations publish the same jobs.
func (l *loader) checkUnique(blocks []int, destinations []Destination) {
	names := map[string]int{}
	for i, index := range blocks {
		d := destinations[i]
		if first, taken := names[d.Name]; taken && d.Name != "" {
			l.found.fail(blockName(index, "NAME"), "give each destination its own name",
				"%s is already the name of DESTINATION_%d", quote(d.Name), first)
		} else {
			names[d.Name] = index
		}
	}
}

// OpsAddr returns OPS_ADDR alone, as [Config] holds it, whatever the rest of the
// environment is like.
func OpsAddr(environ []string) (string, error) {
	l := &loader{env: newEnvironment(environ)}
	var w Worker
	l.read(group{into: &w})
	w.completeOpsAddr()
	if !l.found.ok("OPS_ADDR") {
		_, err := l.found.result()
		return "", err
	}
	return w.OpsAddr, nil
}

func (w *Worker) completeOpsAddr() {
	if isOff(w.OpsAddr) {
		w.OpsAddr = ""
	}
}

// RequireDestinations returns [Errors] if there is no destination, for commands
// that need one.
func (c *Config) RequireDestinations() error {
	if len(c.Destinations) > 0 {
		return nil
	}
	return Errors{&Error{
		Variable: "DESTINATION_0_NAME",
		Problem:  "is not set, and no destination is configured",
		Fix:      "set DESTINATION_0_NAME and DESTINATION_0_URL, or DESTINATIONS_FILE",
	}}
}

// Destination returns the destination of that name.
func (c *Config) Destination(name string) (Destination, bool) {
	for _, d := range c.Destinations {
		if d.Name == name {
			return d, true
		}
	}
	return Destination{}, false
}

// Limits are the named limits of the destinations file.
func (c *Config) Limits() []Limit { return c.limits }

// Setting names a setting of destination i, whose variable is DESTINATION_<i>_name, as its user
// gave it: that variable, or its place in the destinations file. "" names the destination.
func (c *Config) Setting(i int, name string) string {
	if c.env == nil {
		return strings.TrimRight(blockName(i, name), "_")
	}
	return strings.TrimRight(c.env.yaml.shown(blockName(c.blocks[i], name)), "_.")
}

// Variable is the name of a setting of destination i as a variable, which wins over the destinations file.
func (c *Config) Variable(i int, name string) string { return blockName(c.blocks[i], name) }

// blockName is the full name of a destination's variable.
func blockName(index int, name string) string {
	return strings.Replace(blockPrefix, "<i>", strconv.Itoa(index), 1) + name
}
