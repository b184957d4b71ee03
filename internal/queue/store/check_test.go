package store_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	_ "github.com/hibiken/asynq" // which registers its message
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// asynqMessage is asynq's own type of a task message, which it keeps in an internal
// package.
func asynqMessage(t testing.TB) protoreflect.MessageType {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName("asynq.TaskMessage")
	if err != nil {
		t.Fatalf("asynq's message has another name now: %v", err)
	}
	return m
}

// raw builds what no message can be made to hold.
type raw []byte

func (r raw) bytes(num protowire.Number, b string) raw {
	return protowire.AppendString(protowire.AppendTag(r, num, protowire.BytesType), b)
}

func (r raw) varint(num protowire.Number, n uint64) raw {
	return protowire.AppendVarint(protowire.AppendTag(r, num, protowire.VarintType), n)
}

const bad = "caf\xe9" // Latin-1

var (
	goodMessage = raw((&store.Message{
		Type: store.TaskType, ID: "id", Queue: "tidegate:d", Payload: []byte(`{}`), Headers: map[string]string{"created": "1"},
		Retry: store.MaxRetry, Timeout: store.TaskTimeout, Retention: 86400,
	}).AppendTo(nil))
	entryOf = func(key, value string) raw { return raw(nil).bytes(1, key).bytes(2, value) }
)

// with appends a field to a good message.
func with(more func(raw) raw) []byte { return more(bytes.Clone(goodMessage)) }

// checked are messages, and what is wrong with them; "" for nothing.
var checked = []struct {
	name, want string
	in         []byte
}{
	{"a job", "", goodMessage},
	{"what every field can hold", "", (&store.Message{
		Type: "t", ID: "é", Queue: "日本", Payload: binary, ErrorMsg: "boom: 語", Retry: -1, Retried: 3, Timeout: -5, Retention: 1 << 60,
		Headers: map[string]string{"": "", "empty": "", "é": strings.Repeat("語", 100), "headers": `{"X-A":"é"}`},
	}).AppendTo(nil)},
	{"nothing but an id", "", raw(nil).bytes(3, "id")},
	{"binary payload", "", with(func(r raw) raw { return r.bytes(2, bad) })},
	{"bad type", "field 1: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(1, bad) })},
	{"bad id", "field 3: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(3, bad) })},
	{"bad queue", "field 4: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(4, bad) })},
	{"bad last error", "field 7: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(7, bad) })},
	{"bad unique key", "field 10: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(10, bad) })},
	{"bad group", "field 14: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(14, bad) })},
	{"bad text that is overwritten", "field 1: it has text that is not valid UTF-8", append(raw(nil).bytes(1, bad), goodMessage...)},
	{"half a character", "field 1: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(1, "caf\xc3") })},
	{"a surrogate", "field 1: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(1, "\xed\xa0\x80") })},
	{"bad value of a header", "field 15: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(15, string(entryOf("path", bad))) })},
	{"bad name of a header", "field 15: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(15, string(entryOf(bad, "v"))) })},
	{"long value of a header", "", with(func(r raw) raw { return r.bytes(15, string(entryOf("path", strings.Repeat("x", 200)))) })},
	{"long bad value of a header", "field 15: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(15, string(entryOf("path", strings.Repeat("x", 200)+bad))) })},
	{"bad value that another one follows", "field 15: it has text that is not valid UTF-8", with(func(r raw) raw { return r.bytes(15, string(entryOf("path", bad).bytes(2, "good"))) })},
	{"a header without a name", "", with(func(r raw) raw { return r.bytes(15, string(raw(nil).bytes(2, "v"))) })},
	{"an empty header", "", with(func(r raw) raw { return r.bytes(15, "") })},
	{"a header with more to it", "", with(func(r raw) raw { return r.bytes(15, string(entryOf("k", "v").varint(3, 1).bytes(4, bad))) })},
	{"a header with a number for a name", "", with(func(r raw) raw { return r.bytes(15, string(raw(nil).varint(1, 300).bytes(2, "v"))) })},
	{"a header that is text", "field 15: ", with(func(r raw) raw { return r.bytes(15, "hello") })},
	{"a header cut short", "field 15: ", with(func(r raw) raw { return r.bytes(15, "\x0a\x09k") })},
	{"an unknown field", "", with(func(r raw) raw { return r.varint(99, 1) })},
	{"an unknown field of bytes", "", with(func(r raw) raw { return r.bytes(16, "\xff\x00") })},
	{"a text in place of a number", "", with(func(r raw) raw { return r.bytes(5, bad) })},
	{"a number in place of a text", "", with(func(r raw) raw { return r.varint(1, 5) })},
	{"cut short", "field 12: ", goodMessage[:bytes.LastIndexByte(goodMessage, 12<<3)+1]},
	{"a length beyond the end", "field 2: ", []byte{0x12, 0x7f, 'x'}},
	{"a number without end", "field 5: ", []byte{0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	{"field 0", "store: task message: ", []byte{0x00, 0x01}},
	{"a field beyond all numbers", "store: task message: ", protowire.AppendVarint(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3), 1)},
	{"the end of a group that has not begun", "field 3: ", protowire.AppendTag(nil, 3, protowire.EndGroupType)},
	{"a group", "", protowire.AppendTag(protowire.AppendTag(nil, 30, protowire.StartGroupType), 30, protowire.EndGroupType)},
	{"a group without end", "field 30: ", protowire.AppendTag(nil, 30, protowire.StartGroupType)},
	{"a wire type that does not exist", "field 3: ", []byte{3<<3 | 6, 1}},
	{"text", "field ", []byte("hello")},
}

// What is wrong with a message is said by the number of its field, and it is what
// asynq cannot decode.
func TestCheckMessage(t *testing.T) {
	t.Parallel()
	asynqs := asynqMessage(t)
	for _, tc := range checked {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := proto.Unmarshal(tc.in, asynqs.New().Interface()); (err != nil) != (tc.want != "") {
				t.Fatalf("the row is wrong: asynq says %v", err)
			}
			err := store.CheckMessage(string(tc.in))
			if tc.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "store: task message") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A message passes the check exactly if asynq can decode it. A message that asynq cannot decode
// would keep a slot for ever; the check must not refuse any other.
func FuzzCheckMessage(f *testing.F) {
	asynqs := asynqMessage(f)
	for _, tc := range checked {
		f.Add(tc.in)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		problem := store.CheckMessage(string(b))
		if err := proto.Unmarshal(b, asynqs.New().Interface()); (err != nil) != (problem != nil) {
			t.Errorf("the check says %v, asynq says %v, of %x", problem, err, b)
		}
	})
}
