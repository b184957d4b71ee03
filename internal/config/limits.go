package config

import (
	"slices"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
)

// The types of what a destination knows of its API's limits.
type (
	rateText string   // calls per time, in the form of breaker.Rate
	calls    int      // a number of calls, 0 if not set
	hintList []string // names of header dialects, in order of precedence
)

// noHints is how a list without hints is written.
const noHints = "none"

// hintNames are the dialects that a destination can trust.
func hintNames() []string {
	names := make([]string, len(hint.Default))
	for i, d := range hint.Default {
		names[i] = d.Name
	}
	return names
}

func readRate(s string) (any, error) {
	r, err := breaker.ParseRate(s)
	if err != nil {
		return nil, &unreadable{problem: "is no rate"}
	}
	return rateText(r.String()), nil
}

func readCalls(s string) (any, error) {
	n, err := readInt(s)
	return calls(n.(int)), err
}

func readHints(s string) (any, error) {
	list := hintList{}
	if strings.EqualFold(strings.TrimSpace(s), noHints) {
		return list, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name := strings.ToLower(strings.TrimSpace(part))
		switch {
		case name == noHints:
			return nil, &unreadable{problem: "holds none and something else", fix: "write none alone, or leave it out"}
		case !slices.Contains(hintNames(), name):
			fix := ""
			if near := Nearest(name, hintNames(), 3); near != "" {
				fix = "did you mean " + near + "?"
			}
			return nil, &unreadable{problem: "holds " + quote(name) + ", which is not known", fix: fix}
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list, nil
}

// rate returns what was configured; the zero Rate is none.
func (d destinationVars) rate() breaker.Rate {
	if d.Rate == "" {
		return breaker.Rate{}
	}
	r, err := breaker.ParseRate(string(d.Rate))
	if err != nil {
		panic("config: " + err.Error()) // it was written by its String
	}
	r.Burst = max(1, int(d.Burst))
	return r
}

// checkRate checks the burst, which means nothing by itself.
func (l *loader) checkRate(d destinationVars, prefix string) {
	if !l.found.ok(prefix+"RATE", prefix+"BURST") || d.Burst == 0 {
		return
	}
	if d.Rate == "" {
		l.found.fail(prefix+"BURST", "set "+prefix+"RATE too, or take it out", "is set without a rate")
		return
	}
	if r := d.rate(); r.Burst > r.Calls {
		l.found.warn(prefix+"BURST", "is more than the rate, %s: after a pause up to %d calls are made within %s", d.Rate, r.Burst+r.Calls, FormatDuration(r.Per))
	}
}
