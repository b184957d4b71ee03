package alerts

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// DefaultOpenTooLong is the default of [Options.OpenTooLong].
const DefaultOpenTooLong = 15 * time.Minute

// Options configure alerting.
type Options struct {
	// Notifiers notify people; at least one is required. Incidents go to all of them, a
	// notice that belongs to no incident to all that are not pagers, or to the pagers if
	// there are no others.
	Notifiers []notice.Notifier
	// OpenTooLong is how long a breaker is open before on-call is paged. Default 15
	// minutes; negative: never.
	OpenTooLong time.Duration
	// PublicURL is the base of the links in messages; "": none.
	PublicURL string
	// Destinations are those whose breakers and queues are watched.
	Destinations []string
	// Namespace of the jobs; see jobs.WithNamespace. Default: tidegate.
	Namespace string
	// Logger gets problems of alerting itself. Default slog.Default().
	Logger *slog.Logger
	// Worker names this process. Default: [breaker.ProcessName].
	Worker string
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, string(store.DefaultNamespace))
	if o.OpenTooLong == 0 {
		o.OpenTooLong = DefaultOpenTooLong
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Worker == "" {
		o.Worker = breaker.ProcessName()
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	return o
}

// validate returns all problems.
func (o Options) validate() error {
	var errs []error
	if len(o.Notifiers) == 0 {
		errs = append(errs, errors.New("no notifier is set"))
	}
	names := map[string]bool{}
	for i, n := range o.Notifiers {
		if n == nil {
			errs = append(errs, fmt.Errorf("notifier %d is nil", i+1))
			continue
		}
		if names[n.Name()] {
			errs = append(errs, fmt.Errorf("two notifiers are called %s", n.Name()))
		}
		names[n.Name()] = true
	}
	return errors.Join(append(errs, store.Namespace(o.Namespace).Validate())...)
}

// notifier returns a notifier by its name, nil if this worker has none.
func (o *Options) notifier(name string) notice.Notifier {
	for _, n := range o.Notifiers {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

// followers are the notifiers that get incidents: pagers too, or only the others.
func (o *Options) followers(pagers bool) []notice.Notifier {
	return slices.DeleteFunc(slices.Clone(o.Notifiers), func(n notice.Notifier) bool {
		return n.Pager() && (!pagers || o.OpenTooLong <= 0)
	})
}

// receivers are the notifiers that get notices which belong to no incident.
func (o *Options) receivers() []notice.Notifier {
	if out := o.followers(false); len(out) > 0 {
		return out
	}
	return o.Notifiers
}
