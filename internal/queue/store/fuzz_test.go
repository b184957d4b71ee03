package store_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Redis may hold any bytes: the decoder must return, and the message that it returns must
// survive another round.
func FuzzDecodeMessage(f *testing.F) {
	full := (&store.Message{
		Type: store.TaskType, Payload: []byte(`{"a":1}`), Headers: map[string]string{"created": "1", "key": "alice", "": ""},
		ID: "id", Queue: "tidegate:d", Retry: store.MaxRetry, Retried: -1, ErrorMsg: "boom", Timeout: store.TaskTimeout, Retention: -1,
	}).AppendTo(nil)
	f.Add(full)
	f.Add(full[:len(full)/2])
	f.Add([]byte{})
	f.Add([]byte{0x7a, 0x02, 0x0a, 0xff})                         // a header's name beyond the end
	f.Add([]byte{0x1a, 1, 'i', 0x22, 1, 'q', 0x7a, 0})            // an empty header
	f.Add([]byte{0x1a, 1, 'i', 0x22, 1, 'q', 0xa3, 1, 0xa4, 1})   // an unknown group
	f.Add([]byte{0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // a number without end
	f.Add([]byte{0x1d, 1, 2, 3, 4, 0x22, 1, 'q', 0x1a, 1, 'i'})   // an id of another wire type, then a good one
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := store.DecodeMessage(b)
		if err != nil {
			if m != nil {
				t.Errorf("a message %+v together with the error %v", m, err)
			}
			return
		}
		if m.ID == "" || m.Queue == "" {
			t.Errorf("accepted without id or queue: %+v", m)
		}
		again, err := store.DecodeMessage(m.AppendTo(nil))
		if err != nil {
			t.Fatalf("its own encoding is refused: %v", err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after another round (-first +second):\n%s", diff)
		}
	})
}
