package callbacks

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dest/webhook"
	"github.com/tidegate/tidegate/jobs"
)

// Receiver is an address that gets the callbacks of one destination.
type Receiver struct {
	// Destination whose jobs they are.
	Destination string
	// URL that callbacks are posted to: absolute, http or https. It may hold a user and a
	// password, which are sent by Basic authentication, and a query. Empty: only jobs' own callbacks.
	URL string
	// Secrets sign the callbacks, each of them every one; see webhook.ParseSecret. At
	// least one.
	Secrets []string
}

// Options configure callbacks.
type Options struct {
	// Receivers, at most one for a destination.
	Receivers []Receiver
	// Hosts to which callbacks of single jobs may go.
	Hosts []string
	// Namespace of the jobs; see jobs.WithNamespace. Default: tidegate.
	Namespace string
	// Worker names this process. Default: [breaker.ProcessName].
	Worker string
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
	// Wrap, if set, is given the transport of each receiver's calls and returns the one
	// that is used: to observe them, for instance.
	Wrap func(http.RoundTripper) http.RoundTripper
}

func (o Options) withDefaults() Options {
	o.Receivers = slices.Clone(o.Receivers)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Worker = cmp.Or(o.Worker, breaker.ProcessName())
	// Of the same name there may be another one, that has died a moment ago.
	o.Worker += "-" + strings.ToLower(rand.Text()[:8])
	return o
}

// ParseURL reads the address of a receiver. The error does not repeat it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, errors.New("the URL is empty; expected https://host/path")
	case err != nil:
		return nil, errors.New("the URL cannot be parsed; expected https://host/path")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("the URL must be absolute and start with http:// or https://")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// receiversOf checks the options and returns the receivers by destination.
func receiversOf(o Options) (map[string]*receiver, error) {
	out := make(map[string]*receiver, len(o.Receivers))
	limit := perReceiver(len(o.Receivers))
	var errs []error
	for _, r := range o.Receivers {
		wrong := func(err error) {
			errs = append(errs, fmt.Errorf("receiver of %s: %w", r.Destination, err))
		}
		switch {
		case !jobs.ValidDestination(r.Destination):
			errs = append(errs, fmt.Errorf("%q is not a valid name of a destination", r.Destination))
			continue
		case store.System(r.Destination):
			wrong(errors.New("jobs of Tidegate's own destinations have no callbacks"))
			continue
		case out[r.Destination] != nil:
			wrong(errors.New("it has another receiver"))
			continue
		}
		u, err := ParseURL(r.URL)
		if r.URL == "" && len(o.Hosts) > 0 {
			u, err = &url.URL{}, nil
		}
		if err != nil {
			wrong(err)
		}
		var secrets []webhook.Secret
		for i, text := range r.Secrets {
			s, err := webhook.ParseSecret(text)
			if err != nil {
				wrong(fmt.Errorf("secret %d %w; %s", i+1, err, webhook.HowTo))
				continue
			}
			secrets = append(secrets, s)
		}
		if len(r.Secrets) == 0 {
			wrong(errors.New("there is no secret; " + webhook.HowTo))
		}
		if u != nil {
			out[r.Destination] = newReceiver(r.Destination, u, secrets, limit, o.Wrap)
		}
	}
	return out, errors.Join(errs...)
}
