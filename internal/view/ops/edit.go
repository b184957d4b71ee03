package ops

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// ParseEdit reads PATH=VALUE. The value is JSON, or a text if it is not JSON.
func ParseEdit(given string) (Edit, error) {
	path, value, found := strings.Cut(given, "=")
	if !found {
		return Edit{}, errors.New("is not of the form PATH=VALUE, such as payload.title=Sunset") // not repeated: it may be a value
	}
	e := Edit{Path: strings.TrimSpace(path), Value: json.RawMessage(strings.TrimSpace(value))}
	if !json.Valid(e.Value) {
		e.Value, _ = json.Marshal(value) // a string can always be encoded
	}
	return e, nil
}

// options are the options of a call of the client.
func (w Why) options() []jobs.ActOption {
	out := []jobs.ActOption{jobs.By(w.By), jobs.Because(w.Reason)}
	for _, e := range w.Set {
		out = append(out, jobs.Set(e.Path, e.Value))
	}
	return out
}

// changed words what a retry changed, for the audit; "" for nothing.
func (w Why) changed() string {
	paths := make([]string, len(w.Set))
	for i, e := range w.Set {
		paths[i] = e.Path
	}
	if len(paths) == 0 {
		return ""
	}
	return "set " + strings.Join(paths, ", ")
}
