package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// WorkerSilence is the time without a heartbeat after which a worker counts as gone. The
// heartbeat interval is ten seconds; a worker removes its entry when it stops.
const WorkerSilence = 30 * time.Second

// LiveWorkers reads the entries of WorkersKey and leaves out workers that are gone.
func LiveWorkers(entries map[string]string, now time.Time) map[string]Worker {
	live := map[string]Worker{}
	for name, text := range entries {
		var w Worker
		// One from the future was written before Redis's clock went back.
		// An unreadable entry may be of a later version of this program.
		if json.Unmarshal([]byte(text), &w) == nil && now.Sub(time.UnixMilli(w.SeenAt)).Abs() <= WorkerSilence {
			live[name] = w
		}
	}
	return live
}

// Worker is a worker's entry in WorkersKey, as JSON. Times are unix milliseconds.
type Worker struct {
	StartedAt    int64    `json:"started_at"`
	SeenAt       int64    `json:"seen_at"`
	Destinations []string `json:"destinations"`
	// Unreachable are the destinations that its calls do not leave for.
	Unreachable map[string]Unreachable `json:"unreachable,omitempty"`
	// Pools are the names of the tokens that calls choose from, by destination.
	Pools map[string][]string `json:"pools,omitempty"`
	// Doubts are responses of the last hour whose status may not say what they mean, by destination.
	Doubts map[string][]Doubt `json:"doubts,omitempty"`
	// Settings are hashes, by name, of the settings of each destination in which all workers
	// should agree; see HashSetting.
	Settings map[string]map[string]string `json:"settings,omitempty"`
	// ClockOffset is its clock minus Redis's, milliseconds.
	ClockOffset int64 `json:"clock_offset_ms,omitempty"`
	// ConfigVersion is a hash of the destinations file that it publishes by, ConfigProblem why it cannot take
	// up the file as it is now; "" without a file, and if nothing is wrong.
	ConfigVersion string `json:"config_version,omitempty"`
	ConfigProblem string `json:"config_problem,omitempty"`
}

// Unserved is a destination with jobs that no live worker serves: they wait for one, or
// expire.
type Unserved struct {
	Destination string
	// Backlog counts its unfinished jobs.
	Backlog int
	// SeenAt is when a worker last served it; zero if none ever did.
	SeenAt time.Time
}

// NotReached reports whether none of the live workers that serve the destination reaches it, and the
// earliest record of that. It is false without workers.
func NotReached(live map[string]Worker, destination string) (first Unreachable, unreached bool) {
	for _, w := range live {
		if !slices.Contains(w.Destinations, destination) {
			continue
		}
		u, ok := w.Unreachable[destination]
		if !ok {
			return Unreachable{}, false
		}
		if !unreached || u.Since < first.Since {
			first, unreached = u, true
		}
	}
	return first, unreached
}

// Doubt counts responses of one kind whose status may not say what they mean. At is when the last one came,
// in unix milliseconds.
type Doubt struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	At    int64  `json:"at"`
	Sign  string `json:"sign"`
	Rule  string `json:"rule"`
}

// Unreachable says since when, in unix milliseconds, and why calls do not leave.
type Unreachable struct {
	Since   int64  `json:"since"`
	Problem string `json:"problem"`
}

// LargestClockOffset is how far a worker's clock may be from Redis's.
const LargestClockOffset = 5 * time.Second

// HashSetting hashes a setting: enough to see that two differ, too little to recover one.
func HashSetting(destination, name, value string) string {
	sum := sha256.Sum256([]byte(destination + "\x00" + name + "\x00" + value))
	return hex.EncodeToString(sum[:4])
}

// ReadLiveWorkers reads the workers with a recent heartbeat, by name.
func (n Namespace) ReadLiveWorkers(ctx context.Context, rdb redis.Cmdable) (map[string]Worker, error) {
	entries, err := rdb.HGetAll(ctx, n.WorkersKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read the time: %w", err)
	}
	return LiveWorkers(entries, now), nil
}

// Disagreement is a setting of a destination, or a clock, in which the workers of a fleet
// differ, or a destinations file that some cannot take up.
type Disagreement struct {
	// Destination of the setting; "" for a clock.
	Destination string
	// Setting is its name, such as rate; clock for a clock, DestinationsFile for the file.
	Setting string
	// Workers that differ, by name.
	Workers []string
	// Problem is the description.
	Problem string
}

// redisClock describes the clock of Redis if all of several workers differ from it alike: it is
// the one that is wrong, such as after a failover to a machine without NTP.
func redisClock(workers map[string]Worker) (d Disagreement, wrong bool) {
	const alike = time.Second
	names := slices.Sorted(maps.Keys(workers))
	if len(names) < 2 {
		return d, false
	}
	offset := func(name string) time.Duration { return time.Duration(workers[name].ClockOffset) * time.Millisecond }
	first := offset(names[0])
	for _, name := range names {
		if (offset(name) - first).Abs() > alike {
			return d, false
		}
	}
	if first.Abs() <= LargestClockOffset {
		return d, false
	}
	direction := "behind"
	if first < 0 {
		direction = "ahead of"
	}
	return Disagreement{Setting: "clock", Workers: names, Problem: fmt.Sprintf(
		"the clock of Redis is %s %s the clocks of all %d workers; set it by NTP on Redis's machine", first.Abs().Round(time.Second), direction, len(names))}, true
}

// mostNamed bounds the workers that a Problem names on each side.
const mostNamed = 5

func nameSome(names []string) string {
	out := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// DestinationsFile is the Setting of a disagreement about the destinations file.
const DestinationsFile = "destinations file"

// ofFile describes what is wrong with the destinations file: workers that cannot apply the present version, and
// workers that hold different versions.
func ofFile(workers map[string]Worker) (out []Disagreement) {
	problems, versions := map[string][]string{}, map[string][]string{}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		w := workers[name]
		if w.ConfigProblem != "" {
			problems[w.ConfigProblem] = append(problems[w.ConfigProblem], name)
		}
		if w.ConfigVersion != "" {
			versions[w.ConfigVersion] = append(versions[w.ConfigVersion], name)
			all = append(all, name)
		}
	}
	for problem, names := range problems {
		who := "worker " + names[0] + " cannot"
		if len(names) > 1 {
			who = "workers " + nameSome(names) + " cannot"
		}
		out = append(out, Disagreement{Setting: DestinationsFile, Workers: names, Problem: who + " take up the destinations file: " + problem})
	}
	if len(versions) > 1 {
		var held []string
		for version, names := range versions {
			held = append(held, version+" ("+nameSome(names)+")")
		}
		slices.Sort(held)
		out = append(out, Disagreement{Setting: DestinationsFile, Workers: all, Problem: "workers hold different versions of the destinations file: " + strings.Join(held, ", ")})
	}
	return out
}

// Disagreements compares workers, by name. The result is ordered by destination and
// setting.
func Disagreements(workers map[string]Worker) []Disagreement {
	type setting struct{ destination, name string }
	sides := map[setting]map[string][]string{} // by hash, the workers
	out := ofFile(workers)
	clock, redisIsWrong := redisClock(workers)
	if redisIsWrong {
		out = append(out, clock)
	}
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		w := workers[name]
		for destination, settings := range w.Settings {
			for s, hash := range settings {
				of := setting{destination, s}
				if sides[of] == nil {
					sides[of] = map[string][]string{}
				}
				sides[of][hash] = append(sides[of][hash], name)
			}
		}
		if ahead := time.Duration(w.ClockOffset) * time.Millisecond; ahead.Abs() > LargestClockOffset && !redisIsWrong {
			direction := "ahead of"
			if ahead < 0 {
				direction = "behind"
			}
			out = append(out, Disagreement{Setting: "clock", Workers: []string{name}, Problem: fmt.Sprintf(
				"the clock of worker %s is %s %s Redis's; set it by NTP", name, ahead.Abs().Round(time.Second), direction)})
		}
	}
	for of, byHash := range sides {
		if len(byHash) < 2 {
			continue
		}
		d := Disagreement{Destination: of.destination, Setting: of.name}
		var named []string
		for _, names := range byHash {
			d.Workers = append(d.Workers, names...)
			named = append(named, nameSome(names))
		}
		slices.Sort(d.Workers)
		slices.Sort(named)
		d.Problem = fmt.Sprintf("workers disagree on the %s of %s: %s", of.name, of.destination, strings.Join(named, " / "))
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Disagreement) int {
		return cmp.Or(strings.Compare(a.Destination, b.Destination), strings.Compare(a.Setting, b.Setting), slices.Compare(a.Workers, b.Workers), strings.Compare(a.Problem, b.Problem))
	})
	return out
}
