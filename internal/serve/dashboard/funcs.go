package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/words"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// funcs are what the templates can call.
func (d *Dashboard) funcs() template.FuncMap {
	return template.FuncMap{
		"asset":      d.assets.url,
		"count":      chart.Count,
		"plural":     plural,
		"duration":   explain.Duration,
		"took":       explain.Took,
		"clip":       text.Cut,
		"cause":      explain.Cause,
		"upper":      ops.Upper,
		"why":        why,
		"spacing":    words.Spacing,
		"state":      ops.StateWords,
		"status":     ops.StatusWords,
		"event":      ops.EventWords,
		"lasted":     lasted,
		"ms":         func(t time.Time) int64 { return t.UnixMilli() },
		"rfc":        func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"full":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + " UTC" },
		"short":      func(t time.Time) string { return shortTime(t, d.now()) },
		"left":       func(t time.Time) string { return explain.Duration(t.Sub(d.now())) },
		"past":       func(t time.Time) bool { return !t.After(d.now()) },
		"ago":        func(t time.Time) string { return explain.Duration(d.now().Sub(t)) + " ago" },
		"since":      func(t time.Time) string { return explain.Duration(d.now().Sub(t)) },
		"spans":      func() []span { return spans },
		"next":       nextTheme,
		"dict":       dict,
		"percent":    func(part float64) float64 { return math.Floor(100 * part) },
		"actionsFor": actsFor,
	}
}

// actsFor returns the acts on jobs in a status; "": in any.
func actsFor(status string) []ops.Act {
	return slices.DeleteFunc(slices.Clone(ops.Acts), func(a ops.Act) bool { return status != "" && !a.Offered(jobs.Status(status)) })
}

// shortTime is an instant in UTC, with the date unless it is of today. The script writes
// it in the viewer's zone.
func shortTime(t, now time.Time) string {
	t = t.UTC()
	if y, m, d := t.Date(); y == now.UTC().Year() && m == now.UTC().Month() && d == now.UTC().Day() {
		return t.Format("15:04:05") + " UTC"
	}
	return t.Format("Jan 2 15:04:05") + " UTC"
}

// nextTheme is the theme after the next switch.
func nextTheme(theme string) string {
	for i, t := range themes {
		if t == theme {
			return themes[(i+1)%len(themes)]
		}
	}
	return themes[0]
}

// dict gives a template several values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is not a name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
