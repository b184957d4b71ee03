package jobs

import (
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Replace gives the job a replace-key: the newest job of a key wins. If the job enqueued before it under the same key,
// destination and priority has not started, it ends as cancelled, "replaced by" this job, and this job takes its place
// in the queue. If it runs, its call ends it, or else it ends as replaced. An id that exists replaces nothing.
//
// A job that waits for a retry, was rescheduled or is paused has not started. A new job starts at once, or after its own
// [Delay], where the replaced one waited for a time; it is paused where the replaced one was. With a Delay each new job
// begins the wait anew, which debounces changes: see [ReplaceMax]. The children of a replaced job are cancelled with it.
//
// A replaced job, and an older one of the key, cannot be retried. The keys of a token of the HTTP API are its own.
func Replace(key string) Option { return func(s *Spec) { s.Replace = key } }

// ReplaceMax bounds the [Delay] of jobs that replace each other: the last one is due at the latest d after the first one
// was enqueued. It must be at least the Delay.
func ReplaceMax(d time.Duration) Option { return func(s *Spec) { s.ReplaceMax = d } }

// replaceName is what the newest job of a replace-key is found by.
func (s *Spec) replaceName() string {
	if s.Replace == "" {
		return ""
	}
	return s.Owner + " " + s.Replace
}

func (s *Spec) validateReplace(bad func(field, format string, args ...any)) {
	if s.Replace != "" && len(s.After) > 0 {
		bad("replace", "cannot be given with after: a job that waits for parents replaces none and is replaced by none; leave one of them out")
	}
	switch {
	case s.ReplaceMax == 0:
	case s.ReplaceMax < 0:
		bad("replace_max", "must not be negative")
	case s.ReplaceMax > store.Longest:
		bad("replace_max", "must not be more than 100 years; leave it out for no bound")
	case s.Replace == "" || s.Delay <= 0:
		bad("replace_max", "bounds how long a replace-key puts a delay off; give replace and delay, too, or leave it out")
	case s.ReplaceMax < s.Delay:
		bad("replace_max", "must be at least the delay of %s, is %s", s.Delay, s.ReplaceMax)
	}
}
