package breaker

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one file of lua/ behind the prelude. It runs by EVALSHA, and by
// EVAL where Redis does not know it yet.
type script struct {
	operation string // for errors
	*redis.Script
}

var (
	acquireScript  = newScript("acquire")
	advanceScript  = newScript("advance")
	reportScript   = newScript("report")
	releaseScript  = newScript("release")
	tripScript     = newScript("trip")
	resetScript    = newScript("reset")
	statusScript   = newScript("status")
	snapshotScript = newScript("snapshot")
)

func newScript(name string) *script {
	source := func(file string) string {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // embedded: cannot be missing
		}
		return string(text)
	}
	return &script{operation: name, Script: redis.NewScript(source("prelude") + "\n" + source(name))}
}

// place is where one breaker lives in Redis. All keys are in one slot.
type place struct {
	name    string
	keys    []string // KEYS of every script, as in the prelude
	history string
	channel string
}

func placeOf(destination string) place {
	prefix := "tidegate:{" + destination + "}:"
	history := prefix + "breaker-history"
	return place{
		name:    destination,
		keys:    []string{prefix + "breaker", prefix + "notclosed", history, prefix + "breaker-reports"},
		history: history,
		channel: prefix + "breaker:events",
	}
}

// caller is what a script learns of who runs it: ARGV 1 and 4 to 7.
type caller struct {
	now         string // "" is Redis TIME; tests pass µs
	who         string
	cooldown    time.Duration
	multiplier  float64
	maxCooldown time.Duration
}

// result is the first value of a reply.
type result string

const (
	resultClosed  result = "closed"
	resultGranted result = "granted"
)

// reply is what every script returns.
type reply struct {
	result  result
	now     int64  // Redis's clock, µs; 0 if the script did not read it
	version uint64 // highest revision of the destination's breakers
	record  record // zero for CLOSED without failures
}

// run runs the script. Its error is Redis's.
func (s *script) run(ctx context.Context, rdb redis.Scripter, p place, c caller, own ...any) (reply, error) {
	args := append([]any{
		c.now, p.name, p.channel, c.who,
		millis(c.cooldown), strconv.FormatFloat(c.multiplier, 'f', -1, 64), millis(c.maxCooldown),
	}, own...)
	values, err := s.Run(ctx, rdb, p.keys, args...).StringSlice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

func parseReply(values []string) (reply, error) {
	if len(values) != 4 {
		return reply{}, fmt.Errorf("reply has %d values, want 4", len(values))
	}
	r := reply{result: result(values[0])}
	var err error
	if r.now, err = strconv.ParseInt(values[1], 10, 64); err != nil {
		return reply{}, fmt.Errorf("reply: time: %w", err)
	}
	if r.version, err = strconv.ParseUint(values[2], 10, 64); err != nil {
		return reply{}, fmt.Errorf("reply: version: %w", err)
	}
	if values[3] != "" {
		if err := json.Unmarshal([]byte(values[3]), &r.record); err != nil {
			return reply{}, fmt.Errorf("reply: record: %w", err)
		}
	}
	return r, nil
}

// millis is d in whole milliseconds, rounded up: nothing ends early.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
