package access

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Bounds are what a token is bound to. The zero value binds to nothing.
type Bounds struct {
	// Destinations and Keys confine the token to a tenant: to the destinations and to the jobs with keys that
	// match one of these globs of * and ?. Empty: all.
	Destinations []string `json:"destinations,omitempty"`
	Keys         []string `json:"keys,omitempty"`
	// MaxBacklog bounds the unfinished jobs that tokens of the name have enqueued; 0: no bound.
	MaxBacklog int `json:"max_backlog,omitempty"`
	// Rate bounds the jobs and permits of the name, such as 100/1s: 100 at once, then evenly 100 a second; "": no bound.
	Rate string `json:"rate,omitempty"`
}

const (
	mostGlobs   = 64
	mostBacklog = 1_000_000
)

var (
	destinationGlob = regexp.MustCompile(`^[a-z0-9*?-]{1,63}$`)
	keyGlob         = regexp.MustCompile(`^[A-Za-z0-9._:@*?-]{1,128}$`)
)

// Check returns what is wrong with the bounds of a token of the name.
func (b Bounds) Check(name string) error {
	for _, list := range []struct {
		what  string
		globs []string
		form  *regexp.Regexp
	}{{"destinations", b.Destinations, destinationGlob}, {"keys", b.Keys, keyGlob}} {
		if len(list.globs) > mostGlobs {
			return fmt.Errorf("more than %d %s", mostGlobs, list.what)
		}
		for _, glob := range list.globs {
			if !list.form.MatchString(glob) {
				return fmt.Errorf("%s matches no %s: write names with * and ?, such as shop*", quoted(glob), list.what)
			}
		}
	}
	if b.Confined() && strings.Contains(name, ":") {
		return errors.New("the name of a token with destinations or keys cannot have a colon, which ends it in ids of jobs")
	}
	if b.MaxBacklog < 0 || b.MaxBacklog > mostBacklog {
		return fmt.Errorf("the backlog must be from 1 to %d jobs", mostBacklog)
	}
	if _, ok := parseRate(b.Rate); !ok && b.Rate != "" {
		return fmt.Errorf("%s is not a rate: write jobs per time, such as 100/1s or 5000/1h, up to a million a second", quoted(b.Rate))
	}
	return nil
}

// parseRate reads jobs per time.
func parseRate(rate string) (q store.Quota, ok bool) {
	n, per, _ := strings.Cut(rate, "/")
	burst, err := strconv.Atoi(n)
	length, err2 := time.ParseDuration(per)
	if err != nil || err2 != nil || burst < 1 || length < time.Second || length > 24*time.Hour || float64(burst)/length.Seconds() > 1e6 {
		return q, false
	}
	return store.Quota{Burst: burst, Each: math.Ceil(float64(length.Microseconds()) / float64(burst))}, true
}

// List words the bounds.
func (b Bounds) List() (all []string) {
	all = append(all, b.Destinations...)
	for _, key := range b.Keys {
		all = append(all, "key "+key)
	}
	if b.MaxBacklog > 0 {
		all = append(all, strconv.Itoa(b.MaxBacklog)+" unfinished")
	}
	if b.Rate != "" {
		all = append(all, b.Rate)
	}
	return all
}

// Quota is what bounds enqueues; the zero value if nothing does.
func (b Bounds) Quota() store.Quota {
	q, _ := parseRate(b.Rate)
	q.MaxBacklog = b.MaxBacklog
	return q
}

// Free reports whether the token is bound to nothing.
func (b Bounds) Free() bool { return !b.Confined() && b.MaxBacklog == 0 && b.Rate == "" }

// Confined reports whether the token is a tenant's: it sees and changes only what its globs match.
func (b Bounds) Confined() bool { return len(b.Destinations)+len(b.Keys) > 0 }

// Sees reports whether jobs of the destination may be the tenant's.
func (b Bounds) Sees(destination string) bool {
	return !b.Confined() || !store.System(destination) && store.MatchesGlob(b.Destinations, destination)
}

// May reports whether a job of the destination with the key is the tenant's; "" is a job without one. The destination
// as a whole, with its breaker, limits and figures, is like such a job.
func (b Bounds) May(destination, key string) bool {
	return b.Sees(destination) && (len(b.Keys) == 0 || key != "" && store.MatchesGlob(b.Keys, key))
}

func (b Bounds) equal(c Bounds) bool {
	return b.MaxBacklog == c.MaxBacklog && b.Rate == c.Rate && slices.Equal(b.Destinations, c.Destinations) && slices.Equal(b.Keys, c.Keys)
}

// Own returns the id or batch that a confined caller means by a name: the token's name goes in front, so that the
// names of tenants do not collide. "" stays "".
func (i Identity) Own(name string) string {
	if !i.Confined() || name == "" || strings.HasPrefix(name, i.Name+":") {
		return name
	}
	return i.Name + ":" + name
}

// errConfined is the refusal of what is not of a destination, or of all of them.
var errConfined = &RefusedError{Status: http.StatusForbidden, Message: "the token is bound to destinations or keys; this is for tokens that are not"}

// CheckConfined refuses a confined caller.
func CheckConfined(id Identity) *RefusedError {
	if id.Confined() {
		return errConfined
	}
	return nil
}
