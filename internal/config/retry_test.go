package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A destination's policy is read like that of a job, and printed as it would be written.
func TestRetryOfADestination(t *testing.T) {
	for _, test := range []struct{ written, want string }{
		{"", "none"},
		{"none", "none"},
		{"max=3", "max=3,initial=5s,multiplier=2,max-delay=5m"},
		{"max=3, initial=10s,multiplier=1.5,max-delay=2m,on=failure+explicit", "max=3,initial=10s,multiplier=1.5,max-delay=2m,on=failure+explicit"},
		{"3", `DESTINATION_0_RETRY: "3" is not a retry policy; "3" is not of the form name=value; write it like max=3`},
		{"max=99", `DESTINATION_0_RETRY: max_retries must be from 1 to 10, is 99`},
		{"max=0", `DESTINATION_0_RETRY: "max=0" allows no retry; write none for that`},
		{"max=3,max-delay=2h", `DESTINATION_0_RETRY: max_delay_secs must be from initial_delay_secs (5) to 3600, is 7200`},
		{"max=3,on=luck", `"luck" is none of timeout, failure, explicit`},
	} {
		cfg, _, err := Load([]string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com", "DESTINATION_0_RETRY=" + test.written})
		got := fmt.Sprint(err)
		if err == nil {
			var b strings.Builder
			if err := cfg.Print(&b); err != nil {
				t.Fatal(err)
			}
			_, got, _ = strings.Cut(b.String(), "DESTINATION_0_RETRY=")
			got, _, _ = strings.Cut(got, "  #")
		}
		if !strings.Contains(got, test.want) || err == nil && got != test.want {
			t.Errorf("RETRY=%s:\n got %s\nwant %s", test.written, got, test.want)
		}
	}
	cfg, _, err := Load([]string{
		"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://api.example.com", "DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://api.example.com", "DESTINATION_1_RETRY=none",
		"DESTINATION_2_NAME=c", "DESTINATION_2_PRESET=stripe",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.WithoutRetry(); len(got) != 1 || got[0] != "a" {
		t.Errorf("without a policy, and not by choice: %q", got)
	}
	if cfg.Destinations[2].Retry.MaxRetries != 5 {
		t.Errorf("the preset's policy: %+v", cfg.Destinations[2].Retry)
	}
	cfg, _, err = Load([]string{"DESTINATION_0_NAME=a", "DESTINATION_0_PRESET=stripe", "RETRY_MAX_RETRIES_LIMIT=2", "RETRY_MAX_DELAY_LIMIT=3"})
	if err != nil || cfg.Destinations[0].Retry.MaxRetries != 2 || cfg.Destinations[0].Retry.MaxDelay > 3*time.Second {
		t.Errorf("a preset's policy beyond the bounds: %v", err)
	}
}
