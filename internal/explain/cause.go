package explain

import "github.com/tidegate/tidegate/breaker"

var causeTexts = map[string]string{
	breaker.CauseThreshold: "too many rate-limited answers in a row",
	breaker.CauseHint:      "the API said how long to wait",
	breaker.CauseProbe:     "the probe was rate-limited",
	breaker.CauseRamp:      "a call was rate-limited in slow start",
	breaker.CauseBudget:    "the API said that no call is left",
	breaker.CauseForced:    "kept closed by hand",
	breaker.CauseLost:      "its data in Redis was lost",
	breaker.CauseManual:    "opened by hand",
	breaker.CauseCooldown:  "its time had come",
	breaker.CauseSuccess:   "the probe succeeded",
	breaker.CauseReset:     "closed by hand",
}

// Cause puts why a breaker changed, one of the breaker's Cause constants, into words.
func Cause(cause string) string {
	if text, ok := causeTexts[cause]; ok {
		return text
	}
	return cause
}
