package breaker

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one file of lua/, behind the files that it shares with others. It runs by EVALSHA, and by EVAL where
// Redis does not know it yet.
type script struct {
	operation string // for errors
	*redis.Script
	evalsha, eval [2]any // the commands' first arguments
}

// shared are the files that stand first in every script, in this order.
var shared = []string{"arguments", "json", "clock", "record"}

var (
	acquireScript  = newScript("named", "metering", "learn", "rate", "limits", "acquire")
	doneScript     = newScript("named", "metering", "learn", "rate", "limits", "done")
	swapScript     = newScript("named", "metering", "swap")
	releaseScript  = newScript("named", "metering", "rate", "limits", "release")
	limitScript    = newScript("named", "metering", "rate", "limits", "limit")
	joinScript     = newScript("named", "metering", "join")
	statusScript   = newScript("rate", "status")
	snapshotScript = newScript("snapshot")
	registerScript = newScript("register")

	rescheduledScript = newScript("rescheduled")
)

// newScript is the script of the last file, behind the others.
func newScript(files ...string) *script {
	var texts []string
	for _, file := range slices.Concat(shared, files) {
		texts = append(texts, luaFile(file))
	}
	text := strings.Join(texts, "\n")
	s := &script{operation: files[len(files)-1], Script: redis.NewScript(text)}
	s.evalsha, s.eval = [2]any{"evalsha", s.Hash()}, [2]any{"eval", text}
	return s
}

func luaFile(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: cannot be missing
	}
	return string(text)
}

// place is the location of one breaker in Redis. All keys are in one slot.
type place struct {
	namespace Namespace
	name      string // of the destination
	key       string
	keys      []string // KEYS of every script, as in arguments.lua
	events    string   // transitions of all breakers of the destination
	history   string   // of this one
	incidents string
	stamp     string // changes with all that the snapshot has
	channel   string
	prefix    string // of all keys
}

// keyPlaces are the names of a key's KEYS between the prefix and the key.
var keyPlaces = [...]string{
	"breaker:", "breaker-history:", "breaker-incidents:", "breaker-inflight:", "breaker-joined:", "breaker-waiting:", "breaker-limits:",
}

func (n Namespace) placeOf(destination, key string) place {
	prefix := string(cmp.Or(n, DefaultNamespace)) + ":{" + destination + "}:"
	at := func(what string) string { return prefix + "breaker-" + what }
	p := place{
		namespace: n, name: destination, key: key, events: at("events"),
		history: at("history"), incidents: at("incidents"), stamp: at("stamp"), channel: prefix + "breaker:events", prefix: prefix,
	}
	p.keys = []string{
		prefix + "breaker", prefix + "notclosed", p.events, at("reports"), at("changes"), at("idle"),
		at("instances"), at("limits"), p.history, p.incidents, at("inflight"), at("joined"), p.stamp, at("waiting"),
	}
	if key != "" {
		own := len(p.keys)
		for _, what := range keyPlaces {
			p.keys = append(p.keys, prefix+what+key)
		}
		p.history, p.incidents = p.keys[own+1], p.keys[own+2]
	}
	return p
}

// caller is the caller of a script: of its ARGV, and of the rules.
type caller struct {
	now         string // "" is Redis TIME; tests pass µs
	who         string
	id          string // of an instance, "" for an operator
	cooldown    time.Duration
	multiplier  float64
	maxCooldown time.Duration
	jitter      float64
}

// result is the first value of a reply.
type result string

const (
	resultClosed   result = "closed"
	resultGranted  result = "granted"
	resultDenied   result = "denied"
	resultBounds   result = "bounds"
	resultDecide   result = "decide"
	resultApplied  result = "applied"
	resultStored   result = "stored"
	resultConflict result = "conflict"
)

// reply is what most scripts return.
type reply struct {
	result  result
	now     int64  // Redis's clock, µs
	version uint64 // highest revision of the destination's breakers
	name    string // of the breaker that decided
	more    string
	record  record    // of the destination's breaker
	keyed   record    // of the key's
	whole   [2]string // their texts, of resultDecide and status
}

// of returns the record of the requested breaker.
func (r *reply) of(key string) *record {
	if key == "" {
		return &r.record
	}
	return &r.keyed
}

// args are ARGV of a script.
func (p place) args(c caller, own []any) []any {
	return append([]any{
		c.now, p.name, p.key, p.channel, c.who, c.id, millis(c.cooldown),
	}, own...)
}

// run runs the script for an operator. Its error is Redis's.
func (s *script) run(ctx context.Context, rdb redis.Scripter, p place, c caller, own ...any) (reply, error) {
	text, err := s.Run(ctx, rdb, p.keys, p.args(c, own)...).Text()
	if err != nil {
		return reply{}, err
	}
	return parseReply(text, parseRecord)
}

// process runs the script by EVALSHA, and by EVAL where Redis does not know it yet. args are EVALSHA's.
func (s *script) process(ctx context.Context, rdb redis.UniversalClient, args []any) (string, error) {
	for {
		cmd := redis.NewStringCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		err := rdb.Process(ctx, cmd)
		if err == nil || args[0] == s.eval[0] || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return cmd.Result()
		}
		args = slices.Concat(s.eval[:], args[2:])
	}
}

// parseReply reads what arguments.lua describes, and records by parse.
func parseReply(text string, parse recordParser) (reply, error) {
	var values [7]string
	more := true
	for i := range values {
		if !more {
			return reply{}, fmt.Errorf("reply has %d lines, want %d", i, len(values))
		}
		values[i], text, more = strings.Cut(text, "\n")
	}
	r := reply{result: result(values[0]), name: values[3], more: values[4]}
	var err error
	if r.now, err = strconv.ParseInt(values[1], 10, 64); err != nil {
		return reply{}, fmt.Errorf("reply: time: %w", err)
	}
	if r.version, err = strconv.ParseUint(values[2], 10, 64); err != nil {
		return reply{}, fmt.Errorf("reply: version: %w", err)
	}
	r.whole = [2]string(values[5:])
	if r.undecided() {
		return r, nil
	}
	return r, r.read(parse)
}

// undecided says that the reply has whole records, for the rules, which are read only if no other reply follows.
func (r *reply) undecided() bool { return r.result == resultDecide || r.result == resultConflict }

// read parses the records.
func (r *reply) read(parse recordParser) error {
	for i, record := range [...]*record{&r.record, &r.keyed} {
		if text := r.whole[i]; text != "" {
			if err := parse(text, record); err != nil {
				return fmt.Errorf("reply: record: %w", err)
			}
		}
	}
	return nil
}

// recordParser reads a record.
type recordParser func(text string, into *record) error

// parseRecord is a recordParser. A damaged field is none, so that it cannot hold a breaker for ever.
func parseRecord(text string, into *record) error { return parseAs(text, into) }

func parseAs(text string, into any) error {
	err := json.Unmarshal([]byte(text), into)
	if _, damaged := errors.AsType[*json.UnmarshalTypeError](err); damaged {
		return nil
	}
	return err
}

// snapshot is what snapshot.lua returns.
type snapshot struct {
	now        int64 // µs; 0 if it was not read
	version    uint64
	floor      uint64
	transition uint64
	capacity   int64
	origin     string // see docs/adr/0019
	changes    []change
}

// change is one breaker in a snapshot.
type change struct {
	name     string
	revision uint64
	record   record // zero for a plainly CLOSED one
}

func parseSnapshot(values []string) (snapshot, error) {
	const head = 7
	if len(values) < head || (len(values)-head)%3 != 0 {
		return snapshot{}, fmt.Errorf("snapshot has %d values, want %d and three for each change", len(values), head)
	}
	s := snapshot{origin: values[6]}
	var errs [5]error
	s.now, errs[0] = strconv.ParseInt(values[1], 10, 64)
	s.version, errs[1] = strconv.ParseUint(values[2], 10, 64)
	s.floor, errs[2] = strconv.ParseUint(values[3], 10, 64)
	s.transition, errs[3] = strconv.ParseUint(values[4], 10, 64)
	s.capacity, errs[4] = strconv.ParseInt(values[5], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	for i := head; i < len(values); i += 3 {
		c := change{name: values[i]}
		var err error
		if c.revision, err = strconv.ParseUint(values[i+1], 10, 64); err != nil {
			return snapshot{}, fmt.Errorf("snapshot: revision: %w", err)
		}
		if values[i+2] != "" {
			if err := parseRecord(values[i+2], &c.record); err != nil {
				return snapshot{}, fmt.Errorf("snapshot: record of %s: %w", c.name, err)
			}
		}
		s.changes = append(s.changes, c)
	}
	return s, nil
}

// longest is what longer times are cut to, so that sums of them do not overflow.
const longest = 100 * 365 * 24 * time.Hour

// millis is d in whole milliseconds, rounded up: nothing ends early.
func millis(d time.Duration) int64 {
	return int64((min(d, longest) + time.Millisecond - 1) / time.Millisecond)
}
