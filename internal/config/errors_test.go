package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	tests := []struct {
		name    string
		environ []string
		want    []string
	}{
		{
			"name with braces and spaces",
			[]string{"DESTINATION_0_NAME={my shop}", one[1]},
			[]string{`DESTINATION_0_NAME: "{my shop}" is not a name for a destination; use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen`},
		},
		{
			"name in upper case",
			[]string{"DESTINATION_0_NAME=Shop", one[1]},
			[]string{`DESTINATION_0_NAME: "Shop" is not a name for a destination; write it in lower case: shop`},
		},
		{
			"name too long",
			[]string{"DESTINATION_0_NAME=" + long, one[1]},
			[]string{`DESTINATION_0_NAME: "` + long[:40] + `…" is not a name for a destination; use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen`},
		},
		{
			"names twice", with("DESTINATION_1_NAME=shop", "DESTINATION_1_URL=https://b.example"),
			[]string{`DESTINATION_1_NAME: "shop" is already the name of DESTINATION_0; give each destination its own name`},
		},
		{
			"names of Tidegate's own",
			[]string{"DESTINATION_0_NAME=tidegate-alerts", one[1], "DESTINATION_1_NAME=tidegate-callbacks", "DESTINATION_1_URL=https://b.example"},
			[]string{
				`DESTINATION_0_NAME: "tidegate-alerts" is reserved for Tidegate itself; give this destination another name`,
				`DESTINATION_1_NAME: "tidegate-callbacks" is reserved for Tidegate itself; give this destination another name`,
			},
		},
		{
			"required missing",
			[]string{"DESTINATION_0_METHOD=PUT"},
			[]string{"DESTINATION_0_NAME: is required but not set; set it", "DESTINATION_0_URL: is required but not set; set it"},
		},
		{
			"required empty",
			[]string{"DESTINATION_0_NAME=", "DESTINATION_0_URL=  "},
			[]string{"DESTINATION_0_NAME: is set but empty; give it a value", "DESTINATION_0_URL: is set but empty; give it a value"},
		},
		{
			"url without scheme",
			[]string{one[0], "DESTINATION_0_URL=api.example.com/items"},
			[]string{"DESTINATION_0_URL: does not start with http:// or https://; write it like https://api.example.com/v1/posts"},
		},
		{
			"url without scheme but port",
			[]string{one[0], "DESTINATION_0_URL=localhost:8080/items"},
			[]string{"DESTINATION_0_URL: does not start with http:// or https://; write it like https://api.example.com/v1/posts"},
		},
		{
			"url without host",
			[]string{one[0], "DESTINATION_0_URL=https://:8080/items"},
			[]string{"DESTINATION_0_URL: has no host; write it like https://api.example.com/v1/posts"},
		},
		{
			"url with user",
			[]string{one[0], "DESTINATION_0_URL=https://me:hunter2@api.example.com"},
			[]string{"DESTINATION_0_URL: holds a user or password; take it out and set the AUTH_TOKEN of this destination"},
		},
		{
			"url with fragment",
			[]string{one[0], "DESTINATION_0_URL=https://api.example.com/#top"},
			[]string{"DESTINATION_0_URL: has a fragment (#…), which is never sent; take it out"},
		},
		{
			"url unreadable",
			[]string{one[0], "DESTINATION_0_URL=https://me:hunter2@api.example.com:port"},
			[]string{"DESTINATION_0_URL: is not a URL; write it like https://api.example.com/v1/posts, with special characters percent-encoded"},
		},
		{
			"method", with("DESTINATION_0_METHOD=PO ST"),
			[]string{`DESTINATION_0_METHOD: "PO ST" is not an HTTP method; use one such as POST, PUT or PATCH`},
		},
		{
			"timeout", with("DESTINATION_0_TIMEOUT=0s"),
			[]string{`DESTINATION_0_TIMEOUT: "0s" is too small; use a duration, 1ms or more, such as 30s, 5m, 24h or 7d`},
		},
		{
			"timeout without unit", with("DESTINATION_0_TIMEOUT=30"),
			[]string{`DESTINATION_0_TIMEOUT: "30" has no unit; use a duration, 1ms or more, such as 30s, 5m, 24h or 7d`},
		},
		{
			"timeout negative", with("SHUTDOWN_TIMEOUT=-1s", "JOB_RETENTION=-1d"),
			[]string{
				`JOB_RETENTION: "-1d" is too small; use a duration, 0s or more, such as 30s, 5m, 24h or 7d`,
				`SHUTDOWN_TIMEOUT: "-1s" is too small; use a duration, 1ms or more, such as 30s, 5m, 24h or 7d`,
			},
		},
		{
			"concurrency", with("DESTINATION_0_CONCURRENCY=10001"),
			[]string{`DESTINATION_0_CONCURRENCY: "10001" is too large; use a whole number from 1 to 10000`},
		},
		{
			"concurrency zero", with("DESTINATION_0_CONCURRENCY=0"),
			[]string{`DESTINATION_0_CONCURRENCY: "0" is too small; use a whole number from 1 to 10000`},
		},
		{
			"concurrency no number", with("DESTINATION_0_CONCURRENCY=ten\x1b[31m"),
			[]string{`DESTINATION_0_CONCURRENCY: "ten\x1b[31m" is not a whole number; use a whole number from 1 to 10000`},
		},
		{
			"token with bearer", with("DESTINATION_0_AUTH_TOKEN=Bearer hunter2"),
			[]string{"DESTINATION_0_AUTH_TOKEN: holds a space, a line break or a character that is not ASCII; give the token alone, without Bearer before it"},
		},
		{
			"token with line break", with("DESTINATION_0_AUTH_TOKEN=hunter2\nX: y"),
			[]string{"DESTINATION_0_AUTH_TOKEN: holds a space, a line break or a character that is not ASCII; give the token alone, on one line"},
		},
		{
			"status", with("DESTINATION_0_RATE_LIMITED_STATUS=429,600"),
			[]string{`DESTINATION_0_RATE_LIMITED_STATUS: "429,600" holds 600, which is not an HTTP status; use HTTP statuses from 100 to 599 separated by commas, such as 429,503`},
		},
		{
			"status list", with("DESTINATION_0_RATE_LIMITED_STATUS=429;403"),
			[]string{`DESTINATION_0_RATE_LIMITED_STATUS: "429;403" is not a list of HTTP statuses; use HTTP statuses from 100 to 599 separated by commas, such as 429,503`},
		},
		{
			"status of success", with("DESTINATION_0_PERMANENT_STATUS=400,204"),
			[]string{`DESTINATION_0_PERMANENT_STATUS: "400,204" holds 204, which means success; take it out`},
		},
		{
			"statuses overlap", with("DESTINATION_0_RATE_LIMITED_STATUS=404"),
			[]string{"DESTINATION_0_RATE_LIMITED_STATUS: 404 is also in DESTINATION_0_PERMANENT_STATUS (default); take it out of one of the two; set DESTINATION_0_PERMANENT_STATUS without it to mean rate limited"},
		},
		{
			"header authorization", with("DESTINATION_0_HEADERS=authorization:Bearer hunter2"),
			[]string{"DESTINATION_0_HEADERS: header Authorization cannot be set here; set the AUTH_TOKEN of this destination instead"},
		},
		{
			"header idempotency key", with("DESTINATION_0_HEADERS=X-A:1,Idempotency-Key:hunter2"),
			[]string{"DESTINATION_0_HEADERS: header Idempotency-Key cannot be set here; it is set from the job"},
		},
		{
			"header hop by hop", with("DESTINATION_0_HEADERS=TE:trailers"),
			[]string{"DESTINATION_0_HEADERS: header Te cannot be set here; it belongs to one connection; take it out"},
		},
		{
			"header without colon", with("DESTINATION_0_HEADERS=X-Key:a,hunter2"),
			[]string{"DESTINATION_0_HEADERS: item 2 has no colon; write Name:Value pairs separated by commas; a value cannot hold a comma"},
		},
		{
			"header name", with("DESTINATION_0_HEADERS=X Key:hunter2"),
			[]string{"DESTINATION_0_HEADERS: item 1 does not start with the name of a header; use letters, digits and hyphens before the colon"},
		},
		{
			"header with line break", with("DESTINATION_0_HEADERS=X-Key:hunter2\r\nHost: evil"),
			[]string{"DESTINATION_0_HEADERS: the value of header X-Key holds a line break or another control character; take it out"},
		},
		{
			"redis url with password",
			[]string{"REDIS_URL=redis://:hunter2@host:port/0"},
			[]string{"REDIS_URL: has an address that is not a host and a port; write HOST, HOST:6379 or [IPV6]:6379"},
		},
		{
			"redis url of another form",
			[]string{"REDIS_URL=hunter2"},
			[]string{"REDIS_URL: does not start with a form of URL that Tidegate knows; start it with redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster://"},
		},
		{
			"redis namespace",
			[]string{"REDIS_NAMESPACE=Shop_EU"},
			[]string{`REDIS_NAMESPACE: "Shop_EU" is not a namespace; use 1 to 31 lower-case letters, digits and hyphens: [a-z0-9][a-z0-9-]{0,30}`},
		},
		{"breaker", []string{
			"CIRCUIT_BREAKER_ENABLED=yes", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=0", "CIRCUIT_BREAKER_COOLDOWN_MS=0",
			"CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=0.5", "CIRCUIT_BREAKER_MAX_COOLDOWN_MS=1h", "CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=0",
		}, []string{
			`CIRCUIT_BREAKER_COOLDOWN_MS: "0" is too small; use a whole number of milliseconds, 1 or more`,
			`CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER: "0.5" is too small; use a number from 1 to 1000`,
			`CIRCUIT_BREAKER_ENABLED: "yes" is neither true nor false; use true or false`,
			`CIRCUIT_BREAKER_FAILURE_THRESHOLD: "0" is too small; use a whole number, 1 or more`,
			`CIRCUIT_BREAKER_MAX_COOLDOWN_MS: "1h" has a unit; write it in milliseconds: 3600000`,
			`CIRCUIT_BREAKER_PROBE_TIMEOUT_MS: "0" is too small; use a whole number of milliseconds, 1 or more`,
		}},
		{
			"multiplier not finite",
			[]string{"CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=NaN"},
			[]string{`CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER: "NaN" is not a finite number; use a number from 1 to 1000`},
		},
		{
			"too many digits",
			[]string{"CIRCUIT_BREAKER_COOLDOWN_MS=99999999999999999999", "MAX_CRASHES=9999999999", "RETRY_MAX_DELAY_LIMIT=9223372036854775807"},
			[]string{
				`CIRCUIT_BREAKER_COOLDOWN_MS: "99999999999999999999" is too large to be read; use a whole number of milliseconds, 1 or more`,
				`MAX_CRASHES: "9999999999" is too large to be read; use a whole number, 1 or more`,
				`RETRY_MAX_DELAY_LIMIT: "9223372036854775807" is too large to be read; use a whole number of seconds, 1 or more`,
			},
		},
		{
			"cooldown above the longest",
			[]string{"CIRCUIT_BREAKER_COOLDOWN_MS=5000000"},
			[]string{"CIRCUIT_BREAKER_COOLDOWN_MS: 5000000 is more than the longest cooldown, 3600000; lower it, or raise CIRCUIT_BREAKER_MAX_COOLDOWN_MS"},
		},
		{
			"longest cooldown of a destination below the global first", with("DESTINATION_0_CIRCUIT_BREAKER_MAX_COOLDOWN_MS=1000"),
			[]string{"DESTINATION_0_CIRCUIT_BREAKER_MAX_COOLDOWN_MS: 1000 is less than the first cooldown, 300000; raise it, or lower DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS"},
		},
		{
			"override", with("DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD=three"),
			[]string{`DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD: "three" is not a whole number; use a whole number, 1 or more`},
		},
		{
			"global error is told once", with("CIRCUIT_BREAKER_MAX_COOLDOWN_MS=x"),
			[]string{`CIRCUIT_BREAKER_MAX_COOLDOWN_MS: "x" is not a whole number; use a whole number of milliseconds, 1 or more`},
		},
		{
			"limits",
			[]string{"RETRY_MAX_RETRIES_LIMIT=0", "RETRY_MAX_DELAY_LIMIT=0", "RETRY_LOOP_INTERVAL_MS=9", "MAX_CRASHES=0", "MAX_PAYLOAD_BYTES=16777217"},
			[]string{
				`MAX_CRASHES: "0" is too small; use a whole number, 1 or more`,
				`MAX_PAYLOAD_BYTES: "16777217" is too large; use a whole number from 1 to 16777216`,
				`RETRY_LOOP_INTERVAL_MS: "9" is too small; use a whole number of milliseconds, 10 or more`,
				`RETRY_MAX_DELAY_LIMIT: "0" is too small; use a whole number of seconds, 1 or more`,
				`RETRY_MAX_RETRIES_LIMIT: "0" is too small; use a whole number, 1 or more`,
			},
		},
		{
			"words",
			[]string{"IDEMPOTENCY_SCOPE=jobs", "LOG_LEVEL=trace", "LOG_FORMAT=xml"},
			[]string{
				`IDEMPOTENCY_SCOPE: "jobs" is not known; use job or attempt`,
				`LOG_FORMAT: "xml" is not known; use auto, text or json`,
				`LOG_LEVEL: "trace" is not known; use debug, info, warn or error`,
			},
		},
		{
			"typing error in a destination", with("DESTINATION_0_CONCURENCY=5"),
			[]string{"DESTINATION_0_CONCURENCY: is not a variable of Tidegate; did you mean DESTINATION_0_CONCURRENCY?"},
		},
		{
			"swapped letters, and the required one missing",
			[]string{"DESTINATION_0_NAEM=shop", one[1]},
			[]string{
				"DESTINATION_0_NAEM: is not a variable of Tidegate; did you mean DESTINATION_0_NAME?",
				"DESTINATION_0_NAME: is required but not set; set it",
			},
		},
		{
			"typing error in an override", with("DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN=5000"),
			[]string{"DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN: is not a variable of Tidegate; did you mean DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS?"},
		},
		{
			"file for the breaker",
			[]string{"CIRCUIT_BREAKER_ENABLED_FILE=/x"},
			[]string{"CIRCUIT_BREAKER_ENABLED_FILE: is not a variable of Tidegate; only a secret can come from a file: set CIRCUIT_BREAKER_ENABLED"},
		},
		{
			"typing error in the breaker",
			[]string{"CIRCUIT_BREAKER_MERCY=5"},
			[]string{"CIRCUIT_BREAKER_MERCY: is not a variable of Tidegate; see config.example.env for all names"},
		},
		{
			"a word of a name is missing",
			with("CIRCUIT_BREAKER_THRESHOLD=5", "CIRCUIT_BREAKER_TRESHOLD=5", "CIRCUIT_BREAKER_TIMEOUT=5", "CIRCUIT_BREAKER_Multiplier=2",
				"CIRCUIT_BREAKER_MAX=5", "DESTINATION_0_THRESHOLD=5", "DESTINATION_0_CIRCUIT_BREAKER_THRESHOLD=5", "DESTINATION_0_CALLBACK=5"),
			[]string{
				"CIRCUIT_BREAKER_MAX: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_MAX_COOLDOWN_MS?",
				"CIRCUIT_BREAKER_Multiplier: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER?",
				"CIRCUIT_BREAKER_THRESHOLD: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_OUTAGE_THRESHOLD?",
				"CIRCUIT_BREAKER_TIMEOUT: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_PROBE_TIMEOUT_MS?",
				"CIRCUIT_BREAKER_TRESHOLD: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_OUTAGE_THRESHOLD?",
				"DESTINATION_0_CALLBACK: is not a variable of Tidegate; did you mean DESTINATION_0_CALLBACK_URL?",
				"DESTINATION_0_CIRCUIT_BREAKER_THRESHOLD: is not a variable of Tidegate; did you mean DESTINATION_0_CIRCUIT_BREAKER_OUTAGE_THRESHOLD?",
				"DESTINATION_0_THRESHOLD: is not a variable of Tidegate; did you mean DESTINATION_0_CIRCUIT_BREAKER_OUTAGE_THRESHOLD?",
			},
		},
		{
			"typing error near a name",
			[]string{"CIRCUIT_BREAKER_FAILURE_TRESHOLD=5"},
			[]string{"CIRCUIT_BREAKER_FAILURE_TRESHOLD: is not a variable of Tidegate; did you mean CIRCUIT_BREAKER_FAILURE_THRESHOLD?"},
		},
		{
			"no number",
			[]string{"DESTINATION_NAME=shop", "DESTINATION_CIRCUIT_BREAKER_ENABLED=false"},
			[]string{
				"DESTINATION_CIRCUIT_BREAKER_ENABLED: lacks the number of the destination; write DESTINATION_0_CIRCUIT_BREAKER_ENABLED for the first destination, DESTINATION_1_… for the next",
				"DESTINATION_NAME: lacks the number of the destination; write DESTINATION_0_NAME for the first destination, DESTINATION_1_… for the next",
			},
		},
		{
			"letter for a number",
			[]string{"DESTINATION_O_NAME=shop"},
			[]string{"DESTINATION_O_NAME: is not a variable of Tidegate; did you mean DESTINATION_0_NAME?"},
		},
		{
			"leading zero",
			[]string{"DESTINATION_00_NAME=shop", "DESTINATION_01_NAME=shop"},
			[]string{
				"DESTINATION_00_NAME: has a number with a leading zero; write DESTINATION_0_NAME",
				"DESTINATION_01_NAME: has a number with a leading zero; write DESTINATION_1_NAME",
			},
		},
		{
			"gap", with("DESTINATION_2_NAME=b", "DESTINATION_2_URL=https://b.example", "DESTINATION_10_NAME=c", "DESTINATION_10_URL=https://c.example"),
			[]string{"DESTINATION_2_NAME: there is no DESTINATION_1_NAME before it; number the destinations from 0 without gaps"},
		},
		{
			"number too large", with("DESTINATION_99999999999999999999_NAME=b"),
			[]string{"DESTINATION_99999999999999999999_NAME: has a number above 999; number the destinations from 0"},
		},
		{
			"injected by kubernetes",
			[]string{"DESTINATION_SERVICE_HOST=10.0.0.1", "CIRCUIT_BREAKER_PORT_80_TCP_ADDR=10.0.0.1"},
			[]string{
				"CIRCUIT_BREAKER_PORT_80_TCP_ADDR: is not a variable of Tidegate; Kubernetes seems to have added it for a Service of that name: set enableServiceLinks: false or rename the Service",
				"DESTINATION_SERVICE_HOST: is not a variable of Tidegate; Kubernetes seems to have added it for a Service of that name: set enableServiceLinks: false or rename the Service",
			},
		},
		{"sorted by number", []string{
			"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://a.example", "DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://a.example",
			"DESTINATION_2_NAME=c", "DESTINATION_2_URL=x", "DESTINATION_3_NAME=d", "DESTINATION_3_URL=https://a.example",
			"DESTINATION_4_NAME=e", "DESTINATION_4_URL=https://a.example", "DESTINATION_5_NAME=f", "DESTINATION_5_URL=https://a.example",
			"DESTINATION_6_NAME=g", "DESTINATION_6_URL=https://a.example", "DESTINATION_7_NAME=h", "DESTINATION_7_URL=https://a.example",
			"DESTINATION_8_NAME=i", "DESTINATION_8_URL=https://a.example", "DESTINATION_9_NAME=j", "DESTINATION_9_URL=https://a.example",
			"DESTINATION_10_NAME=k", "DESTINATION_10_URL=x",
		}, []string{
			"DESTINATION_2_URL: does not start with http:// or https://; write it like https://api.example.com/v1/posts",
			"DESTINATION_10_URL: does not start with http:// or https://; write it like https://api.example.com/v1/posts",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, _, err := Load(tt.environ)
			if cfg != nil {
				t.Error("Load returned a Config beside the error")
			}
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error shows a secret")
			}
			var errs Errors
			if !errors.As(err, &errs) || len(errs.Unwrap()) != len(tt.want) {
				t.Errorf("error is %T with %d elements, want Errors with %d", err, len(errs), len(tt.want))
			}
			var first *Error
			if !errors.As(err, &first) || !strings.HasPrefix(tt.want[0], first.Variable+": ") {
				t.Errorf("first element: %v", first)
			}
		})
	}
}
