package breaker

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/learner"
)

var learnedScript = newScript("named", "learned")

// learner is what is known of a limit that is learned. What cannot be read is nothing.
func (r *record) learner() (s learner.State) {
	if r.Learner != "" && (json.Unmarshal([]byte(r.Learner), &s) != nil || !s.Valid()) {
		return learner.State{}
	}
	return s
}

// learned returns the limit of a record, nil if nothing is learned yet.
func (r *record) learned() *LearnedLimit {
	if apart := r.pace(); apart > 0 {
		return &LearnedLimit{
			Calls: 1, Window: time.Duration(apart) * time.Millisecond, RatePerSec: 1000 / float64(apart),
			Confidence: min(1, float64(r.Spaced)/paceSure), Since: instant(r.QuietSince),
		}
	}
	s := r.learner()
	if r.LearnedSince == 0 || s.Pace.Stage == learner.Unmeasured && s.Slots.Number() == 0 {
		return nil
	}
	l := &LearnedLimit{Since: instant(r.LearnedSince), Confidence: s.Confidence(), Concurrency: s.Slots.Number()}
	if s.Pace.Stage != learner.Unmeasured {
		l.Calls, l.RatePerSec = max(1, int(math.Round(s.Pace.Length/s.Pace.Slow))), 1/s.Pace.Slow
		l.Window = fromSeconds(s.Pace.Length)
	}
	return l
}

func fromSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// meter are the numbers that the scripts count, after so many refusals in a row: those of an incident's probes are
// no longer in the record when it has ended.
func (r *record) meter(refused int) learner.Meter {
	return learner.Meter{
		Round: float64(r.RoundStarted) / 1e6, Anchor: float64(r.RoundAnchor) / 1e6, Used: r.RoundUsed, Total: r.RoundTotal,
		Paced: r.RoundPaced, Calm: r.RoundCalm, Refused: refused, LastNo: float64(r.RefusedAt) / 1e6, Room: r.Ramp, Confirm: r.Confirming,
	}
}

// learn decides what a script has told of limits that are learned, see learn.lua, and stores that. An event that is lost,
// or overtaken by another one, teaches nothing: the next one does.
func (c *core) learn(ctx context.Context, key string, r *reply) {
	for word := range strings.FieldsSeq(r.more) {
		if event, ok := strings.CutPrefix(word, "learn:"); ok {
			c.decideLearned(ctx, "", &r.record, r.now, event)
		} else if event, ok := strings.CutPrefix(word, "key-learn:"); ok {
			c.decideLearned(ctx, key, &r.keyed, r.now, event)
		}
	}
}

func (c *core) decideLearned(ctx context.Context, key string, of *record, now int64, told string) {
	words := strings.Split(told, ":")
	if len(words) != 4 {
		return
	}
	others, _ := strconv.Atoi(words[1])
	refused, _ := strconv.Atoi(words[2])
	sent, _ := strconv.ParseInt(words[3], 10, 64)
	e := learner.Event{Kind: learner.Kind(words[0]), Now: float64(now) / 1e6, Sent: float64(sent) / 1e6, Others: others}
	switch words[0] {
	case "late":
		e.Kind, e.Late = learner.Recovered, true
	case "hinted":
		e.Kind, e.Hinted = learner.Recovered, true
	}
	cooldown := c.options.Cooldown.Seconds()
	before := of.meter(refused)
	state, after, pause := of.learner().Next(before, e, cooldown)
	text, err := json.Marshal(state)
	if err != nil {
		c.log.Error("breaker cannot store what it has learned", "breaker", of.Name, "error", err)
		return
	}
	g := state.Gate(cooldown)
	q := c.question(learnedScript, key)
	q.number("generation", int64(of.Generation)) //nolint:gosec // µs, as the scripts count it
	q.number("step", int64(of.LearnedStep))      //nolint:gosec // counts from 0
	q.text("learner", string(text))
	q.number("wait", int64(math.Ceil(pause*1000)))
	micros := func(s float64) float64 { return math.Round(s * 1e6) }
	for _, n := range [...]struct {
		name    string
		was, is float64 // -1: it is sent in any case
	}{
		{"learned_gap", -1, micros(g.Gap)},
		{"learned_length", -1, micros(g.Length)},
		{"learned_cap", -1, float64(g.Most)},
		{"learned_careful", -1, float64(g.Careful)},
		{"learned_enough", -1, float64(g.Enough)},
		{"learned_calm", -1, float64(g.CalmEnough)},
		{"round_started", micros(before.Round), micros(after.Round)},
		{"round_anchor", micros(before.Anchor), micros(after.Anchor)},
		{"round_used", before.Used, after.Used},
		{"round_total", before.Total, after.Total},
		{"round_paced", float64(before.Paced), float64(after.Paced)},
		{"round_calm", float64(before.Calm), float64(after.Calm)},
		{"refused_at", micros(before.LastNo), micros(after.LastNo)},
	} {
		if n.was != n.is || e.Kind == learner.Recovered {
			q.count(n.name, int64(math.Round(n.is)))
		}
	}
	if after.Confirm != before.Confirm {
		q.count("confirming", int64(after.Confirm))
	}
	if after.Room != before.Room {
		q.count("ramp", int64(after.Room))
	}
	if of.State == Closed && e.Kind != learner.Recovered && after.Refused != before.Refused {
		q.count("failures", int64(after.Refused))
	}
	if pause > 0 {
		cause := CauseLearned
		if state.Pace.Stage == learner.Unmeasured {
			cause = CauseThreshold
			if of.State != Closed {
				cause = CauseProbe
				q.flag("raise", true)
			}
		}
		q.text("cause", cause)
	}
	_, _ = q.ask(ctx, c.deadline(ctx))
}
