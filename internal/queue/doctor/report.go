package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Report is the result of a run.
type Report struct {
	// Findings, sorted by queue and kind; empty if nothing is wrong.
	Findings []Finding `json:"findings"`
	// Checked counts the checked jobs.
	Checked int `json:"checked"`
}

// Finding is one kind of problem in one queue.
type Finding struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// ID of the job, or name of the batch, if it is only one.
	ID string `json:"id,omitempty"`
	// Detail describes the problem, and the repair.
	Detail string `json:"detail"`
	Count  int    `json:"count"`
	// Examples are up to five of the ids.
	Examples []string `json:"examples,omitempty"`
	// Repaired is false in a dry run, and for kinds that need an operator: KindNoWorker,
	// KindUnreached, KindPaused, KindOverride, KindDiffer, KindForeign, KindFull, KindEvicts, KindEvicted, KindHeld
	// and KindUnreadable.
	Repaired bool `json:"repaired"`
}

// The kinds of findings.
const (
	KindActiveWithoutLease = "active_without_lease" // in the list of jobs in flight, without a lease
	KindActiveStale        = "active_stale"         // in the list of jobs in flight, and not in flight
	KindLeaseStale         = "lease_stale"          // a lease of a job that is not in flight
	KindLeaseAhead         = "lease_ahead"          // a lease that ends too late: Redis's clock went back
	KindWaitAhead          = "wait_ahead"           // a wait that ends too late: Redis's clock went back
	KindLost               = "lost"                 // a job in no index
	KindEntryWithoutJob    = "entry_without_job"
	KindEntryStale         = "entry_stale" // an entry of a job that belongs elsewhere
	KindTombstoneMissing   = "tombstone_missing"
	KindTombstoneStale     = "tombstone_stale"
	KindTombstoneCount     = "tombstone_count"
	KindArchived           = "archived" // by asynq's own tools
	KindExpiryMissing      = "expiry_missing"
	KindActionMissing      = "action_missing"
	KindBatchMissing       = "batch_missing"  // a job that is not in the index of its batch
	KindBatchUnlisted      = "batch_unlisted" // a batch whose name is not in the list of batches
	KindBatchEmpty         = "batch_empty"    // a name of a batch without jobs
	KindKeyUnlisted        = "key_unlisted"   // a key with held jobs that is not listed
	KindKeyEmpty           = "key_empty"      // a key that is listed without held jobs
	KindChildrenWaiting    = "children_waiting"
	KindChildrenOrphaned   = "children_orphaned" // children of a job that is gone
	KindWaitsWrong         = "waits_wrong"
	KindQueueUnlisted      = "queue_unlisted" // jobs in a queue that is not in asynq's list

	KindUnreadable = "unreadable"     // a record that is not a valid job
	KindForeign    = "foreign"        // a task of another program in a queue of Tidegate
	KindNoWorker   = "no_worker"      // jobs of a destination that no worker serves
	KindUnreached  = "unreachable"    // jobs of a destination that no worker reaches
	KindDiffer     = "workers_differ" // workers that are configured differently, or a clock that is wrong
	KindFull       = "redis_full"     // Redis is out of memory and records nothing
	KindEvicts     = "redis_evicts"   // Redis drops keys when its memory is full
	KindEvicted    = "redis_evicted"  // Redis has dropped keys since its start, and drops none any more
	KindPaused     = "paused"         // jobs of a destination that an operator has paused
	KindHeld       = "held_back"      // jobs of a destination that its limits or its breakers hold back; see the command doctor
	KindOverride   = "override"       // an operator's limit stands above the configured one
)

// details describe each kind; %s is the index.
var details = map[string]string{
	KindActiveWithoutLease: "in flight without a lease, so it would never be recovered; returns to the head of the queue",
	KindActiveStale:        "in the list of jobs in flight, and not in flight; is removed from it",
	KindLeaseStale:         "a lease without a job in flight; is removed",
	KindLeaseAhead:         "in flight with a lease that ends later than its length from now, because Redis's clock went back; is shortened",
	KindWaitAhead:          "waits for longer than it was to, because Redis's clock went back; its wait begins anew",
	KindLost:               "in no index; returns to the index of its state",
	KindEntryWithoutJob:    "in %s without a record; is removed from it",
	KindEntryStale:         "in %s, against its record; is removed from it",
	KindTombstoneMissing:   "in the pending list, not pending and not recorded as a tombstone; is recorded",
	KindTombstoneStale:     "recorded as a tombstone in the pending list, and is not one; is corrected",
	KindArchived:           "archived with asynq's tools, where only 10,000 are kept; becomes a failed job",
	KindExpiryMissing:      "expires, and is missing in the index of expiry; is added",
	KindActionMissing:      "in flight with a requested cancel or pause that no worker would find; is added",
	KindBatchMissing:       "missing in the index of its batch; is added",
	KindBatchUnlisted:      "a batch that is not listed; is added",
	KindBatchEmpty:         "a batch that is listed without jobs; is removed",
	KindKeyUnlisted:        "a key with held jobs that is not listed; is added",
	KindKeyEmpty:           "a key that is listed without held jobs; is removed",
	KindChildrenWaiting:    "has children that it would not release; is put into the outbox",
	KindChildrenOrphaned:   "does not exist, and its children wait for it; they are cancelled",
	KindWaitsWrong:         "counts its parents wrong; is counted again",
	KindQueueUnlisted:      "a queue with jobs that is not listed in asynq:queues; is added",
	KindForeign:            "a task of another program in a queue of Tidegate; stays in asynq's archive",
	KindUnreadable:         "a record without a message or with an unknown state; inspect it with HGETALL",
}

// reported are the kinds that are never repaired.
var reported = map[string]bool{
	KindUnreadable: true, KindNoWorker: true, KindUnreached: true, KindPaused: true, KindOverride: true, KindDiffer: true, KindForeign: true,
	KindFull: true, KindEvicts: true, KindEvicted: true, KindHeld: true,
}

// Repairable reports whether a run that is not dry repairs the finding.
func (f Finding) Repairable() bool { return !reported[f.Kind] }

const maxExamples = 5

// findings collects problems by kind, queue and detail.
type findings struct {
	dry     bool
	checked int
	byKey   map[[3]string]*Finding
}

// add counts one problem; where names its index.
func (f *findings) add(kind, queue, where, id string) {
	detail := details[kind]
	if kind == KindEntryWithoutJob || kind == KindEntryStale {
		detail = fmt.Sprintf(detail, where)
	}
	f.addDetailed(kind, queue, detail, 1, id)
}

// addDetailed adds a finding with a detail of its own.
func (f *findings) addDetailed(kind, queue, detail string, count int, ids ...string) {
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
