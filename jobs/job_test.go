package jobs_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
)

// keysOfTheContract are those that outside programs rely on.
var keysOfTheContract = []string{
	"id", "destination", "key", "status", "priority", "payload", "request", "batch", "after",
	"attempt", "retry", "next_retry_at", "reschedule_count", "max_reschedules", "cost", "available_at",
	"created_at", "expires_at", "expired_at", "completed_at", "response", "output", "last_error", "crashes", "duplicate",
}

// recordOf is the hash of a job as Redis returns it.
func recordOf(t *testing.T, headers map[string]string, payload string, fields ...string) map[string]string {
	t.Helper()
	msg := store.Message{Type: store.TaskType, ID: "0199", Queue: "tidegate:deviantart:low", Headers: headers, Payload: []byte(payload)}
	out := map[string]string{store.FieldMsg: string(msg.AppendTo(nil))}
	for i := 0; i < len(fields); i += 2 {
		out[fields[i]] = fields[i+1]
	}
	return out
}

// The JSON form, to the letter.
func TestJobAsJSON(t *testing.T) {
	t.Parallel()
	headers := map[string]string{
		"created": "1767323045006", "key": "alice", "path": "/items/7", "query": "a=b", "headers": `{"X-A":"b"}`,
		"max_reschedules": "100", "cost": "40", "retry": `{"max_retries":3,"initial_delay_secs":5,"backoff_multiplier":2,"max_delay_secs":300,"retry_on":["timeout"]}`, "batch": "b1", "after": `["p1","p2"]`,
	}
	for _, tc := range []struct {
		name   string
		fields map[string]string
		want   string
	}{
		{
			"just enqueued, of which nothing is set",
			recordOf(t, map[string]string{"created": "1767323045006"}, `{"any":  "JSON"}`, "state", "pending", "pending_since", "1"),
			`{"id":"0199","destination":"deviantart","key":"","status":"pending","priority":"low","payload":{"any":"JSON"},"request":{},` +
				`"batch":"","after":[],"attempt":0,"retry":null,"next_retry_at":null,"reschedule_count":0,"max_reschedules":null,"cost":1,` +
				`"available_at":"2026-01-02T03:04:05.006Z","created_at":"2026-01-02T03:04:05.006Z","started_at":null,"call_secs":null,"expires_at":null,"expired_at":null,` +
				`"completed_at":null,"ended_at":null,"response":null,"output":null,"last_error":"","reason":"","worker":"","crashes":0,"duplicate":false}`,
		},
		{
			"completed, of which everything is set",
			recordOf(t, headers, `[1]`, "state", "completed", "attempt", "2", "reschedules", "5", "crashes", "1", "available_at", "1767323046000",
				"reason", "old", "last_error", "boom", "started_at", "1767323047000", "by", "host:1", "ended_at", "1767323048001",
				"expires_at", "1767326645006", "response_status", "201", "response_body", "ü\n<b>", "output", `{"itemid":7}`),
			`{"id":"0199","destination":"deviantart","key":"alice","status":"completed","priority":"low","payload":[1],` +
				`"request":{"path":"/items/7","query":"a=b","headers":{"X-A":"b"}},"batch":"b1","after":["p1","p2"],"attempt":2,` +
				`"retry":{"max_retries":3,"initial_delay_secs":5,"backoff_multiplier":2,"max_delay_secs":300,"retry_on":["timeout"]},` +
				`"next_retry_at":null,"reschedule_count":5,"max_reschedules":100,"cost":40,"available_at":"2026-01-02T03:04:06Z",` +
				`"created_at":"2026-01-02T03:04:05.006Z","started_at":"2026-01-02T03:04:07Z","call_secs":1.001,"expires_at":"2026-01-02T04:04:05.006Z","expired_at":null,` +
				`"completed_at":"2026-01-02T03:04:08.001Z","ended_at":"2026-01-02T03:04:08.001Z",` +
				`"response":{"status":201,"body":"ü\n\u003cb\u003e"},"output":{"itemid":7},"last_error":"boom","reason":"","worker":"host:1","crashes":1,"duplicate":false}`,
		},
		{
			"to be retried",
			recordOf(t, map[string]string{"created": "1767323045006"}, ``, "state", "retry", "attempt", "1", "available_at", "1767323050000", "reason", "retry 1 3 timeout"),
			`{"id":"0199","destination":"deviantart","key":"","status":"retry_pending","priority":"low","payload":null,"request":{},` +
				`"batch":"","after":[],"attempt":1,"retry":null,"next_retry_at":"2026-01-02T03:04:10Z","reschedule_count":0,"max_reschedules":null,"cost":1,` +
				`"available_at":"2026-01-02T03:04:10Z","created_at":"2026-01-02T03:04:05.006Z","started_at":null,"call_secs":null,"expires_at":null,"expired_at":null,` +
				`"completed_at":null,"ended_at":null,"response":null,"output":null,"last_error":"","reason":"retry 1 of 3 after timeout","worker":"","crashes":0,"duplicate":false}`,
		},
		{
			"failed",
			recordOf(t, map[string]string{"created": "1767323045006"}, `1`, "state", "failed", "ended_at", "1767323050000", "last_error", "answered 404 Not Found",
				"response_status", "404", "response_body", "", "reason", "old", "available_at", "1767323046000"),
			`{"id":"0199","destination":"deviantart","key":"","status":"failed","priority":"low","payload":1,"request":{},` +
				`"batch":"","after":[],"attempt":0,"retry":null,"next_retry_at":null,"reschedule_count":0,"max_reschedules":null,"cost":1,` +
				`"available_at":"2026-01-02T03:04:06Z","created_at":"2026-01-02T03:04:05.006Z","started_at":null,"call_secs":null,"expires_at":null,"expired_at":null,` +
				`"completed_at":null,"ended_at":"2026-01-02T03:04:10Z","response":{"status":404,"body":""},"output":null,"last_error":"answered 404 Not Found",` +
				`"reason":"","worker":"","crashes":0,"duplicate":false}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j, err := store.JobOf[jobs.Job](nil, tc.fields)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("JSON\n%s\nwant\n%s", got, tc.want)
			}
			var keys map[string]any
			if err := json.Unmarshal(got, &keys); err != nil {
				t.Fatal(err)
			}
			for _, k := range keysOfTheContract {
				if _, ok := keys[k]; !ok {
					t.Errorf("key %s is missing", k)
				}
			}
			var back jobs.Job
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatalf("its own form cannot be read: %v", err)
			}
			again, _ := json.Marshal(back)
			if string(again) != tc.want {
				t.Errorf("read and written again\n%s\nwant\n%s", again, tc.want)
			}
		})
	}
}

// What the record says and the status that it stands for.
func TestStatusFromState(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]jobs.Status{
		"pending": jobs.Pending, "scheduled": jobs.Pending, "active": jobs.Running, "retry": jobs.RetryPending,
		"completed": jobs.Completed, "failed": jobs.Failed,
	} {
		j, err := store.JobOf[jobs.Job](nil, recordOf(t, nil, "1", "state", state))
		if err != nil || j.Status != want {
			t.Errorf("state %s: %v, %v; want %s", state, j, err, want)
		}
	}
	var final []jobs.Status
	for _, s := range jobs.Statuses {
		if s.Final() {
			final = append(final, s)
		}
	}
	if diff := cmp.Diff([]jobs.Status{jobs.Completed, jobs.Failed, jobs.Cancelled, jobs.Expired}, final); diff != "" {
		t.Errorf("final statuses (-want +got):\n%s", diff)
	}
}

// Records are written by other versions and by other hands.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	foreign := store.Message{ID: "1", Queue: "default"}
	for _, tc := range []struct {
		name   string
		fields map[string]string
		want   string
	}{
		{"nothing", map[string]string{}, "store: decode task message: id or queue missing"},
		{"garbage", map[string]string{"msg": "\xff"}, "store: decode task message: "},
		{"another application's", map[string]string{"msg": string(foreign.AppendTo(nil)), "state": "pending"}, `job 1: queue "default" is not one of Tidegate's`},
		{"an unknown state", recordOf(t, nil, "1", "state", "archived"), "job 0199: a tool of asynq has archived it: run tidegate doctor, which makes it a failed job that can be retried"},
		{"no state", recordOf(t, nil, "1"), `job 0199: state "" is not known to this version`},
		{"bad headers", recordOf(t, map[string]string{"headers": "{"}, "1", "state", "pending"), "job 0199: header headers: unexpected end of JSON input"},
		{"bad policy", recordOf(t, map[string]string{"retry": `{`}, "1", "state", "pending"), "job 0199: header retry: unexpected end of JSON input"},
		{"bad limit", recordOf(t, map[string]string{"max_reschedules": "many"}, "1", "state", "pending"), "job 0199: header max_reschedules: invalid character 'm' looking for beginning of value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j, err := store.JobOf[jobs.Job](nil, tc.fields)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%+v, error %v; want %s", j, err, tc.want)
			}
		})
	}
	j, err := store.JobOf[jobs.Job](nil, recordOf(t, map[string]string{"retry": `{"max_retries":2,"future":1}`, "future": "x"}, "1", "state", "pending", "future", "y"))
	if err != nil || j.Retry == nil || j.Retry.MaxRetries != 2 {
		t.Errorf("what a later version has added is passed over: %+v, %v", j, err)
	}
	j, err = store.JobOf[jobs.Job](nil, recordOf(t, map[string]string{"created": "soon"}, "1", "state", "pending", "attempt", "x", "expires_at", "never"))
	if err != nil || j.Attempt != 0 || j.ExpiresAt != nil || !j.CreatedAt.IsZero() {
		t.Errorf("numbers that are none count as absent: %+v, %v", j, err)
	}
}

func TestExpiredAt(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1700000000000)
	j := &jobs.Job{}
	if j.ExpiredAt(at.AddDate(1000, 0, 0)) {
		t.Error("a job without an expiry has expired")
	}
	j.ExpiresAt = &at
	for d, want := range map[time.Duration]bool{-1: false, 0: true, 1: true, -time.Hour: false, time.Hour: true} {
		if got := j.ExpiredAt(at.Add(d)); got != want {
			t.Errorf("%s after its expiry: %t", d, got)
		}
	}
}
