package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var countErrorsScript = redis.NewScript(source("count_errors")) // touches KEYS[1] alone

const (
	// MostErrors bounds the texts that are counted of a destination in an hour.
	MostErrors = 50
	errorsKept = 25 * time.Hour
	// longestError bounds a text, in bytes; from shortestMatch on a part of it tells errors apart.
	longestError, shortestMatch = 200, 4
)

// ErrorCount are attempts of a destination that ended with the same error.
type ErrorCount struct {
	Count int       `json:"count" doc:"How many attempts ended with it." example:"812"`
	Error string    `json:"error" doc:"The text, with # in place of ids and numbers." example:"answered 422: item # does not exist"`
	Match string    `json:"match" doc:"A part of the text that all of them have, for the filter error of lists and actions; empty: none." example:"answered 422: item"`
	At    time.Time `json:"last_at" doc:"When the last one ended." example:"2030-01-31T14:35:00Z"`
	Job   string    `json:"last_job" doc:"The last job that it happened to." example:"post-7"`
}

var (
	wordsWithDigits = regexp.MustCompile(`[\pL\d_-]*\d[\pL\d_-]*`)
	numberParts     = regexp.MustCompile(`(\d{3}|#)([.:](\d{3}|#))+`)
	shortWords      = regexp.MustCompile(`^([1-5]\d\d|\d*\pL[\pL\d]*)$`)
)

// SameError returns the text under which an error is counted: its ids and numbers are "#", but for HTTP statuses and
// short words such as v2.
func SameError(text string) string {
	text = wordsWithDigits.ReplaceAllStringFunc(text[:min(len(text), 4<<10)], func(word string) string {
		if len(word) <= 3 && shortWords.MatchString(word) {
			return word
		}
		return "#"
	})
	text = numberParts.ReplaceAllString(text, "#")
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), longestError)], ""))
}

// match is the longest part of a text of SameError that all such errors have.
func match(text string) (longest string) {
	for part := range strings.SplitSeq(text, "#") {
		if part = strings.TrimSpace(part); len(part) >= shortestMatch && len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// CountErrors adds counts, with texts from SameError, to the counts of a destination in an hour, and keeps the
// MostErrors most frequent texts. Errors: Redis's.
func (n Namespace) CountErrors(ctx context.Context, rdb redis.UniversalClient, destination string, hour time.Time, counts []ErrorCount) error {
	args := []any{MostErrors, int((errorsKept + time.Hour).Seconds())}
	for _, c := range counts {
		args = append(args, c.Error, c.Count, fmt.Sprintf("%d %s", c.At.UnixMilli(), c.Job))
	}
	if err := countErrorsScript.Run(ctx, rdb, []string{n.errorsKey(destination, hour)}, args...).Err(); err != nil {
		return fmt.Errorf("count errors of %s: %w", destination, err)
	}
	return nil
}

// TopErrors returns the errors of a destination in the hours of the workers' clocks from since to at, the most
// frequent first. Errors: Redis's.
func (n Namespace) TopErrors(ctx context.Context, rdb redis.UniversalClient, destination string, since, at time.Time) ([]ErrorCount, error) {
	if oldest := at.Add(-errorsKept); since.Before(oldest) {
		since = oldest
	}
	var hours []*redis.MapStringStringCmd
	if _, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for hour := since.Truncate(time.Hour); !hour.After(at); hour = hour.Add(time.Hour) {
			hours = append(hours, pipe.HGetAll(ctx, n.errorsKey(destination, hour)))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the errors of %s: %w", destination, err)
	}
	byText := map[string]ErrorCount{}
	for _, cmd := range hours {
		for text, value := range cmd.Val() {
			if parts := strings.SplitN(value, " ", 3); len(parts) == 3 {
				count, _ := strconv.Atoi(parts[0])
				ms, _ := strconv.ParseInt(parts[1], 10, 64)
				// A later hour has the last job.
				byText[text] = ErrorCount{byText[text].Count + count, text, match(text), time.UnixMilli(ms).UTC(), parts[2]}
			}
		}
	}
	out := slices.AppendSeq(make([]ErrorCount, 0, len(byText)), maps.Values(byText))
	slices.SortFunc(out, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.At.Compare(a.At), strings.Compare(a.Error, b.Error))
	})
	return out, nil
}
