package jobs_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tidegate/tidegate/jobs"
)

func TestNewPayload(t *testing.T) {
	t.Parallel()
	type post struct {
		Title string `json:"title"`
		Tags  []int  `json:"tags,omitempty"`
	}
	for _, tc := range []struct {
		name    string
		payload any
		want    string
	}{
		{"nil", nil, "null"},
		{"bytes are left as they are", []byte(" {\"b\":1,  \"a\":1e400}\n"), " {\"b\":1,  \"a\":1e400}\n"},
		{"raw JSON is left as it is", json.RawMessage(`{"a":1,"a":2,"u":"\u00fc"}`), `{"a":1,"a":2,"u":"\u00fc"}`},
		{"bytes of a wrong encoding inside a string", []byte("\"\xff\""), "\"\xff\""},
		{"struct", post{Title: "ü & <b>"}, `{"title":"ü \u0026 \u003cb\u003e"}`},
		{"pointer", &post{Title: "t", Tags: []int{1}}, `{"title":"t","tags":[1]}`},
		{"map", map[string]int{"b": 2, "a": 1}, `{"a":1,"b":2}`},
		{"string is one value", "text", `"text"`},
		{"number", 1.5, "1.5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := jobs.New("d", tc.payload)
			if string(s.Payload) != tc.want {
				t.Errorf("payload %q, want %q", s.Payload, tc.want)
			}
			if err := s.Validate(jobs.Limits{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// What cannot be encoded is reported by the enqueue, not by a panic in New.
func TestNewWithAPayloadThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.Enqueue(t.Context(), jobs.New(b.dest, func() {}))
	if want := "jobs: enqueue: payload: cannot be encoded as JSON: json: unsupported type: func()"; !errors.Is(err, jobs.ErrInvalid) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
