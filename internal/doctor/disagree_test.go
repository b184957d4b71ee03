package doctor_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/doctor"
)

// Workers that disagree, and clocks that are wrong, need a person.
func TestWorkersThatDisagree(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	for name, w := range map[string]store.Worker{
		"w1": {Settings: map[string]map[string]string{"shop": {"rate": "a", "URL": "b"}}, ClockOffset: -4000},
		"w2": {Settings: map[string]map[string]string{"shop": {"rate": "c", "URL": "b"}}, ClockOffset: -7000},
		"w3": {Settings: map[string]map[string]string{"shop": {"rate": "d"}}, SeenAt: 1}, // it is gone
	} {
		if w.SeenAt == 0 {
			w.SeenAt = time.Now().UnixMilli()
		}
		text, err := json.Marshal(w)
		p.must(err)
		p.must(p.rdb.HSet(p.ctx, store.DefaultNamespace.WorkersKey(), name, text).Err())
	}
	got, err := doctor.Run(p.ctx, p.rdb, doctor.Options{})
	p.must(err)
	want := map[string]string{
		"":              "the clock of worker w2 is 7s behind Redis's; set it by NTP",
		"tidegate:shop": "workers disagree on the rate of shop: w1 / w2",
	}
	if len(got.Findings) != len(want) {
		t.Fatalf("findings %+v, want %d", got.Findings, len(want))
	}
	for _, f := range got.Findings {
		if f.Kind != doctor.KindDiffer || f.Detail != want[f.Queue] || f.Repaired {
			t.Errorf("finding %+v, want %q", f, want[f.Queue])
		}
	}
}
