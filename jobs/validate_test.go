package jobs_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	const nameRule = "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit"
	const destinationRule = "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit"
	good := jobs.RetryPolicy{MaxRetries: 3}
	for _, tc := range []struct {
		name string
		spec *jobs.Spec
		want string // "" for valid
	}{
		{"least", jobs.New("d", nil), ""},
		{"all of it", jobs.New("a-1", map[string]any{"a": 1}, jobs.ID("job:1@x.y_z-"), jobs.Key("alice"), jobs.Path("/items/7"),
			jobs.Query("a=b&c=d%20e"), jobs.Header("X-A", "b\tc"), jobs.Prioritize(jobs.PriorityHigh), jobs.MaxReschedules(0),
			jobs.Retry(good), jobs.Delay(time.Hour)), ""},
		{"longest names", jobs.New(strings.Repeat("d", 63), 1, jobs.ID(strings.Repeat("i", 128)), jobs.Key(strings.Repeat("k", 128))), ""},

		{"no destination", jobs.New("", nil), "destination: is missing; name one of your destinations"},
		{"destination in capitals", jobs.New("DeviantArt", nil), `destination: "DeviantArt" ` + destinationRule},
		{"destination with braces", jobs.New("a}b", nil), `destination: "a}b" ` + destinationRule},
		{"destination with a colon", jobs.New("a:high", nil), `destination: "a:high" ` + destinationRule},
		{"destination too long", jobs.New(strings.Repeat("d", 64), nil), `destination: "` + strings.Repeat("d", 64) + `" ` + destinationRule},
		{"destination with a line break", jobs.New("d\n", nil), `destination: "d\n" ` + destinationRule},
		{"very long input is clipped", jobs.New(strings.Repeat("D", 5000), nil), `destination: "` + strings.Repeat("D", 80) + `…" ` + destinationRule},

		{"id with a space", jobs.New("d", nil, jobs.ID("a b")), `id: "a b" ` + nameRule},
		{"id too long", jobs.New("d", nil, jobs.ID(strings.Repeat("i", 129))), `id: "` + strings.Repeat("i", 80) + `…" ` + nameRule},
		{"id with a brace", jobs.New("d", nil, jobs.ID("a{b}")), `id: "a{b}" ` + nameRule},
		{"key that starts with a dot", jobs.New("d", nil, jobs.Key(".k")), `key: ".k" ` + nameRule},
		{"key with an umlaut", jobs.New("d", nil, jobs.Key("jürgen")), `key: "jürgen" ` + nameRule},

		{"empty payload", jobs.New("d", []byte{}), "payload: is empty; JSON is expected, for instance {} or null"},
		{"payload that is no JSON", jobs.New("d", []byte("{a:1}")), "payload: is not valid JSON: invalid character 'a' looking for beginning of object key string; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"two values", jobs.New("d", []byte("1 2")), "payload: is not valid JSON: invalid character '2' after top-level value; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"cut short", jobs.New("d", []byte(`{"a":`)), "payload: is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"largest payload", jobs.New("d", []byte(`"`+strings.Repeat("x", 262142)+`"`)), ""},
		{
			"payload too large", jobs.New("d", []byte(`"`+strings.Repeat("x", 262143)+`"`)),
			"payload: has 262145 bytes, at most 262144 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference",
		},
		{"payload that cannot be encoded", jobs.New("d", make(chan int)), "payload: cannot be encoded as JSON: json: unsupported type: chan int"},
		{"payload that is not a number", jobs.New("d", math.NaN()), "payload: cannot be encoded as JSON: json: unsupported value: NaN"},

		{"priority", jobs.New("d", nil, jobs.Prioritize("urgent")), `priority: "urgent" is none of high, default, low`},
		{"order", jobs.New("d", nil, jobs.Key("k"), jobs.Order("keys")), `order: "keys" is neither key nor none`},
		{"order without a key", jobs.New("d", nil, jobs.Order(jobs.OrderKey)), "order: is key, but the job has no key; give it one, or leave the order out"},
		{"no order needs no key", jobs.New("d", nil, jobs.Order(jobs.OrderNone)), ""},
		{"no priority is the default one", jobs.New("d", nil, jobs.Prioritize("")), ""},
		{"negative reschedules", jobs.New("d", nil, jobs.MaxReschedules(-1)), "max_reschedules: must not be negative; leave it out for no limit"},
		{"negative delay", jobs.New("d", nil, jobs.Delay(-time.Second)), "delay: must not be negative"},
		{"delay and time", jobs.New("d", nil, jobs.Delay(time.Second), jobs.At(time.Now())), "delay: give either a delay or a time, not both"},

		{"no retries", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{})), "retry.max_retries: must be from 1 to 10, is 0"},
		{"too many retries", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 11})), "retry.max_retries: must be from 1 to 10, is 11"},
		{"negative initial delay", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: -1 * time.Second})), "retry.initial_delay_secs: must be at least 1, is -1"},
		{"shrinking", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: 0.5})), "retry.backoff_multiplier: must be at least 1.0, is 0.5"},
		{"multiplier that is no number", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: math.NaN()})), "retry.backoff_multiplier: must be at least 1.0, is NaN"},
		{"infinite multiplier", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: math.Inf(1)})), "retry.backoff_multiplier: must be at least 1.0, is +Inf"},
		{
			"cap below the first delay", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 10 * time.Second, MaxDelay: 9 * time.Second})),
			"retry.max_delay_secs: must be from initial_delay_secs (10) to 3600, is 9",
		},
		{
			"cap above the limit", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, MaxDelay: 3601 * time.Second})),
			"retry.max_delay_secs: must be from initial_delay_secs (5) to 3600, is 3601",
		},
		{"cap at its bounds", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 10, InitialDelay: 3600 * time.Second, MaxDelay: 3600 * time.Second, BackoffMultiplier: 1})), ""},
		{"a policy with defaults, without the option", &jobs.Spec{Destination: "d", Payload: []byte("1"), Retry: &jobs.RetryPolicy{MaxRetries: 1}}, ""},
		{"a fraction of a second", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 1500 * time.Millisecond})), "retry.initial_delay_secs: must be whole seconds, is 1.5s"},
		{"a cap with a fraction", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, MaxDelay: 90500 * time.Millisecond})), "retry.max_delay_secs: must be whole seconds, is 1m30.5s"},
		{"a first delay above the default cap", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 900 * time.Second})), ""},
		{
			"no trigger", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{}})),
			"retry.retry_on: must name at least one of timeout, failure, explicit; leave it out for all",
		},
		{
			"unknown trigger", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{"timeout", "429"}})),
			`retry.retry_on: "429" is none of timeout, failure, explicit`,
		},

		{"query that is no UTF-8", jobs.New("d", nil, jobs.Query("a=\xff")), "request.query: is not valid UTF-8; encode it, for instance a=b&c=d%20e"},
		{"query too long", jobs.New("d", nil, jobs.Query(strings.Repeat("q", 4097))), "request.query: has 4097 bytes, at most 4096 are accepted"},
		{"path that is no UTF-8", jobs.New("d", nil, jobs.Path("/a\xff")), "request.path: is not valid UTF-8; encode it (%C3%A9)"},
		{"path too long", jobs.New("d", nil, jobs.Path("/"+strings.Repeat("a", 2048))), "request.path: has 2049 bytes, at most 2048 are accepted"},
		{"method too long", jobs.New("d", nil, jobs.Method(strings.Repeat("M", 33))), `request.method: "` + strings.Repeat("M", 33) + `" is not an HTTP method; write one such as PUT`},
		{
			"headers too long together", jobs.New("d", nil, jobs.Header("X", strings.Repeat("v", 4096)), jobs.Header("Y", strings.Repeat("v", 4096))),
			"request.headers: have 8194 bytes together, at most 8192 are accepted",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.spec.Validate(jobs.Limits{})
			if tc.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted, want %s", tc.want)
			}
			if diff := cmp.Diff(strings.Split(tc.want, "; "), strings.Split(err.Error(), "; ")); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			var list *jobs.ValidationError
			if !errors.Is(err, jobs.ErrInvalid) || !errors.As(err, &list) || len(list.Fields) == 0 {
				t.Errorf("%T is no ValidationError that matches ErrInvalid", err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := jobs.Limits{MaxPayloadBytes: 4, RetryMaxRetries: 2, RetryMaxDelay: time.Minute}
	err := jobs.New("d", []byte("[1,2]"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 61 * time.Second})).Validate(l)
	want := "payload: has 5 bytes, at most 4 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference; " +
		"retry.max_delay_secs: must be from initial_delay_secs (1) to 60, is 61; retry.max_retries: must be from 1 to 2, is 3"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := jobs.New("d", []byte("[12]"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, MaxDelay: 60 * time.Second})).Validate(l); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

func TestValidNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "0": true, "A.b_c:d@e-f": true, "0199a0b1-0000-7000-8000-000000000000": true, strings.Repeat("x", 128): true,
		"": false, "-a": false, "_a": false, "a b": false, "a\n": false, "a/b": false, "a{": false, "ä": false, "a*": false, strings.Repeat("x", 129): false,
	} {
		if got := jobs.ValidName(name); got != want {
			t.Errorf("name %q: %t", name, got)
		}
	}
	for name, want := range map[string]bool{
		"a": true, "0": true, "a-": true, "deviant-art-2": true, strings.Repeat("x", 63): true,
		"": false, "-a": false, "A": false, "a_b": false, "a.b": false, "a:b": false, "a b": false, "a\n": false, "{a}": false, strings.Repeat("x", 64): false,
	} {
		if got := jobs.ValidDestination(name); got != want {
			t.Errorf("destination %q: %t", name, got)
		}
	}
}
