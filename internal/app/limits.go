package app

import (
	"math"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// namedLimits are the named limits of a destination, and what a response says of them; nil if it is not asked.
func namedLimits(uses config.LimitUses) (out []publisher.NamedLimit, costs func(httpdest.Answered) map[string]int, err error) {
	type actual func(httpdest.Answered) (float64, bool)
	actuals := map[string]actual{}
	for _, u := range uses {
		l := publisher.NamedLimit{NamedLimit: breaker.NamedLimit{Name: u.Name, Rate: u.Rate, Concurrency: u.Concurrency, Unit: u.Unit, OperatorRate: u.OperatorRate}}
		if l.Key, err = answers.KeyBy(u.Key); err != nil {
			return nil, nil, err //nolint:wrapcheck // the caller names the setting
		}
		if l.Estimate, err = answers.Estimate(u.Estimate); err != nil {
			return nil, nil, err //nolint:wrapcheck // likewise
		}
		of, err := answers.Actual(u.Actual)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // likewise
		}
		if of != nil {
			actuals[":"+u.Name] = of
		}
		out = append(out, l)
	}
	if len(actuals) == 0 {
		return out, nil, nil
	}
	return out, func(a httpdest.Answered) map[string]int {
		all := map[string]int{}
		for name, of := range actuals {
			if n, ok := of(a); ok {
				all[name] = int(math.Ceil(min(max(n, 1), jobs.MaxCosts)))
			}
		}
		return all
	}, nil
}
