package breaker

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// The breaker goes on if a person overwrites its record. If the record is not a JSON object, the breaker is lost and its incident
// ends. If it is one, each field counts that has the type and range that the rules write.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	const lost = "OPEN→CLOSED lost"
	nested := strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)
	for name, test := range map[string]struct{ text, status, ends string }{
		"nothing":                  {``, "CLOSED", lost},
		"no JSON":                  {`{`, "CLOSED", lost},
		"text":                     {`"x"`, "CLOSED", lost},
		"array":                    {`["state"]`, "CLOSED", lost},
		"null":                     {`null`, "CLOSED", lost},
		"too deep":                 {nested, "CLOSED", lost},
		"control character":        {"{\"state\":\"OPEN\",\"cause\":\"\x01\"}", "HALF_OPEN failures=1 \x01 wasted=1", ""},
		"by hand, and until reset": {"{\n\t\"state\": \"OPEN\",\n\t\"cause\": \"manual\"\n}\n", "OPEN until reset failures=1 manual wasted=1", ""},
		"nothing by hand":          {"{ }", "CLOSED failures=1 wasted=1", ""},
		"no number":                {`{"state":"OPEN","open_until":NaN}`, "HALF_OPEN failures=1 wasted=1", ""},
		"hexadecimal":              {`{"state":"OPEN","open_until":0x12}`, "HALF_OPEN failures=1 wasted=1", ""},
		"zeros first":              {`{"state":"OPEN","open_until":0012}`, "HALF_OPEN failures=1 wasted=1", ""},
		"exponent":                 {`{"state":"OPEN","open_until":1e3}`, "HALF_OPEN failures=1 wasted=1", ""},
		"huge":                     {`{"state":"OPEN","open_until":9223372036854775807}`, "HALF_OPEN failures=1 wasted=1", ""},
		"negative":                 {`{"metered":-5}`, "CLOSED failures=1 wasted=1", ""},
		"number as text":           {`{"metered":"5","level":"x"}`, "CLOSED failures=1 wasted=1", ""},
		"text as number":           {`{"state":5,"forced":1}`, "CLOSED failures=1 wasted=1", ""},
		"what is beside":           {`{"name":"x","meter":{"failures":7},"lost":5,"Failures":9}`, "CLOSED failures=1 wasted=1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, redistest.Database(t).Client(t), Options{FailureThreshold: 1, NoLearning: true})
			call(RateLimited(time.Minute))(h)
			set("record", test.text)(h)
			if got := get(h); got != test.status {
				t.Errorf("status: %s, want %s", got, test.status)
			}
			h.clock.advance(2*time.Hour, 2*time.Hour)
			look(h)
			if strings.Contains(test.status, "until reset") {
				if got := ask("a")(h); got != "OPEN for 1h0m0s" {
					t.Errorf("asked: %s", got)
				}
				reset(h)
			}
			call(Success())(h)
			if got := describe(h.b.Status()); got != "CLOSED" {
				t.Errorf("status after a call: %s", got)
			}
			if got := story(h); !strings.Contains(got, test.ends) {
				t.Errorf("history: %s, want %s", got, test.ends)
			}
			h.byHand("reset", "ann", 0, "")
			look(h)
			if got := call(RateLimited(0))(h); got != "OPEN 5m0s failures=1 threshold wasted=1" {
				t.Errorf("after a reset, refused: %s", got)
			}
		})
	}
}

// What instances mirror may be damaged, too: the rules write it anew.
func TestDamagedMirrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `"x"`, "[]", "null", `{"state":NaN}`, "{\n}", `{"state":5}`} {
		h := newHarness(t, redistest.Database(t).Client(t), Options{FailureThreshold: 1})
		for _, damaged := range []action{lose(0), setRule("level", 1)} {
			trip(0)(h)
			if err := h.rdb.HSet(t.Context(), h.place.keys[1], h.name(), text).Err(); err != nil {
				t.Fatal(err)
			}
			damaged(h)
			h.byHand("reset", "ann", 0, "")
			if got := look(h); got != "CLOSED" {
				t.Errorf("%q: after a reset %s", text, got)
			}
		}
	}
}
