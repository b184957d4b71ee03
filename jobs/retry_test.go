package jobs_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
)

func TestRetryPolicyFromJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		want     jobs.RetryPolicy
	}{
		{"defaults", `{"max_retries":3}`, jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second}},
		{"null for all triggers", `{"max_retries":3,"retry_on":null}`, jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second}},
		{
			"everything", `{"max_retries":10,"initial_delay_secs":10,"backoff_multiplier":1.5,"max_delay_secs":120,"retry_on":["timeout","explicit"]}`,
			jobs.RetryPolicy{MaxRetries: 10, InitialDelay: 10 * time.Second, BackoffMultiplier: 1.5, MaxDelay: 120 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout, jobs.OnExplicit}},
		},
		{"the default cap gives way to the first delay", `{"max_retries":1,"initial_delay_secs":600}`, jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 600 * time.Second, BackoffMultiplier: 2, MaxDelay: 600 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got jobs.RetryPolicy
			if err := json.Unmarshal([]byte(tc.in), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			s := jobs.New("d", nil)
			s.Retry = &got
			if err := s.Validate(jobs.Limits{}); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// What was written down explicitly is not taken for absent.
func TestRetryPolicyFromJSONRefused(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`:                "retry.max_retries: must be from 1 to 10, is 0",
		`{"max_retries":0}`: "retry.max_retries: must be from 1 to 10, is 0",
		`{"max_retries":1,"initial_delay_secs":0}`:    "retry.initial_delay_secs: must be at least 1, is 0",
		`{"max_retries":1,"backoff_multiplier":0}`:    "retry.backoff_multiplier: must be at least 1.0, is 0",
		`{"max_retries":1,"backoff_multiplier":0.99}`: "retry.backoff_multiplier: must be at least 1.0, is 0.99",
		`{"max_retries":1,"max_delay_secs":0}`:        "retry.max_delay_secs: must be from initial_delay_secs (5) to 3600, is 0",
		`{"max_retries":1,"max_delay_secs":-1}`:       "retry.max_delay_secs: must be from initial_delay_secs (5) to 3600, is -1",
		`{"max_retries":1,"retry_on":[]}`:             "retry.retry_on: must name at least one of timeout, failure, explicit; leave it out for all",
		`{"max_retries":1,"retry_on":["rate_limit"]}`: `retry.retry_on: "rate_limit" is none of timeout, failure, explicit`,

		`{"max_retries":1,"max_delay":9}`: `retry: json: unknown field "max_delay"`,
		`{"max_retries":"3"}`:             "retry: json: cannot unmarshal string into Go struct field policyJSON.max_retries of type int",
		`{"max_retries":1.5}`:             "retry: json: cannot unmarshal number 1.5 into Go struct field policyJSON.max_retries of type int",
		`[]`:                              "retry: json: cannot unmarshal array into Go value of type jobs.policyJSON",
	} {
		var p jobs.RetryPolicy
		err := json.Unmarshal([]byte(in), &p)
		if err == nil {
			s := jobs.New("d", nil)
			s.Retry = &p
			err = s.Validate(jobs.Limits{})
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", in, err, want)
		}
	}
}

func TestRetryPolicyToJSON(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*jobs.RetryPolicy{
		`{"max_retries":3,"initial_delay_secs":5,"backoff_multiplier":2,"max_delay_secs":300,"retry_on":["timeout","failure","explicit"]}`: jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})).Retry,
		`{"max_retries":1,"initial_delay_secs":1,"backoff_multiplier":1.5,"max_delay_secs":2,"retry_on":["timeout"]}`: {
			MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1.5, MaxDelay: 2 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout},
		},
	} {
		got, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
		var back jobs.RetryPolicy
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("its own form is refused: %v", err)
		}
	}
}

// 10 s × 2.0 is 10, 20, 40, 80, 160 …, each ±10 %, and then cut at the cap.
func TestRetryDelays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		policy jobs.RetryPolicy
		want   []float64 // seconds before jitter and cap, by attempt
	}{
		{"10 s doubled, at most 120 s", jobs.RetryPolicy{InitialDelay: 10 * time.Second, BackoffMultiplier: 2, MaxDelay: 120 * time.Second}, []float64{10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120}},
		{"a cap within the jitter", jobs.RetryPolicy{InitialDelay: 10 * time.Second, BackoffMultiplier: 2, MaxDelay: 40 * time.Second}, []float64{10, 20, 40, 80}},
		{"constant", jobs.RetryPolicy{InitialDelay: 30 * time.Second, BackoffMultiplier: 1, MaxDelay: 300 * time.Second}, []float64{30, 30, 30}},
		{"defaults", jobs.RetryPolicy{InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second}, []float64{5, 10, 20, 40, 80, 160, 320}},
		{"beyond what a float holds", jobs.RetryPolicy{InitialDelay: 3600 * time.Second, BackoffMultiplier: 1e300, MaxDelay: 3600 * time.Second}, []float64{3600, math.Inf(1), math.Inf(1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			limit := tc.policy.MaxDelay.Seconds()
			for attempt, secs := range tc.want {
				low := time.Duration(min(limit, 0.9*secs) * float64(time.Second))
				high := time.Duration(min(limit, 1.1*secs) * float64(time.Second))
				lowest, highest := time.Duration(math.MaxInt64), time.Duration(0)
				for range 500 {
					d := tc.policy.Delay(attempt)
					lowest, highest = min(lowest, d), max(highest, d)
				}
				if lowest < low || highest > high {
					t.Errorf("attempt %d: %s to %s, want within %s to %s", attempt, lowest, highest, low, high)
				}
				if width := high - low; highest-lowest < width*8/10 {
					t.Errorf("attempt %d: %s to %s uses too little of %s to %s", attempt, lowest, highest, low, high)
				}
			}
		})
	}
}

// Policies of any size give a delay between one second and 100 years.
func TestDelayOfAnyPolicyIsPositive(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	for _, p := range []jobs.RetryPolicy{
		{MaxRetries: 1, InitialDelay: math.MaxInt64, BackoffMultiplier: 1, MaxDelay: math.MaxInt64},
		{MaxRetries: 1, InitialDelay: math.MaxInt64, BackoffMultiplier: 2, MaxDelay: math.MaxInt64},
		{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: math.MaxFloat64, MaxDelay: math.MaxInt64},
	} {
		for _, attempt := range []int{0, 1, 1000} {
			if d := p.DelayWith(attempt, 1); d < time.Second || d > century {
				t.Errorf("%+v, attempt %d: %v", p, attempt, d)
			}
		}
	}
}
