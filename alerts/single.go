package alerts

import (
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
)

// single is a notice that belongs to no incident, of a kind of rules. What a kind does not know is zero.
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
	// Problem is why, or a key of newsTexts.
	Problem string `json:"problem,omitempty"`
	Backlog int    `json:"backlog,omitempty"`
}

// newsTexts words why [flows] is sent, by its Problem.
var newsTexts = map[string]string{
	"reached": "a worker reaches it again", "served": "a worker serves it again", "left": "no worker serves it any more", "empty": "no job waits for it any more",
}

// compose makes the notice.
func (s *single) compose(c composer) *notice.Notice {
	r, v := rules[s.Kind], newValues()
	v.set("destination", codeSpan(s.Destination))
	v.set("problem", quote(s.Problem, maxReason))
	v.set("news", newsTexts[s.Problem])
	v.set("by", quote(s.By, maxBy))
	v.set("at", timeSpan(s.At))
	v.setTime("since", s.Since)
	v.set("waited", span(s.At.Sub(s.Since)))
	v.set("backlog_tail")
	v.setIf(s.Backlog >= 0, "backlog", thousands(s.Backlog))
	v.setIf(s.Backlog >= 0, "backlog_tail", "; "+jobsWait(s.Backlog))
	v.set("cannot", "cannot reach Redis")
	act := ""
	switch {
	case s.Kind == redisLost && strings.Contains(s.Problem, "OOM "):
		v.set("cannot", "finds Redis out of memory")
		act = redisOOM
	case s.Kind == redisLost && (strings.Contains(s.Problem, "WRONGPASS") || strings.Contains(s.Problem, "NOAUTH")):
		act = redisRefuses
	case s.Kind == redisLost:
		act = redisAway
	}
	n := &notice.Notice{Kind: notice.Single, Critical: r.critical, Class: r.class, Icon: r.icon, Now: s.At, At: s.Since, Title: v.line(r.title)}
	if !r.fleet {
		n.Subject, n.Title = plainName(s.Destination), join(nameSpan(s.Destination), n.Title)
		n.Summary = n.Title
	}
	n.Summary = join(n.Summary, v.line(r.summary))
	n.Body = v.body(r.body, "{act}", act)
	switch s.Kind {
	case redisBack, flows:
		n.Kind, n.Attention = notice.Resolved, true
	case unreached, unservedJobs:
		n.Link = c.breakerPage(s.Destination)
	}
	return n
}
