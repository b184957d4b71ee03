package words_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"

	"github.com/google/go-cmp/cmp"
)

func TestReason(t *testing.T) {
	t.Parallel()
	for reason, want := range map[store.Reason]string{
		"breaker_open shop/alice": "breaker shop/alice open",
		"breaker_unknown shop":    "breaker shop could not be asked",
		"expiring":                "expired before it was started",
		"held shop/alice":         "breaker shop/alice lets nothing through",
		"parents_unread":          "the outputs of its parents could not be read",
		"answer rule 2: too many": "rescheduled by rule 2: too many",
		"decided rule 2: a copy":  "decided by rule 2: a copy",
		"publisher":               "rescheduled by its handler",
		"rate_limited shop":       "rate limited by shop",
		"refused_alone 4 812":     "refused 4 times while 812 other calls were accepted",
		"refused_alone 1 1":       "refused once while 1 other call was accepted",
		"refused_alone":           "refused_alone",
		"retry 1 3 timeout":       "retry 1 of 3 after timeout",
		"retry":                   "retry",
		"still_running host:1":    "still running on host:1",
		"suspect":                 "a worker died with it; such jobs run one at a time",
		"worker_lost":             "its worker died; it runs again",
		"of a newer version":      "of a newer version",
		"":                        "",
	} {
		if got := words.Reason(reason); got != want {
			t.Errorf("%q is worded %q, want %q", reason, got, want)
		}
	}
}

// An unreadable line, of a newer version perhaps, hides no other.
func TestDetail(t *testing.T) {
	t.Parallel()
	got := store.Versions(`{"version":2,"at":7,"status":"running","event":"started","by":"host:1"}
{"version":3,"at":8,"status":"pending","event":"rescheduled","delay":60000,"count":1,"reason":"breaker_open shop"}
{"version":"4"}
{"version":5,"at":9,"status":"retry_pending","event":"retry_scheduled","delay":1540,"reason":""}
{"version":6,"at":9,"status":"running","event":"worker_lost","count":2}
{"version":7,"at":9,"status":"pending","event":"recovered","delay":1e+15}
{"version":8,"at":9,"status":"cancelled","event":"cancelled","detail":"wrong file","by":"ann"}
{"version":9,"at":9,"status":"running","event":"worker_lost"}`)
	var texts []string
	for _, v := range got {
		texts = append(texts, v.Event+": "+words.Detail(v))
	}
	want := []string{
		"started: ", "rescheduled: available_at +60s, count 1, breaker shop open", "retry_scheduled: next_retry_at +1.5s",
		"worker_lost: crash 2", "recovered: available_at +1000000000000s", "cancelled: wrong file",
		"worker_lost: not counted: the job had not started",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if got[1].Version != 3 || got[1].At != 8 || got[1].Status != "pending" || got[5].By != "ann" {
		t.Errorf("read %+v", got)
	}
}
