package doctor_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/queue/doctor"
)

// Workers that disagree, and clocks that are wrong, need a person.
func TestWorkersThatDisagree(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	for name, w := range map[string]store.Worker{
		"w1": {Settings: map[string]map[string]string{"shop": {"rate": "a", "URL": "b"}}, ClockOffset: -4000, ConfigVersion: "a1"},
		"w2": {Settings: map[string]map[string]string{"shop": {"rate": "c", "URL": "b"}}, ClockOffset: -7000, ConfigVersion: "b2", ConfigProblem: "line 3: tmeout is no setting"},
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
		"the clock of worker w2 is 7s behind Redis's; set it by NTP":                   "",
		"workers disagree on the rate of shop: w1 / w2":                                "tidegate:shop",
		"worker w2 cannot take up the destinations file: line 3: tmeout is no setting": "",
		"workers hold different versions of the destinations file: a1 (w1), b2 (w2)":   "",
	}
	if len(got.Findings) != len(want) {
		t.Fatalf("findings %+v, want %d", got.Findings, len(want))
	}
	for _, f := range got.Findings {
		if queue, wanted := want[f.Detail]; !wanted || f.Kind != doctor.KindDiffer || f.Queue != queue || f.Repaired {
			t.Errorf("finding %+v", f)
		}
	}
}
