package words

import "strings"

// Spacing advises on the breaker of an API that spaces calls, and accepts about rate, such as
// "120/1m".
func Spacing(breaker, rate string) string {
	return "this API spaces calls: set " + RateOf(breaker) + ", about " + Rate(rate)
}

// RateOf is the setting that declares the limit of a breaker: of a destination, or of each key.
func RateOf(breaker string) string {
	if strings.Contains(breaker, "/") {
		return "KEY_RATE"
	}
	return "RATE"
}

// Rate words a rate such as "120/1m".
func Rate(rate string) string { return strings.Replace(rate, "/", " per ", 1) }
