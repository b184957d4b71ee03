package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Report is what was found.
type Report struct {
	// Findings, none where all is well, by queue and kind.
	Findings []Finding `json:"findings"`
	// Checked is how many jobs were looked at.
	Checked int `json:"checked"`
}

// Finding is what is wrong in one way in one queue.
type Finding struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// ID of the job, or name of the batch, if it is one.
	ID string `json:"id,omitempty"`
	// Detail says it in words.
	Detail string `json:"detail"`
	Count  int    `json:"count"`
	// Examples are up to five of the ids.
	Examples []string `json:"examples,omitempty"`
	// Repaired is false in a dry run, and for what needs a person: KindNoWorker,
	// KindPaused, KindDiffer, KindForeign and KindUnreadable.
	Repaired bool `json:"repaired"`
}

// The kinds of findings.
const (
	KindActiveWithoutLease = "active_without_lease" // in hand by the list, and in nobody's
	KindActiveStale        = "active_stale"         // in the list of those in hand, and not in hand
	KindLeaseStale         = "lease_stale"          // a lease of a job that is not in hand
	KindLost               = "lost"                 // a job in no index
	KindEntryWithoutJob    = "entry_without_job"
	KindEntryStale         = "entry_stale" // an entry of a job that is somewhere else
	KindGhostUnmarked      = "ghost_unmarked"
	KindGhostStale         = "ghost_stale"
	KindGhostCount         = "ghost_count"
	KindArchived           = "archived" // by asynq's own tools
	KindExpiryMissing      = "expiry_missing"
	KindMarkMissing        = "mark_missing"
	KindBatchMissing       = "batch_missing"  // a job that is not in the index of its batch
	KindBatchUnlisted      = "batch_unlisted" // a batch whose name is not in the list of batches
	KindBatchEmpty         = "batch_empty"    // a name of a batch without jobs
	KindKeyUnlisted        = "key_unlisted"   // a key with held jobs that nobody would ask for
	KindKeyEmpty           = "key_empty"      // a key that is listed without held jobs
	KindChildrenUntold     = "children_untold"
	KindChildrenOrphaned   = "children_orphaned" // children of a job that is gone
	KindWaitsWrong         = "waits_wrong"
	KindMoveUnfinished     = "move_unfinished" // a job between two destinations
	KindQueueUnlisted      = "queue_unlisted"  // jobs in a queue that is not in asynq's list

	KindUnreadable = "unreadable"     // a record that is none of a job
	KindForeign    = "foreign"        // a task of another program in a queue of ours
	KindNoWorker   = "no_worker"      // jobs of a destination that no worker serves
	KindDiffer     = "workers_differ" // workers that are configured differently, or a clock that is wrong
	KindPaused     = "paused"         // jobs of a destination that an operator has paused: no fault
)

// details say of each kind what is wrong; %s is where.
var details = map[string]string{
	KindActiveWithoutLease: "in hand without a lease, so that nobody would take it back; goes to the head of the queue",
	KindActiveStale:        "in the list of jobs in hand, and not in hand; leaves the list",
	KindLeaseStale:         "a lease without a job in hand; goes",
	KindLost:               "in no index; goes back to where its record says",
	KindEntryWithoutJob:    "in %s without a record; leaves it",
	KindEntryStale:         "in %s, and somewhere else by its record; leaves it",
	KindGhostUnmarked:      "in the pending list without being pending or knowing of it; now it knows",
	KindGhostStale:         "takes itself for a ghost in the pending list, and is none; now it knows",
	KindArchived:           "archived with asynq's tools, where only 10,000 are kept; becomes a failed job",
	KindExpiryMissing:      "expires, and not on time: it was missing in the index of those; added",
	KindMarkMissing:        "in hand and to be cancelled or paused, and no worker would hear of it; now one will",
	KindBatchMissing:       "missing in the index of its batch; added",
	KindBatchUnlisted:      "a batch that is not listed; added",
	KindBatchEmpty:         "a batch that is listed without jobs; leaves the list",
	KindKeyUnlisted:        "a key whose jobs are held, and that nobody would ask for; added",
	KindKeyEmpty:           "a key that is listed without held jobs; leaves the list",
	KindChildrenUntold:     "has children that would not hear how it ends; now they will",
	KindChildrenOrphaned:   "is gone, and its children wait for it; they will be told",
	KindWaitsWrong:         "counts its parents wrong; counted again",
	KindMoveUnfinished:     "on its way to this queue from another, by a move that was cut off; arrives, or stays there if it has started",
	KindQueueUnlisted:      "a queue with jobs that was not listed in asynq:queues; added",
	KindForeign:            "a task of another type, which another program has put into a queue of Tidegate's; left alone in asynq's archive",
	KindUnreadable:         "a record without a message or with an unknown state; look at it with HGETALL",
}

// reported are the kinds that are never repaired.
var reported = map[string]bool{KindUnreadable: true, KindNoWorker: true, KindPaused: true, KindDiffer: true, KindForeign: true}

const maxExamples = 5

// findings gathers what is found, by kind, queue and detail.
type findings struct {
	dry     bool
	checked int
	byKey   map[[3]string]*Finding
}

func newFindings(dry bool) *findings {
	return &findings{dry: dry, byKey: map[[3]string]*Finding{}}
}

// add counts one thing that was found; where is the index that it is about.
func (f *findings) add(kind, queue, where, id string) {
	detail := details[kind]
	if kind == KindEntryWithoutJob || kind == KindEntryStale {
		detail = fmt.Sprintf(detail, where)
	}
	f.say(kind, queue, detail, 1, id)
}

// say adds something in words of its own.
func (f *findings) say(kind, queue, detail string, count int, ids ...string) {
	key := [3]string{kind, queue, detail}
	one := f.byKey[key]
	if one == nil {
		one = &Finding{Kind: kind, Queue: queue, Detail: detail, Repaired: !f.dry && !reported[kind]}
		f.byKey[key] = one
	}
	one.Count += count
	for _, id := range ids {
		if len(one.Examples) < maxExamples {
			one.Examples = append(one.Examples, id)
		}
	}
}

func (f *findings) report() *Report {
	r := &Report{Findings: []Finding{}, Checked: f.checked}
	for _, one := range f.byKey {
		if one.Count == 1 && len(one.Examples) == 1 {
			one.ID = one.Examples[0]
		}
		slices.Sort(one.Examples)
		r.Findings = append(r.Findings, *one)
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Detail, b.Detail))
	})
	return r
}
