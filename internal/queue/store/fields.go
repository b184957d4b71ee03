package store

import "strings"

// Fields of the task hash. The first group is asynq's.
const (
	FieldMsg          = "msg"
	FieldState        = "state"
	FieldPendingSince = "pending_since" // unix nanoseconds

	FieldFirstDue       = "first_due"    // unix ms of when it was first pending, of a job that has been more than once; see FirstDueKey
	FieldOutline        = "outline"      // msg without its payload, where that has more than OutlineAbove bytes
	FieldAttempt        = "attempt"      // retries made
	FieldReschedules    = "reschedules"  // reschedules made
	FieldUnreachable    = "unreachable"  // reschedules because its call did not leave, where max_reschedules is not set
	FieldOutage         = "outage"       // reschedules because of an outage, where max_reschedules is not set
	FieldRefusals       = "refusals"     // what its calls in a row say that were refused or failed, and unix ms of the last one
	FieldCrashes        = "crashes"      // workers that died while they ran it
	FieldAvailableAt    = "available_at" // unix ms, for scheduled, retry and accepted (the deadline)
	FieldWait           = "wait"         // ms from when available_at was set until then; absent for a given instant
	FieldReason         = "reason"       // why it waits or has ended; see Reason
	FieldLastError      = "last_error"
	FieldStartedAt      = "started_at" // unix ms of the latest start
	FieldTook           = "took"       // ms of its last call that has ended; absent of a completed job: from started_at to ended_at
	FieldBy             = "by"         // worker that has or had it
	FieldEndedAt        = "ended_at"   // unix ms
	FieldExpiresAt      = "expires_at" // unix ms
	FieldResponseStatus = "response_status"
	FieldResponseBody   = "response_body"
	FieldOutput         = "output"    // JSON, or NoOutput
	FieldBatch          = "batch"     // of a job in a batch, beside the header
	FieldKey            = "key"       // of a job with a key, beside the header; of a held job the key that holds it
	FieldJobKey         = "job_key"   // of a job that another key holds: its own, or ""
	FieldOrder          = "order"     // OrderKey or OrderNone, of a job that says so, beside the header
	FieldLine           = "line"      // "<skip or block> <key>" of a job in the line of its key
	FieldPlace          = "place"     // "<run> <score>[/<charged>][ <key>]": where it was among the held jobs of its key when that run took it
	FieldTombstone      = "tombstone" // set while the pending list holds the id of a job that is not pending
	FieldAction         = "action"    // requested while it runs: cancel or pause
	FieldActionBy       = "action_by" // the operator who requested it or has paused the job
	FieldActionReason   = "action_reason"
	FieldResume         = "resume"        // state that a paused job returns to
	FieldHistory        = "history"       // JSON lines; see Version
	FieldVersions       = "versions"      // number of the last line in history
	FieldWaits          = "waits"         // parents that have not completed
	FieldOutputs        = "outputs"       // bytes of the outputs of parents that it keeps
	FieldChildren       = "children"      // set while the job may have children
	FieldEvents         = "events"        // set if the event stream existed at its start
	FieldNotified       = "notified"      // children that it released or cancelled, up to 50: "<queue> <id>" lines
	FieldStuckRun       = "stuck_run"     // the fetch whose handler does not return
	FieldCrashRun       = "crash_run"     // the fetch whose worker was last taken for dead
	FieldRun            = "run"           // the latest fetch
	FieldTerms          = "terms"         // what ends its attempt from outside comes to; see Terms
	FieldCallback       = "callback"      // "<attempt> <hash> …": the attempt that its latest calls carried tokens of, and their hashes
	FieldCalledBack     = "called_back"   // "<hash> <digest>": the token that ended an attempt last ("-" = none), and with what result
	FieldEarly          = "early"         // "completed <output>" or "failed <error>": its result, which came while its call was made
	FieldExtend         = "extend"        // "<run> <ms>": by how much the deadline of that fetch was moved while its call was made
	FieldProgress       = "progress"      // JSON: how far its API has come
	FieldReplace        = "replace"       // "<owner> <replace-key>" of a job that has one; see ReplaceKey
	FieldReplaceSince   = "replace_since" // unix ms of the enqueue of the first of the jobs that replaced each other up to this one
	FieldReplaced       = "replaced"      // the job that had not started, and that this one replaced
	FieldReplacedBy     = "replaced_by"   // the next job of the replace-key
	FieldHeir           = "heir"          // of a tombstone: the job that has its place in the pending list
	FieldPlaceOf        = "place_of"      // of an heir: the tombstone
	FieldUnstarted      = "unstarted"     // the fetch that returned this crash suspect, until its handler starts
)

// OutlineAbove is how many bytes of payload lists read at most for each job.
const OutlineAbove = 4 << 10

// FieldAfterPrefix begins the field that a job has for each of its parents: "1"
// until the parent has completed, then "0".
const FieldAfterPrefix = "after:"

// FieldParentOutputPrefix begins the field of a child that holds the output of a completed
// parent, as in the parent's FieldOutput.
const FieldParentOutputPrefix = "output:"

// NoOutput is the value of FieldOutput if the output of a job could not be kept.
func NoOutput(why string) string { return "!" + why }

// OutputOf returns the JSON of a FieldOutput, or why there is none.
func OutputOf(field string) (output, why string) {
	if why, missing := strings.CutPrefix(field, "!"); missing {
		return "", why
	}
	return field, ""
}

// States of a task hash: asynq's, and ours. The table of their meanings is in states.go.
const (
	StatePending   = "pending"
	StateActive    = "active"
	StateScheduled = "scheduled"
	StateRetry     = "retry"
	StateCompleted = "completed"
	StateFailed    = "failed"
	StateCancelled = "cancelled"
	StateExpired   = "expired"
	StatePaused    = "paused"
	StateWaiting   = "waiting"
	StateAccepted  = "accepted" // its API has accepted it and reports the result; running for users
	StateHeld      = "held"     // the breaker of its key holds it; pending for users
)

// Headers of asynq's message that hold what never changes after the enqueue.
// A header is left out where its value would be empty.
const (
	HeaderCreated        = "created" // unix ms
	HeaderKey            = "key"
	HeaderMethod         = "method"
	HeaderPath           = "path"
	HeaderQuery          = "query"
	HeaderHeaders        = "headers" // JSON object
	HeaderEncoding       = "encoding"
	HeaderTimeout        = "timeout" // of the call, in seconds
	HeaderMaxReschedules = "max_reschedules"
	HeaderCost           = "cost"    // if it is not 1
	HeaderCosts          = "costs"   // JSON object
	HeaderLabels         = "labels"  // JSON object
	HeaderEdits          = "edits"   // how often it was changed by a retry, if it was
	HeaderOrder          = "order"   // OrderKey or OrderNone
	HeaderReplace        = "replace" // the replace-key
	HeaderRetry          = "retry"   // JSON object
	HeaderBatch          = "batch"
	HeaderAfter          = "after"      // JSON array
	HeaderOwner          = "owner"      // of the id, if it was given: the name of an API token
	HeaderOnSuccess      = "on_success" // URL of a callback of this job
	HeaderOnFailure      = "on_failure"
	HeaderGateway        = "gateway" // the gateway made the job; "1": with its response kept, see GatewayBody
)

// OwnHeader reports whether a header of asynq's message is one of those above. The
// others hold the job's trace context, under the names of its propagation format.
func OwnHeader(name string) bool {
	switch name {
	case HeaderCreated, HeaderKey, HeaderMethod, HeaderPath, HeaderQuery, HeaderHeaders, HeaderEncoding, HeaderTimeout,
		HeaderMaxReschedules, HeaderCost, HeaderCosts, HeaderLabels, HeaderEdits, HeaderOrder, HeaderReplace, HeaderRetry, HeaderBatch, HeaderAfter, HeaderOwner, HeaderOnSuccess, HeaderOnFailure, HeaderGateway:
		return true
	}
	return false
}

// TaskType is the asynq task type of every publish job.
const TaskType = "tidegate:publish"
