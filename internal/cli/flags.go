package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/jobs"
)

// The flags and arguments that several commands share have types of their own: kong calls Validate for each one that
// was given, so a command checks only what does not go together.

// destinationName is an argument that names a destination.
type destinationName string

// Validate refuses names that a destination cannot have.
func (n destinationName) Validate() error { return checkDestination(string(n)) }

// destinationFlag is --destination; "" selects all destinations.
type destinationFlag string

// Validate refuses names that a destination cannot have.
func (n destinationFlag) Validate() error {
	if n == "" {
		return nil
	}
	if err := checkDestination(string(n)); err != nil {
		return inputErrorf("--destination: %w", err)
	}
	return nil
}

// oneDestination is the argument that names a destination.
type oneDestination struct {
	Destination destinationName `arg:"" name:"destination" help:"Name of the destination."`
	outputFlag
}

// breakerName is an argument that names a breaker.
type breakerName string

// Validate refuses names that no breaker can have.
func (n breakerName) Validate() error {
	if destination, _, _ := strings.Cut(string(n), "/"); !jobs.ValidDestination(destination) {
		return checkDestination(destination)
	}
	if _, _, err := breaker.ParseName(string(n)); err != nil {
		return inputErrorf("%s", problem(err))
	}
	return nil
}

// breakerArg is the argument that names a breaker.
type breakerArg struct {
	Name breakerName `arg:"" name:"name" help:"Name of the destination, or destination/key for the breaker of a key."`
}

// batchName is the name of a batch.
type batchName string

// Validate refuses names that a batch cannot have.
func (n batchName) Validate() error {
	if !jobs.ValidName(string(n)) {
		return inputErrorf("%q cannot be the name of a batch: 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit", clip(string(n), 140))
	}
	return nil
}

// maxReason is the longest reason, in characters: what breaker.Trip accepts.
const maxReason = 500

// reason is --reason: why an operator acts.
type reason string

// Validate refuses a reason that is too long for the history.
func (r reason) Validate() error {
	if utf8.RuneCountInString(string(r)) > maxReason {
		return inputErrorf("--reason has more than %d characters", maxReason)
	}
	return nil
}

// span is --for; 0 has no end.
type span time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *span) UnmarshalText(b []byte) error {
	length, err := config.ParseDuration(string(b))
	switch {
	case len(b) == 0: // what a script's unset variable leaves
		return nil
	case err != nil:
		return inputErrorf("--for: %w", err)
	case length < time.Millisecond:
		return inputErrorf("--for must be more than 0, such as 10m; leave it out for no end")
	}
	*s = span(length)
	return nil
}

// instant is a time as RFC 3339, or how long ago it is.
type instant struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *instant) UnmarshalText(b []byte) (err error) {
	if ago, wrong := config.ParseDuration(string(b)); wrong == nil && ago > 0 {
		i.Time = time.Now().Add(-ago)
		return nil
	}
	if i.Time, err = jobjson.ParseTime(string(b)); err != nil {
		return fmt.Errorf("%w, or how long ago, such as 2h", err)
	}
	return nil
}

// pageSize is --limit of a page.
type pageSize int

// Validate refuses 0, which the library takes for its default, and sizes above the largest page.
func (n pageSize) Validate() error {
	if n < 1 || n > jobs.MaxPage {
		return inputErrorf("--limit must be from 1 to %d", jobs.MaxPage)
	}
	return nil
}

// historySize is --limit of a breaker's history and incidents.
type historySize int

// Validate refuses 0.
func (n historySize) Validate() error {
	if n < 1 {
		return inputErrorf("--limit must be at least 1")
	}
	return nil
}

// jsonCursor is --cursor where tables have no pages.
type jsonCursor string

// Validate refuses a cursor for a table.
func (c jsonCursor) Validate(command *kong.Context) error {
	if c != "" && !asksForJSON(command.Args) {
		return inputErrorf("--cursor is for pages of JSON; add -o json")
	}
	return nil
}

// labels are given by --label, which may be repeated.
type labels map[string]string

// filterFlags select jobs.
type filterFlags struct {
	Status      []jobs.Status `short:"s" placeholder:"STATUS" help:"Only jobs in this status; several are separated by commas: ${statuses}."`
	Destination string        `short:"d" placeholder:"NAME" help:"Only jobs for this destination."`
	Key         string        `placeholder:"KEY" help:"Only jobs of this key."`
	Batch       string        `placeholder:"NAME" help:"Only jobs of this batch."`
	Label       labels        `placeholder:"KEY=VALUE" help:"Only jobs with this label; if it is repeated, with all of them."`
	Since       instant       `placeholder:"TIME" help:"Only jobs that ended, or were created if they have not ended, from then on: RFC 3339, or how long ago, such as 2h."`
	Until       instant       `placeholder:"TIME" help:"Only jobs that ended, or were created if they have not ended, before: likewise."`
	Error       string        `placeholder:"TEXT" help:"Only jobs whose last error has this text."`
	Cause       string        `placeholder:"CODE" help:"Only jobs that were deferred or retried for this cause: rate_limited, timeout, worker_lost and the like; or decided, by an answer rule. Jobs that only stand in line have none."`
}

func (f *filterFlags) filter() jobs.Filter {
	return jobs.Filter{
		Statuses: f.Status, Destination: f.Destination, Key: f.Key, Batch: f.Batch, Labels: f.Label, Since: f.Since.Time, Until: f.Until.Time, Error: f.Error, Cause: f.Cause,
	}
}

// filtersOf reports whether any flag besides others was given, and names one that was given without a value: what a
// script's unset variable leaves would select more jobs than was meant.
func filtersOf(command *kong.Context, others ...string) (given bool, empty string) {
	for _, el := range command.Path {
		if el.Flag == nil || slices.Contains(others, el.Flag.Name) {
			continue
		}
		given = true
		value := el.Flag.Target
		statuses, _ := reflect.TypeAssert[[]jobs.Status](value)
		if value.IsZero() || value.Kind() == reflect.Map && value.Len() == 0 || value.Kind() == reflect.Slice && (len(statuses) == 0 || slices.Contains(statuses, "")) {
			empty = "--" + el.Flag.Name
		}
	}
	return given, empty
}
