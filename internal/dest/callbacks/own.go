package callbacks

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// targetHeader of a callback job is the URL that the finished job named, on_success or on_failure. A callback with
// this header has the key destination@host.
const targetHeader = "Tidegate-Callback"

// targetOf returns the URL that a finished job names for its end, or "". job may be nil.
func targetOf(e store.Event, job *jobs.Job) string {
	target := ""
	switch {
	case job == nil:
	case e.Status == store.StateCompleted:
		target = job.OnSuccess
	default:
		target = job.OnFailure
	}
	if jobs.CallbackHost(target) == "" { // also if another program wrote it
		return ""
	}
	return target
}

// ownReceivers are the receivers of single jobs' callbacks, by key: as many as destinations and allowed hosts.
type ownReceivers struct {
	mu sync.Mutex
	of map[string]*receiver
}

func (o *ownReceivers) close() {
	for _, r := range o.of {
		r.close()
	}
}

// ownReceiver returns the receiver of a job's own callback, nil if this worker does not have its destination. It
// returns an error if the host is not allowed.
func (c *Callbacks) ownReceiver(key, target string) (*receiver, *url.URL, error) {
	host := jobs.CallbackHost(target)
	if host == "" || !slices.Contains(c.o.Hosts, host) {
		return nil, nil, fmt.Errorf("the host %q is not in CALLBACK_HOSTS", host)
	}
	u, err := ParseURL(target)
	destination, _, _ := strings.Cut(key, "@")
	signs := c.receivers[destination]
	if err != nil || signs == nil {
		return nil, nil, err
	}
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	r := c.own.of[key]
	if r == nil {
		r = newReceiver(destination, &url.URL{Scheme: u.Scheme, Host: u.Host}, signs.secrets, perReceiver(len(c.receivers)), c.o.Wrap)
		if c.own.of == nil {
			c.own.of = map[string]*receiver{}
		}
		c.own.of[key] = r
	}
	return r, u, nil
}
