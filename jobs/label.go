package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxLabels is how many labels a job may have, and a [Filter] may name.
const MaxLabels = 4

// Label gives the job a label, such as team=web. Labels mean nothing to Tidegate: they are shown with the job, and select
// jobs in a [Filter]. A job has up to MaxLabels; key and value have the form of an id. Both are shown to everybody who may
// see the job, so a label must not hold a secret.
func Label(key, value string) Option {
	return func(s *Spec) {
		labels := maps.Clone(s.Labels) // the spec may be a copy of another
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
		s.Labels = labels
	}
}

// ParseLabels reads labels in the form "team=web", several in one text separated by commas. It returns nil for no text.
func ParseLabels(texts ...string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range texts {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, found := strings.Cut(strings.TrimSpace(pair), "=")
			_, twice := labels[key]
			switch {
			case !found || !ValidName(key) || !ValidName(value):
				return nil, fmt.Errorf("%q is not of the form KEY=VALUE, such as team=web; both have letters, digits and ._:@-, and several are separated by commas", clip(pair))
			case twice:
				return nil, fmt.Errorf("%q is given twice", key)
			case len(labels) == MaxLabels:
				return nil, fmt.Errorf("%q is one too many: a job has up to %d labels", key, MaxLabels)
			case labels == nil:
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	return labels, nil
}

// FormatLabels words labels as ParseLabels reads them, sorted by their keys.
func FormatLabels(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ", ")
}

func validateLabels(labels map[string]string, bad func(field, format string, args ...any)) {
	if len(labels) > MaxLabels {
		bad("labels", "must be up to %d, are %d", MaxLabels, len(labels))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; !ValidName(key) {
			bad("labels", "the key %q %s", clip(key), nameRule)
		} else if !ValidName(value) {
			bad("labels", "the value %q of %s %s", clip(value), key, nameRule)
		}
	}
}

// hasLabels reports whether a job has all of the labels.
func (j *Job) hasLabels(labels map[string]string) bool {
	for key, value := range labels {
		if j.Labels[key] != value {
			return false
		}
	}
	return true
}
