package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var daysAndWeeks = regexp.MustCompile(`(\d+\.?\d*|\.\d+)([dw])`)

// ParseDuration reads a duration as [time.ParseDuration] does, and also d (24
// hours) and w (7 days): "30s", "1h30m", "7d", "2w". A bare number is an error
// unless it is 0.
func ParseDuration(s string) (time.Duration, error) {
	inHours := daysAndWeeks.ReplaceAllStringFunc(s, func(part string) string {
		n, err := strconv.ParseFloat(part[:len(part)-1], 64)
		if err != nil {
			return part
		}
		hours := n * 24
		if strings.HasSuffix(part, "w") {
			hours *= 7
		}
		return strconv.FormatFloat(hours, 'f', -1, 64) + "h"
	})
	d, err := time.ParseDuration(inHours)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration; write one such as 30s, 5m, 24h or 7d", quote(s))
	}
	return d, nil
}

// FormatDuration writes d as Go does, without the parts that are zero: 24h, not
// 24h0m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
