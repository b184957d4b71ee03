package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/jobs"
)

// noRetry is how a destination says that its jobs are called once.
const noRetry = "none"

// retryFields are the fields of a policy in JSON, by their names in the flag.
var retryFields = map[string]string{
	"max": "max_retries", "initial": "initial_delay_secs", "multiplier": "backoff_multiplier", "max-delay": "max_delay_secs", "on": "retry_on",
}

// ParseRetry reads a retry policy such as max=3,initial=5s. Its bounds are checked with a job.
func ParseRetry(s string) (*jobs.RetryPolicy, error) {
	const form = "write it like max=3,initial=10s,multiplier=2,max-delay=120s,on=timeout+failure"
	fields := map[string]any{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || value == "" {
			return nil, fmt.Errorf("%q is not of the form name=value; %s", text.Cut(part, 40), form)
		}
		field := retryFields[name]
		if field == "" {
			return nil, fmt.Errorf("%q is not known; %s", text.Cut(name, 40), form)
		}
		if fields[field] != nil {
			return nil, fmt.Errorf("%s is given twice", text.Cut(name, 40))
		}
		var err error
		switch name {
		case "max":
			fields[field], err = strconv.Atoi(value)
		case "multiplier":
			fields[field], err = strconv.ParseFloat(value, 64)
		case "on":
			fields[field] = strings.Split(value, "+")
		default:
			fields[field], err = WholeSeconds(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s cannot be read; %s", name, text.Cut(value, 40), form)
		}
	}
	if fields["max_retries"] == nil {
		return nil, errors.New("max is missing: how often to call again; " + form)
	}
	document, err := json.Marshal(fields)
	if err != nil { // a multiplier such as NaN
		return nil, fmt.Errorf("multiplier cannot be read; %s", form)
	}
	policy := &jobs.RetryPolicy{}
	if err := json.Unmarshal(document, policy); err != nil {
		return nil, err
	}
	return policy, nil
}

// WholeSeconds reads a duration as seconds.
func WholeSeconds(s string) (int, error) {
	d, err := ParseDuration(s)
	if err == nil && d%time.Second != 0 {
		err = errors.New("is not whole seconds")
	}
	return int(d / time.Second), err
}

// readRetry reads the policy of a destination; the zero value is none.
func readRetry(s string) (any, error) {
	if strings.TrimSpace(s) == noRetry {
		return jobs.RetryPolicy{}, nil
	}
	policy, err := ParseRetry(s)
	if err != nil {
		return nil, &unreadable{problem: "is not a retry policy", fix: err.Error()}
	}
	if policy.MaxRetries < 1 {
		return nil, &unreadable{problem: "allows no retry", fix: "write none for that"}
	}
	return *policy, nil
}

// printRetry is the form that readRetry reads.
func printRetry(v reflect.Value) string {
	p := v.Interface().(jobs.RetryPolicy)
	if p.MaxRetries == 0 {
		return noRetry
	}
	words := make([]string, len(p.RetryOn))
	out := fmt.Sprintf("max=%d", p.MaxRetries)
	if p.InitialDelay > 0 {
		out += ",initial=" + FormatDuration(p.InitialDelay)
	}
	if p.BackoffMultiplier != 0 {
		out += ",multiplier=" + strconv.FormatFloat(p.BackoffMultiplier, 'g', -1, 64)
	}
	if p.MaxDelay > 0 {
		out += ",max-delay=" + FormatDuration(p.MaxDelay)
	}
	for i, on := range p.RetryOn {
		words[i] = string(on)
	}
	if len(words) > 0 {
		out += ",on=" + strings.Join(words, "+")
	}
	return out
}

// checkRetry checks the policy of a destination as one of a job.
func (l *loader) checkRetry(d *Destination, prefix string, bounds Retry) {
	name := prefix + "RETRY"
	if d.Retry.MaxRetries == 0 && l.env.set(name) || !l.env.set(name) || !l.found.ok(name, "RETRY_MAX_RETRIES_LIMIT", "RETRY_MAX_DELAY_LIMIT") {
		return
	}
	if l.env.from[name] == sourcePreset { // presets do not know the bounds
		d.Retry.MaxRetries = min(d.Retry.MaxRetries, bounds.MaxRetriesLimit)
		longest := time.Duration(bounds.MaxDelayLimit)
		d.Retry.InitialDelay, d.Retry.MaxDelay = min(d.Retry.InitialDelay, longest), min(d.Retry.MaxDelay, longest)
	}
	spec := jobs.New("any", nil, jobs.Retry(d.Retry))
	err := spec.Validate(jobs.Limits{RetryMaxRetries: bounds.MaxRetriesLimit, RetryMaxDelay: time.Duration(bounds.MaxDelayLimit)})
	if invalid, ok := errors.AsType[*jobs.ValidationError](err); ok {
		l.found.fail(name, "see docs/configuration.md", "%s %s", strings.TrimPrefix(invalid.Fields[0].Field, "retry."), invalid.Fields[0].Message)
		return
	}
	d.Retry = *spec.Retry // with its defaults
}

// WithoutRetry are the destinations whose jobs are called once and that do not say so.
func (c *Config) WithoutRetry() (names []string) {
	for i, d := range c.Destinations {
		if d.Retry.MaxRetries == 0 && !c.env.set(blockName(c.blocks[i], "RETRY")) {
			names = append(names, d.Name)
		}
	}
	return names
}
