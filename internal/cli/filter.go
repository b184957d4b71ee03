package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidegate/tidegate/jobs"
)

// filterFlags select jobs. A name that is not given is nil, so that an empty one,
// of a variable that a script forgot to set, differs from it.
type filterFlags struct {
	Status      []string `short:"s" placeholder:"STATUS" help:"Only jobs in this status; several are separated by commas: ${statuses}."`
	Destination *string  `short:"d" placeholder:"NAME" help:"Only jobs for this destination."`
	Key         *string  `placeholder:"KEY" help:"Only jobs of this key."`
	Batch       *string  `placeholder:"NAME" help:"Only jobs of this batch."`
}

// given reports whether any of the flags was given.
func (f *filterFlags) given() bool {
	return f.Status != nil || f.Destination != nil || f.Key != nil || f.Batch != nil
}

// empty names a flag that was given without a value, "" if none was.
func (f *filterFlags) empty() string {
	switch {
	case f.Status != nil && (len(f.Status) == 0 || slices.Contains(f.Status, "")):
		return "--status"
	case f.Destination != nil && *f.Destination == "":
		return "--destination"
	case f.Key != nil && *f.Key == "":
		return "--key"
	case f.Batch != nil && *f.Batch == "":
		return "--batch"
	}
	return ""
}

func (f *filterFlags) filter() jobs.Filter {
	value := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	out := jobs.Filter{Destination: value(f.Destination), Key: value(f.Key), Batch: value(f.Batch)}
	for _, s := range f.Status {
		out.Statuses = append(out.Statuses, jobs.Status(s))
	}
	return out
}

// checkKnown refuses a destination that is not known while others are. Callers ask it after
// they found no job: jobs of a destination that no worker serves any more can still be read.
func (s *session) checkKnown(ctx context.Context, destination string) error {
	if destination == "" {
		return nil
	}
	names, err := s.destinationsWith(ctx, destination)
	if err != nil {
		return err
	}
	if len(names) == 0 || slices.Contains(names, destination) {
		return nil
	}
	return &jobs.UnknownDestinationError{Name: destination, Known: names}
}

// destinationsWith returns the known destinations, and the named one also if it is one of
// Tidegate's own, which lists leave out.
func (s *session) destinationsWith(ctx context.Context, name string) ([]string, error) {
	names, err := s.destinations(ctx)
	if err != nil || slices.Contains(names, name) {
		return names, err
	}
	switch _, err := s.client.Destination(ctx, name); {
	case err == nil:
		return append(names, name), nil
	case errors.Is(err, jobs.ErrUnknownDestination):
		return names, nil
	default:
		return nil, fmt.Errorf("read destinations: %w", err)
	}
}

// destinations returns the names of the known destinations.
func (s *session) destinations(ctx context.Context) ([]string, error) {
	known, err := s.client.Destinations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	names := make([]string, len(known))
	for i, d := range known {
		names[i] = d.Name
	}
	return names, nil
}
