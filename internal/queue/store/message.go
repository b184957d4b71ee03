package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is asynq's TaskMessage as far as Tidegate uses it.
//
// asynq keeps the type in an internal package, so the encoding is done here,
// by the field numbers of asynq v0.26.0's asynq.proto; contract tests hold it
// against what asynq itself writes and reads.
type Message struct {
	Type      string
	Payload   []byte
	Headers   map[string]string
	ID        string
	Queue     string
	Retry     int32 // always MaxRetry
	Retried   int32
	ErrorMsg  string
	Timeout   int64 // seconds
	Retention int64 // seconds
}

var errTruncated = errors.New("truncated")

// MaxRetry is asynq's retry limit of every job: the policy is ours, and asynq
// archives a task whose limit is reached before it asks whether the error was
// a failure at all.
const MaxRetry = math.MaxInt32

// TaskTimeout is asynq's bound of a run, in seconds. It is far above any call,
// because asynq frees the slot at that instant while the handler still runs;
// calls are bounded by the destination's own timeout.
const TaskTimeout = 7 * 24 * 3600

// Field numbers of asynq.proto.
const (
	numType      = 1
	numPayload   = 2
	numID        = 3
	numQueue     = 4
	numRetry     = 5
	numRetried   = 6
	numErrorMsg  = 7
	numTimeout   = 8
	numUniqueKey = 10
	numRetention = 12
	numGroupKey  = 14
	numHeaders   = 15
)

// AppendTo appends the encoded message to b and returns the result.
func (m *Message) AppendTo(b []byte) []byte {
	b = appendString(b, numType, m.Type)
	if len(m.Payload) > 0 {
		b = protowire.AppendTag(b, numPayload, protowire.BytesType)
		b = protowire.AppendBytes(b, m.Payload)
	}
	b = appendString(b, numID, m.ID)
	b = appendString(b, numQueue, m.Queue)
	b = appendVarint(b, numRetry, int64(m.Retry))
	b = appendVarint(b, numRetried, int64(m.Retried))
	b = appendString(b, numErrorMsg, m.ErrorMsg)
	b = appendVarint(b, numTimeout, m.Timeout)
	b = appendVarint(b, numRetention, m.Retention)
	for k, v := range m.Headers {
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(k)) + protowire.SizeTag(2) + protowire.SizeBytes(len(v))
		b = protowire.AppendTag(b, numHeaders, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size)) //nolint:gosec // a size is never negative
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, k)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendString(b, v)
	}
	return b
}

// PayloadSpan returns the range of the payload in an encoded message of TaskType: the bytes
// before from and from to on are a message without it.
func PayloadSpan(payload []byte) (from, to int) {
	from = protowire.SizeTag(numType) + protowire.SizeBytes(len(TaskType))
	return from, from + protowire.SizeTag(numPayload) + protowire.SizeBytes(len(payload))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendVarint(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // protobuf encodes negatives as two's complement
}

// DecodeMessage decodes a message encoded by asynq or AppendTo. It skips fields that Tidegate
// does not use.
func DecodeMessage(b []byte) (*Message, error) {
	m := &Message{}
	switch num, err := walk(b, m.set); {
	case err != nil && num == 0:
		return nil, fmt.Errorf("store: decode task message: %w", err)
	case err != nil:
		return nil, fmt.Errorf("store: decode task message field %d: %w", num, err)
	}
	if m.ID == "" || m.Queue == "" {
		return nil, errors.New("store: decode task message: id or queue missing")
	}
	return m, nil
}

// set sets the field of a number to a value of bytes or to a varint.
func (m *Message) set(num protowire.Number, v []byte, n int64) error {
	switch num {
	case numType:
		m.Type = string(v)
	case numPayload:
		m.Payload = append([]byte(nil), v...)
	case numID:
		m.ID = string(v)
	case numQueue:
		m.Queue = string(v)
	case numErrorMsg:
		m.ErrorMsg = string(v)
	case numRetry:
		m.Retry = int32(n) //nolint:gosec // an int32 on the wire
	case numRetried:
		m.Retried = int32(n) //nolint:gosec // an int32 on the wire
	case numTimeout:
		m.Timeout = n
	case numRetention:
		m.Retention = n
	case numHeaders:
		var header [3]string // by number: 1 is the name, 2 the value
		_, err := walk(v, func(num protowire.Number, v []byte, _ int64) error {
			if v == nil {
				return errTruncated
			}
			if int(num) < len(header) {
				header[num] = string(v)
			}
			return nil
		})
		if m.Headers == nil {
			m.Headers = make(map[string]string, 4)
		}
		m.Headers[header[1]] = header[2]
		return err
	}
	return nil
}

// costEntry begins the entry of the header HeaderCost. JSON, as a payload is, does not hold it.
const costEntry = "\x0a\x04" + HeaderCost + "\x12"

// CostOf returns the cost of the job of an encoded message.
func CostOf(msg string) int {
	if !strings.Contains(msg, costEntry) {
		return 1
	}
	m, err := DecodeMessage([]byte(msg))
	if err != nil {
		return 1
	}
	cost, _ := strconv.Atoi(m.Headers[HeaderCost])
	return min(max(1, cost), MaxCost) // another enqueuer may have written more
}

// MaxCost is the highest cost of a call.
const MaxCost = 1_000_000

var (
	errNoUTF8 = errors.New("it has text that is not valid UTF-8")
	errNumber = errors.New("invalid field number")
)

// CheckMessage returns what would keep asynq from decoding a task message, or nil. asynq
// leaves such a task where it is, and does not check the others of its queue.
func CheckMessage(msg string) error {
	num, err := walk([]byte(msg), func(num protowire.Number, v []byte, _ int64) error {
		switch num {
		case numType, numID, numQueue, numErrorMsg, numUniqueKey, numGroupKey:
			return checkText(v)
		case numHeaders:
			_, err := walk(v, checkHeader)
			return err
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case num == 0:
		return fmt.Errorf("store: task message: %w", err)
	}
	return fmt.Errorf("store: task message field %d: %w", num, err)
}

// checkHeader checks the name or the value of a header.
func checkHeader(num protowire.Number, v []byte, _ int64) error {
	if num == 1 || num == 2 {
		return checkText(v)
	}
	return nil
}

func checkText(v []byte) error {
	if !utf8.Valid(v) {
		return errNoUTF8
	}
	return nil
}

// walk calls f for each field of b that is bytes, or a varint. It returns the number of the wrong field, 0 if that
// cannot be read.
func walk(b []byte, f func(num protowire.Number, v []byte, n int64) error) (protowire.Number, error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		if num > protowire.MaxValidNumber {
			return 0, errNumber
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return num, protowire.ParseError(n)
		}
		var err error
		switch typ {
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			err = f(num, v, 0)
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			err = f(num, nil, int64(v)) //nolint:gosec // two's complement, as encoded
		}
		if err != nil {
			return num, err
		}
		b = b[n:]
	}
	return 0, nil
}
