package modeltest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/jobs"
)

// invariant is one of docs/invariants.md, of the same name there. Each function says
// what of the observation breaks it, or "".
type invariant struct {
	name    string
	start   func(*book, *seen, start) string
	read    func(*book, *seen, *jobs.Job) string
	history func(*seen, []jobs.HistoryEntry) string
}

var invariants = []invariant{
	{name: "A stop holds", start: stopHolds, read: staysStopped},
	{name: "One call at a time", start: oneCall},
	{name: "Expired jobs never start", start: expiredNeverStarts, read: expiryStays},
	{name: "Not before its time", start: notBeforeItsTime},
	{name: "A paused destination starts nothing", start: destinationPaused},
	{name: "Parents first", start: parentsFirst, read: parentsDecide},
	{name: "First in, first out", start: firstInFirstOut},
	{name: "Keys in order", start: keysInOrder},
	{name: "Counters count", start: countersTold, read: countersCount},
	{name: "A job stays as accepted", read: asAccepted},
	{name: "The history has no gaps", history: noGaps},
}

func stopHolds(_ *book, j *seen, _ start) string {
	if j.stopped != "" {
		return fmt.Sprintf("%s is called after it was stopped: %s", j.id, j.stopped)
	}
	return ""
}

func staysStopped(_ *book, j *seen, got *jobs.Job) string {
	was := j.status()
	switch {
	case j.stopped == "" || j.stopped == string(jobs.ActionPause) && got.Status == jobs.Paused:
		return ""
	case !got.Status.Final(), was.Final() && !j.reopened && got.Status != was:
		return fmt.Sprintf("%s was %s, stopped (%s), and is %s", j.id, was, j.stopped, got.Status)
	}
	return ""
}

func oneCall(_ *book, j *seen, s start) string {
	for worker := range j.inHand {
		return fmt.Sprintf("%s is called by %s while %s calls it", j.id, s.worker, worker)
	}
	return ""
}

func expiredNeverStarts(_ *book, j *seen, s start) string {
	if s.fields == nil {
		return ""
	}
	ms, _ := strconv.ParseInt(s.fields.ExpiresAt, 10, 64) // none: 0
	if ms > 0 && s.at.UnixMilli() >= ms {
		return fmt.Sprintf("%s expired at %s and is called", j.id, time.UnixMilli(ms))
	}
	if (ms > 0) != (j.first != nil && j.first.ExpiresAt != nil) {
		return fmt.Sprintf("%s is called with expiry %q; it was accepted with %v", j.id, s.fields.ExpiresAt, j.first.ExpiresAt)
	}
	return ""
}

func expiryStays(_ *book, j *seen, got *jobs.Job) string {
	if j.first == nil {
		return ""
	}
	want := j.first.ExpiresAt
	if (want == nil) != (got.ExpiresAt == nil) || want != nil && (got.ExpiresAt.Before(*want) || !j.extended && got.ExpiresAt.After(*want)) {
		return fmt.Sprintf("%s expires at %v, and was accepted with %v", j.id, got.ExpiresAt, want)
	}
	return ""
}

func notBeforeItsTime(_ *book, j *seen, s start) string {
	if s.at.Before(j.notBefore) {
		return fmt.Sprintf("%s is called at %s, before its time %s; it was accepted as %+v", j.id, s.at, j.notBefore, j.first)
	}
	return ""
}

func destinationPaused(b *book, j *seen, _ start) string {
	if b.paused[j.spec.Destination] {
		return fmt.Sprintf("%s is called, and %s is paused", j.id, j.spec.Destination)
	}
	return ""
}

func parentsFirst(b *book, j *seen, _ start) string {
	for _, parent := range j.spec.After {
		if !b.jobs[parent].completed {
			return fmt.Sprintf("%s is called, and its parent %s has never completed", j.id, parent)
		}
	}
	return ""
}

func parentsDecide(b *book, j *seen, got *jobs.Job) string {
	if id, ok := strings.CutPrefix(got.LastError, "parent "); ok && got.Status == jobs.Cancelled {
		id, _, _ = strings.Cut(id, " ")
		if !slices.Contains(j.spec.After, id) {
			return fmt.Sprintf("%s was cancelled because of %s, which is not its parent", j.id, id)
		}
	}
	if got.Status == jobs.Waiting && len(j.spec.After) == 0 && !j.ordered() {
		return j.id + " waits for jobs that there are not"
	}
	return ""
}

// firstInFirstOut compares jobs that nothing has happened to since their enqueue.
func firstInFirstOut(b *book, j *seen, s start) string {
	if s.fields == nil || j.disturbed || j.starts > 0 {
		return "" // where workers race, the history has the order
	}
	for _, earlier := range b.list {
		if earlier == j {
			return ""
		}
		if earlier.first != nil && !earlier.disturbed && earlier.starts == 0 && earlier.stopped == "" && !earlier.overdue(s.at) &&
			earlier.queue() == j.queue() && earlier.spec.Key == j.spec.Key {
			return fmt.Sprintf("%s is called before %s, which was enqueued earlier", j.id, earlier.id)
		}
	}
	return ""
}

// keysInOrder: a job of a key starts only after the one that started before it has ended.
func keysInOrder(b *book, j *seen, s start) string {
	for _, other := range b.list {
		purged := !other.failed.IsZero() && s.at.Sub(other.failed) >= retentionFailed
		if other != j && other.atHead && !purged && !other.gone && other.queue() == j.queue() && other.spec.Key == j.spec.Key && !other.overdue(s.at) {
			return fmt.Sprintf("%s is called before %s, of the same key, has ended", j.id, other.id)
		}
	}
	return ""
}

func countersTold(_ *book, j *seen, s start) string {
	if f := s.fields; f != nil && !(j.attempts.has(f.Attempt) && j.reschedules.has(f.Reschedules) && f.Crashes <= j.deaths.most) {
		return fmt.Sprintf("%s is called with %+v; seen %s", j.id, *f, j.counters())
	}
	return ""
}

func countersCount(_ *book, j *seen, got *jobs.Job) string {
	switch {
	case !j.attempts.has(got.Attempt), !j.reschedules.has(got.RescheduleCount), !j.deaths.has(got.Crashes):
		return fmt.Sprintf("%s has attempt %d, %d reschedules, %d crashes; seen %s", j.id, got.Attempt, got.RescheduleCount, got.Crashes, j.counters())
	case got.Attempt > 0 && (got.Retry == nil || got.Attempt > got.Retry.MaxRetries):
		return fmt.Sprintf("%s was retried %d times", j.id, got.Attempt)
	case got.MaxReschedules != nil && got.RescheduleCount > *got.MaxReschedules:
		return fmt.Sprintf("%s was rescheduled %d times, of %d", j.id, got.RescheduleCount, *got.MaxReschedules)
	case got.Crashes >= maxCrashes && !got.Status.Final():
		return fmt.Sprintf("%s is %s after %d crashes", j.id, got.Status, got.Crashes)
	}
	return ""
}

func (j *seen) counters() string {
	return fmt.Sprintf("attempts %v, reschedules %v, deaths of workers %v", j.attempts, j.reschedules, j.deaths)
}

func asAccepted(_ *book, j *seen, got *jobs.Job) string {
	if j.first == nil {
		return ""
	}
	type fixed struct {
		Destination, Key, Batch string
		Priority                jobs.Priority
		After                   []string
		Created                 time.Time
		MaxReschedules          *int
	}
	of := func(j *jobs.Job) fixed {
		return fixed{j.Destination, j.Key, j.Batch, j.Priority, j.After, j.CreatedAt, j.MaxReschedules}
	}
	if !reflect.DeepEqual(of(j.first), of(got)) {
		return fmt.Sprintf("%s was accepted as %+v and is %+v", j.id, of(j.first), of(got))
	}
	return ""
}

func noGaps(j *seen, h []jobs.HistoryEntry) string {
	bad := len(h) == 0 || h[0].Event != "created" || h[0].Version != 1
	for i := 1; i < len(h) && !bad; i++ {
		bad = i > 1 && h[i].Version != h[i-1].Version+1 || h[i].At.Before(h[i-1].At)
	}
	// That the time of a retry has come is no event, nor that a job waits behind another one of its key.
	last, status := h[len(h)-1].Status, j.status()
	unsaid := status == jobs.Pending && last == jobs.RetryPending || status == jobs.Waiting && last == jobs.Pending && j.ordered()
	if bad || j.last != nil && last != status && !unsaid {
		return fmt.Sprintf("%s, %s: %+v", j.id, j.status(), h)
	}
	return ""
}

// get reads one job. It must be there until its retention is over.
func (b *book) get(client *jobs.Client, j *seen, purged bool) {
	switch got, err := client.Get(ctx, j.id); {
	case errors.Is(err, jobs.ErrNotFound) && (purged || j.gone):
		j.gone = true
	case err != nil || j.gone:
		b.fail("Never lost: get %s: %v; gone: %t, last read %+v", j.id, err, j.gone, j.last)
	default:
		b.read(got)
	}
}

// look reads one job with its history.
func (b *book) look(client *jobs.Client, j *seen, purged bool) {
	if b.get(client, j, purged); j.gone {
		return
	}
	h, err := client.History(ctx, j.id)
	if err != nil {
		b.fail("history of %s: %v", j.id, err)
	}
	b.hold(func(inv invariant) string {
		if inv.history == nil {
			return ""
		}
		return inv.history(j, h)
	})
}

// census compares the list of all jobs, the counts and the batches with each other at
// one instant at which nothing changes, after all jobs have been read.
func (b *book) census(client *jobs.Client) {
	status, batches := map[string]jobs.Status{}, map[string]map[jobs.Status]int{}
	counts := map[string]map[jobs.Status]int{}
	for o := (jobs.ListOptions{Limit: 10}); ; { // the first page only
		page, err := client.List(ctx, o)
		if err != nil {
			b.fail("list: %v", err)
			return
		}
		for _, got := range page.Items {
			j := b.jobs[got.ID]
			if was, twice := status[got.ID]; twice || j == nil || j.last == nil || j.last.Status != got.Status {
				b.fail("One status: %s is listed as %s, before that as %q, and was read as %+v", got.ID, got.Status, was, j)
				continue
			}
			status[got.ID] = got.Status
			for name, of := range map[string]map[string]map[jobs.Status]int{got.Destination: counts, got.Batch: batches} {
				if of[name] == nil {
					of[name] = map[jobs.Status]int{}
				}
				of[name][got.Status]++
			}
		}
		o.Limit = jobs.MaxPage
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	for _, j := range b.list {
		if _, listed := status[j.id]; listed != (j.first != nil && !j.gone) {
			b.fail("One status: %s is listed: %t; gone: %t", j.id, listed, j.gone)
		}
	}
	stats, err := client.Stats(ctx, "")
	if err != nil {
		b.fail("stats: %v", err)
	}
	for _, s := range stats {
		for _, of := range jobs.Statuses {
			if s.Counts[of] != counts[s.Destination][of] {
				b.fail("One status: stats of %s count %d %s, and %d are listed", s.Destination, s.Counts[of], of, counts[s.Destination][of])
			}
		}
	}
	delete(batches, "")
	for name, want := range batches {
		if got, err := client.Batch(ctx, name); err != nil || !reflect.DeepEqual(got.Counts, want) {
			b.fail("One status: batch %s counts %+v, %v, and listed are %v", name, got, err, want)
		}
	}
}

// drained holds the ends of all jobs against the invariants.
func (b *book) drained() {
	for _, j := range b.list {
		if j.first == nil || j.gone {
			continue
		}
		switch {
		case !j.ended():
			b.fail("Every job ends: %s is %s: %+v", j.id, j.status(), j.last)
		case j.last.Status == jobs.Completed && !j.completed:
			b.fail("Every job ends: %s has completed, and no call of it succeeded", j.id)
		}
		for _, parent := range j.spec.After {
			if p := b.jobs[parent]; !p.completed && j.last.Status == jobs.Completed {
				b.fail("Parents first: %s has completed, and its parent %s never has", j.id, parent)
			}
		}
	}
}

// inOrder holds the first starts of jobs, as their histories have them, against the
// order of their enqueues, as far as nothing else happened to them before. Jobs that
// are in hand at the same time have no order: a worker that stops, or a destination or
// key that is stopped, gives them back uncalled. On a busy machine that takes a while;
// TestModel holds the order of one worker strictly.
func (b *book) inOrder(client *jobs.Client) {
	const inHand = 2 * time.Second
	type lane struct{ queue, key string }
	latest := map[lane]*jobs.Job{}
	created := slices.SortedStableFunc(slices.Values(b.list), func(a, b *seen) int { return cmpCreated(a.first, b.first) })
	started := map[string]time.Time{}
	for _, j := range created {
		if j.first == nil || disturbs(j.spec) {
			continue
		}
		h, err := client.History(ctx, j.id)
		if err != nil || len(h) < 2 || h[1].Event != "started" {
			continue
		}
		started[j.id] = h[1].At
		of := lane{j.queue(), j.spec.Key}
		if before := latest[of]; before != nil && before.CreatedAt.Before(j.first.CreatedAt) && started[before.ID].After(h[1].At.Add(inHand)) {
			b.fail("First in, first out: %s was started at %s, and %s, enqueued earlier, at %s", j.id, h[1].At, before.ID, started[before.ID])
		}
		if before := latest[of]; before == nil || started[before.ID].Before(h[1].At) {
			latest[of] = j.first
		}
	}
}

func cmpCreated(a, b *jobs.Job) int {
	if a == nil || b == nil {
		return 0
	}
	return a.CreatedAt.Compare(b.CreatedAt)
}

// healthy fails if the doctor finds something.
func (b *book) healthy(rdb redis.UniversalClient) {
	report, err := doctor.Run(ctx, rdb, doctor.Options{DryRun: true})
	if err != nil {
		b.fail("doctor: %v", err)
		return
	}
	for _, f := range report.Findings {
		if f.Kind != doctor.KindNoWorker && f.Kind != doctor.KindPaused {
			b.fail("The doctor finds nothing: %+v", f)
		}
	}
}

// brokenInvariant finds the names of invariants in what the tests of this package say.
var brokenInvariant = regexp.MustCompile(`(?:name: |[fF]ail\(|Fatalf\()"([A-Z][A-Za-z ,]+)[:"]`)

// Each invariant stands on the page that users can check it by.
func TestInvariantsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range brokenInvariant.FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = true
		}
	}
	if len(names) < len(invariants) {
		t.Errorf("found %d names", len(names))
	}
	for name := range names {
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("docs/invariants.md has no heading %q", name)
		}
	}
}
