package api

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// The types of this file describe JSON for the OpenAPI document; most of what is
// sent is marshalled from the types of the packages that know the things. A test
// holds both together.

// shown is a value that is described as D.
type shown[D any] struct{ value any }

// MarshalJSON gives the value's own form.
func (s shown[D]) MarshalJSON() ([]byte, error) { return json.Marshal(s.value) }

// Schema implements huma.SchemaProvider.
func (shown[D]) Schema(r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[D](), true, "") }

// orNull describes a D that may be null.
type orNull[D any] struct{}

// Schema implements huma.SchemaProvider.
func (orNull[D]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{r.Schema(reflect.TypeFor[D](), true, ""), {Type: "null"}}}
}

// anyJSON describes a value of any kind.
type anyJSON struct{}

// Schema implements huma.SchemaProvider.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// Job is a job as it stands.
type Job struct {
	ID              string                  `json:"id" doc:"A UUIDv7 unless it was given." example:"post-7"`
	Destination     string                  `json:"destination" doc:"The API that it is published to." example:"deviantart"`
	Key             string                  `json:"key" doc:"Whose budget it is inside the destination; empty for none." example:"alice"`
	Status          string                  `json:"status" enum:"waiting,pending,running,retry_pending,paused,completed,failed,cancelled,expired" doc:"Where it stands: waiting for its parents, or for an earlier job of its key; pending, which is also scheduled, deferred or held until available_at; running; retry_pending until next_retry_at; paused; or ended." example:"pending"`
	Priority        string                  `json:"priority" enum:"high,default,low" doc:"Its order among the jobs of the destination." example:"default"`
	Order           string                  `json:"order,omitempty" enum:"key,none" doc:"How it is called among the jobs of its key, if it says so; absent: as its destination says." example:"key"`
	Blocks          bool                    `json:"blocks,omitempty" doc:"True of a failed job that keeps its place in the order of its key: the later jobs of the key wait until it is retried or cancelled." example:"false"`
	Replace         string                  `json:"replace,omitempty" doc:"Its replace-key, if it has one: the newest job of the key wins." example:"profile-7"`
	Replaced        string                  `json:"replaced,omitempty" doc:"The id of the job that it replaced, which had not started and ended as cancelled. Left out of lists." example:"post-6"`
	Payload         anyJSON                 `json:"payload" required:"false" doc:"The body of the call, any JSON. Left out of lists; null where redacted."`
	Request         Request                 `json:"request" doc:"The rest of the call that the job sets for itself; without query and headers where redacted."`
	Batch           string                  `json:"batch" doc:"The batch that it belongs to; empty for none." example:"monday"`
	Labels          labels                  `json:"labels,omitempty" doc:"Its free labels; absent for none." example:"{\"team\":\"web\"}"`
	After           []string                `json:"after" doc:"Ids of its parents: it starts when all have completed." example:"[\"post-6\"]"`
	OnSuccess       string                  `json:"on_success" required:"false" doc:"URL of a signed callback when it has completed; its host is in CALLBACK_HOSTS. Left out where redacted." example:"https://app.example.com/done"`
	OnFailure       string                  `json:"on_failure" required:"false" doc:"The same when it has failed, was cancelled or expired." example:"https://app.example.com/failed"`
	Attempt         int                     `json:"attempt" doc:"How many retries were made." example:"0"`
	Retry           orNull[Retry]           `json:"retry" doc:"How it is called again after failures; null: it is called once."`
	NextRetryAt     *time.Time              `json:"next_retry_at" doc:"When the next retry is due, in retry_pending." example:"2030-01-31T14:35:05Z"`
	RescheduleCount int                     `json:"reschedule_count" doc:"How often it was rescheduled; that is not a failure." example:"5"`
	MaxReschedules  *int                    `json:"max_reschedules" doc:"Further reschedules fail it; null: no limit." example:"100"`
	Cost            int                     `json:"cost" doc:"What a call takes of each window of the destination's declared limits." example:"1"`
	Costs           map[string]int          `json:"costs,omitempty" doc:"What a call takes of named limits, by their units; absent for none." example:"{\"tokens\":1200}"`
	AvailableAt     time.Time               `json:"available_at" doc:"It does not start before." example:"2030-01-31T14:35:00Z"`
	CreatedAt       time.Time               `json:"created_at" doc:"When it was enqueued." example:"2030-01-31T14:30:00Z"`
	StartedAt       *time.Time              `json:"started_at" doc:"When its latest call began." example:"2030-01-31T14:35:00Z"`
	CallSecs        *float64                `json:"call_secs" doc:"How many seconds its last call took that has ended; null before one has." example:"0.21"`
	ExpiresAt       *time.Time              `json:"expires_at" doc:"It is not started then or later; null: it never expires." example:"2030-02-01T00:00:00Z"`
	ExpiredAt       *time.Time              `json:"expired_at" doc:"When it was taken out because it had expired." example:"2030-02-01T00:00:01Z"`
	CompletedAt     *time.Time              `json:"completed_at" doc:"When the destination had accepted it." example:"2030-01-31T14:35:01Z"`
	EndedAt         *time.Time              `json:"ended_at" doc:"When it ended, however it did." example:"2030-01-31T14:35:01Z"`
	Response        orNull[Answer]          `json:"response" doc:"The latest answer of the destination; null before one, and where redacted."`
	Output          anyJSON                 `json:"output" required:"false" doc:"What it passes on to its children: any JSON up to 64 KiB. Null for nothing, and where redacted; left out of lists."`
	Progress        anyJSON                 `json:"progress" required:"false" doc:"How far the API has come with a job that it has accepted: any JSON up to 4 KiB. Left out without a report, where redacted, and of lists."`
	LastError       string                  `json:"last_error" doc:"What went wrong last." example:""`
	Reason          string                  `json:"reason" doc:"Why it waits or was rescheduled last; of a finished job, the answer rule that decided, or empty." example:"breaker deviantart open"`
	Worker          string                  `json:"worker" doc:"The worker that runs it, or ran it last." example:"host:4711"`
	Edits           int                     `json:"edits,omitempty" doc:"How often a retry has changed it; absent: never." example:"1"`
	Crashes         int                     `json:"crashes" doc:"How many workers died while they ran it." example:"0"`
	Duplicate       bool                    `json:"duplicate" doc:"True in the answer to an enqueue whose id existed: nothing was enqueued." example:"false"`
	Waiting         orNull[explain.Waiting] `json:"waiting" doc:"Why it does not run now, or that its worker is lost; null if it runs or has ended, and in answers to an enqueue."`
	ETA             orNull[jobs.ETA]        `json:"eta" doc:"When it starts; null if it runs or has ended, in answers to an enqueue of several jobs, and beyond the first 100 of a list."`
	Redacted        bool                    `json:"redacted,omitempty" doc:"True where payload, query, headers, response and output are left out because the token lacks the scope payloads." example:"false"`
}

// Request is the part of the call that a job sets for itself.
type Request struct {
	Method  string            `json:"method,omitempty" doc:"HTTP method of the call, in upper case; the destination's unless given. CONNECT and TRACE are refused." example:"PUT"`
	Path    string            `json:"path,omitempty" doc:"Appended to the destination's URL; begins with a slash." example:"/items/7"`
	Query   string            `json:"query,omitempty" doc:"Appended to the destination's query, without a question mark." example:"a=b"`
	Headers map[string]string `json:"headers,omitempty" doc:"Headers of the call. Authorization, Cookie, Host, Idempotency-Key, headers of the connection and of proxies, and names with an underscore are refused." example:"{\"X-A\":\"b\"}"`

	Encoding    string `json:"encoding,omitempty" enum:"json,form,multipart,raw" doc:"How the payload becomes the body: json, unless given: as it is; form: an object of strings, numbers, booleans or lists of them as application/x-www-form-urlencoded; multipart: the same, or files {filename, content_type, base64}, as multipart/form-data; raw: a string, or {content_type, base64}." example:"form"`
	TimeoutSecs int    `json:"timeout_secs,omitempty" minimum:"1" maximum:"86400" doc:"Longest time of the call, in seconds, where the destination's timeout is longer." example:"10"`
}

// Retry says how a job is called again after failures.
type Retry struct {
	MaxRetries        int      `json:"max_retries" minimum:"1" doc:"Calls after the first, at most; up to RETRY_MAX_RETRIES_LIMIT, 10 unless configured." example:"3"`
	InitialDelaySecs  int      `json:"initial_delay_secs,omitempty" minimum:"1" doc:"Seconds before the first retry; 5 unless given." example:"5"`
	BackoffMultiplier float64  `json:"backoff_multiplier,omitempty" minimum:"1" doc:"Each retry's delay is the one before it times this; 2 unless given." example:"2"`
	MaxDelaySecs      int      `json:"max_delay_secs,omitempty" minimum:"1" doc:"No delay is longer; 300 unless given. Up to RETRY_MAX_DELAY_LIMIT, 3600 unless configured." example:"300"`
	RetryOn           []string `json:"retry_on,omitempty" enum:"timeout,failure,explicit" doc:"Which failures are retried; all unless given." example:"[\"timeout\",\"failure\"]"`
}

// labels are the labels of a job, by their keys.
type labels map[string]string

// NewJob is a job to be enqueued.
type NewJob struct {
	Destination    string         `json:"destination" doc:"The API that it is published to, one that is known." pattern:"^[a-z0-9][a-z0-9-]{0,62}$" example:"deviantart"`
	Payload        anyJSON        `json:"payload" doc:"The body of the call: any JSON, sent byte for byte, or encoded as request.encoding says; in the strings of a job with parents {{ parents.ID.field }} takes their outputs. At most MAX_PAYLOAD_BYTES, 262144 unless configured."`
	ID             string         `json:"id,omitempty" doc:"The job's id; a new UUIDv7 unless given. If it exists, nothing is enqueued and the existing job is answered with duplicate true, so that an enqueue with an id can be repeated safely. With tokens it is of the token's name that took it: another name is refused." pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$" example:"post-7"`
	Key            string         `json:"key,omitempty" doc:"Whose budget it is inside the destination, such as a user: a name, never a token." pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$" example:"alice"`
	Request        *Request       `json:"request,omitempty" doc:"The rest of the call."`
	Priority       string         `json:"priority,omitempty" enum:"high,default,low" doc:"Its order among the jobs of the destination." example:"high"`
	Order          string         `json:"order,omitempty" enum:"key,none" doc:"How it is called among the jobs of its key: key: one at a time, in the order in which they become due; none: at any time. As the destination's ORDER says unless given; key needs a key." example:"key"`
	Batch          string         `json:"batch,omitempty" doc:"A batch to count, list or cancel it with; needs not be created." pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$" example:"monday"`
	Labels         labels         `json:"labels,omitempty" maxProperties:"4" doc:"Up to 4 free labels to find the job by; keys and values have the form of an id, and are no place for secrets." example:"{\"team\":\"web\"}"`
	After          []string       `json:"after,omitempty" doc:"Ids of parents: it starts when all have completed, and is cancelled if one ends otherwise. They exist, or come earlier in the same request." example:"[\"post-6\"]" maxItems:"1000"`
	Retry          *Retry         `json:"retry,omitempty" doc:"How to call again after failures; called once unless given. Being rate limited is not a failure."`
	MaxReschedules *int           `json:"max_reschedules,omitempty" minimum:"0" doc:"Fail the job rather than put it off more often; no limit unless given." example:"100"`
	Cost           *int           `json:"cost,omitempty" minimum:"1" maximum:"1000000" doc:"What a call takes of each window of the destination's declared limits; 1 unless given. A cost above a window is refused: the job can never run." example:"40"`
	Costs          map[string]int `json:"costs,omitempty" doc:"What a call takes of named limits, by their units, up to 8, each 1 to 1000000000; the destination's estimate, or 1, unless given." example:"{\"tokens\":1200}"`
	AvailableAt    *time.Time     `json:"available_at,omitempty" doc:"Do not start it before." example:"2030-01-31T14:35:00Z"`
	Delay          *ttl           `json:"delay,omitempty" doc:"Do not start it before this time from the enqueue; less than ttl. Not together with available_at."`
	Replace        string         `json:"replace,omitempty" doc:"Its replace-key: the newest job of a key wins. If the job enqueued before it under this key, for the same destination and priority and by a token of the same name, has not started, that job ends as cancelled, and this one takes its place in the queue; with delay each new job begins the wait anew. Not together with after." pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$" example:"profile-7"`
	ReplaceMax     *ttl           `json:"replace_max,omitempty" doc:"With replace and delay: the last of the jobs that replace each other is due at the latest this time after the first one was enqueued."`
	OnSuccess      string         `json:"on_success,omitempty" doc:"URL of a signed callback when it has completed. Its host is in CALLBACK_HOSTS." example:"https://app.example.com/done"`
	OnFailure      string         `json:"on_failure,omitempty" doc:"The same when it has failed, was cancelled or expired." example:"https://app.example.com/failed"`
	TTL            *ttl           `json:"ttl,omitempty" doc:"Expire it if it has not started within this time; 0: at once. Not together with expires_at."`
	IfLate         string         `json:"if_late,omitempty" enum:"enqueue,reject" doc:"What becomes of it if it would expire before it can start: enqueue, unless given; or reject: 422, and nothing is enqueued." example:"reject"`
	ExpiresAt      *time.Time     `json:"expires_at,omitempty" doc:"Expire it if it has not started by then." example:"2030-02-01T00:00:00Z"`
}

// ttl is a duration: seconds, or a text.
type ttl struct{}

// Schema implements huma.SchemaProvider.
func (ttl) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Description: "Such as 30s, 5m, 24h or 7d."},
			{Type: huma.TypeNumber, Description: "Seconds."},
		},
		Examples: []any{"24h"},
	}
}

// KnownJob is what a token that may not read is answered where it enqueues an id again.
type KnownJob struct {
	ID          string `json:"id" doc:"The job's id." example:"post-7"`
	Destination string `json:"destination" doc:"The API that it is published to." example:"deviantart"`
	Status      string `json:"status" enum:"waiting,pending,running,retry_pending,paused,completed,failed,cancelled,expired" doc:"Where it stands." example:"pending"`
	Duplicate   bool   `json:"duplicate" doc:"True: nothing was enqueued." example:"true"`
	Redacted    bool   `json:"redacted" doc:"True: the rest is left out because the token lacks the scope read." example:"true"`
}

// GatewayJob is the answer of the gateway to a request whose job has not ended.
type GatewayJob struct {
	ID          string `json:"id" doc:"The job's id." example:"0190a6c2-7d1e-7c52-8f0e-6a2f4b1f9d10"`
	Destination string `json:"destination" doc:"The API that it is published to." example:"shop"`
	Status      string `json:"status" enum:"waiting,pending,running,retry_pending,paused,completed,failed,cancelled,expired" doc:"Where it stands." example:"pending"`
	Duplicate   bool   `json:"duplicate" doc:"True: a request with this Idempotency-Key had enqueued it." example:"false"`
	Replaced    string `json:"replaced,omitempty" doc:"The id of the job that it replaced, by its replace-key." example:"post-6"`
}

// Enqueued is the answer to an enqueue of many.
type Enqueued struct {
	Accepted   int            `json:"accepted" doc:"How many were enqueued." example:"2"`
	Duplicates int            `json:"duplicates" doc:"How many had an id that existed." example:"0"`
	Rejected   int            `json:"rejected" doc:"How many were refused." example:"1"`
	Items      []EnqueuedItem `json:"items" doc:"Of an array: what became of each, in its order. Of lines: the first 1,000 that were refused."`
}

// EnqueuedItem is what became of one job of many.
type EnqueuedItem struct {
	Index     int            `json:"index" doc:"Its place among the jobs that were sent, from 0." example:"0"`
	Line      int            `json:"line,omitempty" doc:"Its line, from 1, where lines were sent." example:"1"`
	ID        string         `json:"id,omitempty" doc:"Its id, if it is known." example:"post-7"`
	Status    string         `json:"status,omitempty" doc:"Its status, if it is known." example:"pending"`
	Duplicate bool           `json:"duplicate" doc:"True if its id existed: nothing was enqueued." example:"false"`
	Replaced  string         `json:"replaced,omitempty" doc:"The id of the job that it replaced, by its replace-key." example:"post-6"`
	ETA       *jobs.ETA      `json:"eta,omitempty" doc:"When it starts; of the first 100 that were enqueued at once."`
	Errors    []ProblemField `json:"errors,omitempty" doc:"Why it was refused: all that is wrong with it."`
}

// Acted is what an action came to.
type Acted struct {
	Matched *int `json:"matched,omitempty" doc:"Of a dry run: how many jobs the action would be about." example:"1200"`
	Done    int  `json:"done" doc:"How many are now what they were to be." example:"1198"`
	Asked   int  `json:"asked" doc:"How many were running: their workers have been asked, and they may still end otherwise." example:"2"`
	Refused int  `json:"refused" doc:"How many moved to a status that does not allow it, have expired, or are kept from running by a parent." example:"0"`
}

// ActedOne is what an action came to for one job.
type ActedOne struct {
	ID     string `json:"id" doc:"The job's id." example:"post-7"`
	Done   bool   `json:"done" doc:"True if the job is now what it was to be." example:"true"`
	Asked  bool   `json:"asked" doc:"True if the job was running: its worker has been asked, and it may still end otherwise." example:"false"`
	Status string `json:"status" doc:"The status before the action." example:"pending"`
}

// Batch is how far a batch is.
type Batch struct {
	Batch    string         `json:"batch" doc:"Its name." example:"monday"`
	Total    int            `json:"total" doc:"Its jobs." example:"120"`
	Counts   map[string]int `json:"counts" doc:"Its jobs by status; statuses without jobs are left out." example:"{\"completed\":90,\"pending\":30}"`
	Progress float64        `json:"progress" doc:"The part that has ended, however it did." example:"0.75"`
	Done     bool           `json:"done" doc:"True when all have ended." example:"false"`

	CountedAt time.Time `json:"counted_at" doc:"When they were counted." example:"2030-01-31T14:35:00Z"`
}

// Answer is jobs.Response, under the name that it has in the API.
type Answer jobs.Response

// Breaker describes breaker.Status, and explain.Breaker, which has Alone.
type Breaker struct {
	Status

	Alone orNull[RefusedAlone] `json:"refused_alone" required:"false" doc:"Of one destination that was asked for: jobs that its API refused while it accepted others, in this hour and the one before; null: none. Absent from lists and from answers to actions."`
}

// Forecast describes jobs.Forecast.
type Forecast struct {
	jobs.Forecast

	Key orNull[jobs.KeyForecast] `json:"key" doc:"About the jobs of the key that was asked for; null: none was."`
}

// Status is breaker.Status, which marshals itself.
type Status breaker.Status

// Incident is breaker.Incident, under the name that it has in the API.
type Incident breaker.Incident

// BreakerEvent is breaker.Event, under the name that it has in the API.
type BreakerEvent breaker.Event

// Budget is breaker.Budget, under the name that it has in the API.
type Budget breaker.Budget

// HistoryEntry is jobs.HistoryEntry, under the name that it has in the API.
type HistoryEntry jobs.HistoryEntry

// Pause is jobs.Pause, under the name that it has in the API.
type Pause jobs.Pause

// Unreachable is jobs.UnreachableInfo, under the name that it has in the API.
type Unreachable jobs.UnreachableInfo

// RefusedAlone is jobs.RefusedAlone, under the name that it has in the API.
type RefusedAlone jobs.RefusedAlone

// Worker is jobs.WorkerInfo, under the name that it has in the API.
type Worker jobs.WorkerInfo

// Rate describes breaker.RateStatus, whose Interval is a duration.
type Rate struct {
	Interval float64   `json:"interval_secs" doc:"Seconds between two calls." example:"60"`
	Burst    int       `json:"burst" doc:"How many calls may start at once after a time without calls." example:"1"`
	Next     time.Time `json:"next_at" doc:"When the next call is due; if that has passed: at once." example:"2030-01-31T14:35:00Z"`
	Left     int       `json:"remaining" doc:"How many of these are left now." example:"1"`
}

// Limits describes ops.Limits.
type Limits struct {
	Name        string                   `json:"name" doc:"The destination, or destination/key." example:"deviantart"`
	Declared    []Limit                  `json:"declared" doc:"The configured limits."`
	Announced   []Limit                  `json:"announced" doc:"What the API said with its answers."`
	Concurrency orNull[ConcurrencyLimit] `json:"concurrency" doc:"How many calls may be in flight in the whole fleet, as configured or learned; null: any number."`
	Named       []NamedUse               `json:"named" doc:"The named limits that the destination draws on, each value of a key by itself; none of a key."`
	Learned     orNull[LearnedLimit]     `json:"learned" doc:"What refusals without a hint have taught; null: nothing."`
	Override    orNull[Override]         `json:"override" doc:"The limit that an operator has set above the configured one; null: none."`

	NamedOverrides map[string]Override `json:"named_overrides,omitempty" doc:"Those of the named limits, by name; absent: none." example:"{\"tokens\":{\"rate\":\"100000/1m\"}}"`
}

// Override is ops.Override, under the name that it has in the API.
type Override ops.Override

// Limit describes breaker.LimitWindow.
type Limit struct {
	Name      *string    `json:"name" doc:"The name of an announced limit; null: it has none." example:"requests"`
	Limit     *int       `json:"limit" doc:"How many calls are allowed per window; null: unknown." example:"100"`
	Window    *float64   `json:"window_secs" doc:"The length of the window in seconds; null: unknown." example:"10"`
	Burst     *int       `json:"burst" doc:"Of a declared limit: how many calls may start at once after a time without calls; else null." example:"20"`
	Zone      *string    `json:"zone" doc:"The time zone of the calendar by which the window begins; null: it slides, or it is unknown." example:"Europe/Paris"`
	Used      *int       `json:"used" doc:"How many are used now, of a declared limit with a burst: of the burst; null: unknown." example:"3"`
	Remaining *int       `json:"remaining" doc:"How many calls may still start now; null: unknown." example:"17"`
	ResetsAt  *time.Time `json:"resets_at" doc:"When none is used any more if no further call is made; null: none is used, or it is unknown." example:"2030-01-31T14:35:00Z"`
}

// NamedUse describes breaker.NamedUse.
type NamedUse struct {
	Name        string                   `json:"name" doc:"Name of the limit, which destinations share." example:"openai-tokens"`
	Unit        string                   `json:"unit" doc:"What its rate counts." example:"tokens"`
	Key         string                   `json:"key" doc:"Value of its key, which has a budget of its own; empty for a limit without a key." example:"gpt-4o"`
	Windows     []Limit                  `json:"windows" doc:"The windows of its rate."`
	Concurrency orNull[ConcurrencyLimit] `json:"concurrency" doc:"How many of its calls may be in flight; null: any number."`
}

// ConcurrencyLimit is breaker.ConcurrencyLimit, under the name that it has in the API.
type ConcurrencyLimit breaker.ConcurrencyLimit

// LearnedLimit describes breaker.LearnedLimit.
type LearnedLimit struct {
	Calls       *int       `json:"calls" doc:"How many calls are allowed per window; null: no such limit was learned." example:"60"`
	Window      *float64   `json:"window_secs" doc:"The length of the window in seconds; null: no such limit was learned." example:"300"`
	RatePerSec  *float64   `json:"rate_per_sec" doc:"How many calls a second may follow each other; null: no such limit was learned." example:"0.2"`
	Concurrency *int       `json:"concurrency" doc:"How many calls may be in flight; null: no such limit was learned." example:"5"`
	Confidence  float64    `json:"confidence" doc:"How certain it is, from 0 to 1." example:"0.8"`
	Windows     int        `json:"windows" doc:"How many windows in a row have shown it, at most 3." example:"2"`
	Used        *int       `json:"used" doc:"How many calls the API has accepted in the present window; null: the calls are spaced." example:"14"`
	ResetsAt    *time.Time `json:"resets_at" doc:"When the present window ends; null: the calls are spaced." example:"2030-01-31T15:30:00Z"`
	Since       *time.Time `json:"since" doc:"Since when it is known." example:"2030-01-31T14:30:00Z"`
}

// Stats is what a destination's queues hold.
type Stats struct {
	Destination      string         `json:"destination" doc:"Its name." example:"deviantart"`
	Counts           map[string]int `json:"counts" doc:"Jobs by status; all statuses are there." example:"{\"pending\":42,\"completed\":1200}"`
	Backlog          int            `json:"backlog" doc:"How many have not ended." example:"42"`
	OldestPendingAt  *time.Time     `json:"oldest_pending_at" doc:"Since when the oldest job waits to run, from its creation or its given time on; null without one." example:"2030-01-31T14:30:00Z"`
	OldestPendingAge float64        `json:"oldest_pending_age_secs" doc:"How many seconds that is ago." example:"12.5"`
	OldestPendingID  string         `json:"oldest_pending_id" doc:"Id of that job; empty: none, or not known." example:"post-7"`
	Paused           bool           `json:"paused" doc:"True while an operator has paused it." example:"false"`
	Pause            orNull[Pause]  `json:"pause" doc:"The operator that paused it, and why; null: it is not paused."`
	FailedRecently   int            `json:"failed_last_15m" doc:"How many jobs failed in the last 15 minutes and were not retried." example:"0"`
	WorkersSeenAt    *time.Time     `json:"workers_seen_at" doc:"The last heartbeat of a worker that serves it; null: never." example:"2030-01-31T14:35:00Z"`
	Breaker          Breaker        `json:"breaker" doc:"Its breaker."`
	HeldBy           string         `json:"held_by" doc:"What holds its jobs back now; empty: nothing is known to." example:"50 keys are rate limited; other keys run"`
	Unreachable      *Unreachable   `json:"unreachable,omitempty" doc:"Since when no worker reaches it, and why; absent: a worker does, or none serves it."`
	Alone            *RefusedAlone  `json:"refused_alone,omitempty" doc:"Jobs that its API refused while it accepted others, in this hour and the one before; absent: none."`
	Calls            *ops.CallTimes `json:"calls,omitempty" doc:"How long its calls took; absent: none has ended within the last hour."`
}
