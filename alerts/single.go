package alerts

import (
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
)

// single is a notice that belongs to no incident, of a kind of singles. What a kind does not know is zero.
type single struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Opened is the id of the notice that this one resolves.
	Opened string `json:"opened,omitempty"`
	// Destination is the subject of the notice, By the worker that noticed it.
	Destination string `json:"destination,omitempty"`
	By          string `json:"by,omitempty"`
	// At is when it was seen, Since when it began.
	At    time.Time `json:"at,omitzero"`
	Since time.Time `json:"since,omitzero"`
	// Problem is why; of flows, one of "reached", "served", "left" and "empty".
	Problem string `json:"problem,omitempty"`
	Backlog int    `json:"backlog,omitempty"`
	// Of blockedKeys: Job is the failed job that blocks Key, and Others counts the other keys of the destination that
	// failed jobs block; AtLeast if there may be more. The facts are read when the notice is sent.
	Job     string `json:"job,omitempty"`
	Key     string `json:"key,omitempty"`
	Others  int    `json:"others,omitempty"`
	AtLeast bool   `json:"at_least,omitempty"`
}

// compose makes the notice.
func (s *single) compose(c composer) *notice.Notice {
	k, n := singles[s.Kind], write(s.Kind, "message", s)
	n.Kind, n.Critical, n.Class, n.Now, n.At = notice.Single, k.critical, k.class, s.At, s.Since
	switch s.Kind {
	case redisBack, flows:
		n.Kind, n.Attention = notice.Resolved, true
	case unreached, unservedJobs:
		n.Link = c.breakerPage(s.Destination)
	case blockedKeys:
		n.Link = c.page("jobs", plainName(s.Job))
	}
	if s.Kind != redisLost && s.Kind != redisBack { // the fleet's
		n.Subject = plainName(s.Destination)
	}
	return n
}

// Lasted words how long it lasted.
func (s *single) Lasted() string { return span(s.At.Sub(s.Since)) }

// Full reports whether Redis is out of memory, LoginRefused whether it refuses user and password.
func (s *single) Full() bool { return strings.Contains(s.Problem, "OOM ") }

// LoginRefused: see Full.
func (s *single) LoginRefused() bool {
	return strings.Contains(s.Problem, "WRONGPASS") || strings.Contains(s.Problem, "NOAUTH")
}
