package record

// Fields of the task hash. The first group is asynq's.
const (
	FieldMsg          = "msg"
	FieldState        = "state"
	FieldPendingSince = "pending_since" // unix nanoseconds

	FieldAttempt        = "attempt"      // retries made
	FieldReschedules    = "reschedules"  // reschedules made
	FieldCrashes        = "crashes"      // times its worker died with it in hand
	FieldAvailableAt    = "available_at" // unix ms, for scheduled and retry
	FieldReason         = "reason"       // why it waits, for people
	FieldLastError      = "last_error"
	FieldStartedAt      = "started_at" // unix ms of the latest start
	FieldBy             = "by"         // worker that has or had it in hand
	FieldEndedAt        = "ended_at"   // unix ms
	FieldExpiresAt      = "expires_at" // unix ms
	FieldResponseStatus = "response_status"
	FieldResponseBody   = "response_body"
)

// States of a task hash: asynq's, and those of jobs that we park.
const (
	StatePending   = "pending"
	StateActive    = "active"
	StateScheduled = "scheduled"
	StateRetry     = "retry"
	StateCompleted = "completed"
	StateFailed    = "failed"
)

// Headers of asynq's message that hold what never changes after the enqueue.
// A header is left out where its value would be empty.
const (
	HeaderCreated        = "created" // unix ms
	HeaderKey            = "key"
	HeaderPath           = "path"
	HeaderQuery          = "query"
	HeaderHeaders        = "headers" // JSON object
	HeaderMaxReschedules = "max_reschedules"
	HeaderRetry          = "retry" // JSON object
	HeaderBatch          = "batch"
	HeaderAfter          = "after" // JSON array
)

// TaskType is the asynq task type of every publish job.
const TaskType = "tidegate:publish"
