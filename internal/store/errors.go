package store

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

var countErrorsScript = redis.NewScript(source("count_errors")) // touches KEYS[1] alone

const (
	// MostErrors bounds the texts that are counted of a destination in an hour, ErrorsKept is for how long.
	MostErrors = 50
	ErrorsKept = 25 * time.Hour
	// longestError bounds a text, in bytes.
	longestError = 200
)

// ErrorCount are attempts of a destination that ended with the same error.
type ErrorCount struct {
	Text  string // by SameError; "" for all that are not among the most frequent
	Count int
	Job   string // the last one
	At    time.Time
}

var (
	wordsWithDigits = regexp.MustCompile(`[\pL\d_-]*\d[\pL\d_-]*`)
	numberParts     = regexp.MustCompile(`#([.:]#)+`)
	shortWords      = regexp.MustCompile(`^([1-5]\d\d|\d*\pL[\pL\d]*)$`)
)

// SameError returns the text under which an error is counted: its ids and numbers are "#", but for HTTP statuses and
// short words such as v2.
func SameError(text string) string {
	text = wordsWithDigits.ReplaceAllStringFunc(strings.TrimSpace(text[:min(len(text), 4<<10)]), func(word string) string {
		if len(word) <= 3 && shortWords.MatchString(word) {
			return word
		}
		return "#"
	})
	text = numberParts.ReplaceAllString(text, "#")
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), longestError)], ""))
}

// CountErrors adds up to MostErrors counts to those of the hour of an instant. Errors: Redis's.
func (n Namespace) CountErrors(ctx context.Context, rdb redis.UniversalClient, destination string, hour time.Time, counts []ErrorCount) error {
	args := []any{MostErrors, int((ErrorsKept + time.Hour).Seconds())}
	for _, c := range counts {
		args = append(args, c.Text, c.Count, fmt.Sprintf("%d %s", c.At.UnixMilli(), c.Job))
	}
	if err := countErrorsScript.Run(ctx, rdb, []string{n.errorsKey(destination, hour)}, args...).Err(); err != nil {
		return fmt.Errorf("count errors of %s: %w", destination, err)
	}
	return nil
}

// TopErrors returns the errors of a destination in the hours of the workers' clocks from since to at, the most
// frequent first. Errors: Redis's.
func (n Namespace) TopErrors(ctx context.Context, rdb redis.UniversalClient, destination string, since, at time.Time) ([]ErrorCount, error) {
	if oldest := at.Add(-ErrorsKept); since.Before(oldest) {
		since = oldest
	}
	var hours []*redis.MapStringStringCmd
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for hour := since.Truncate(time.Hour); !hour.After(at); hour = hour.Add(time.Hour) {
			hours = append(hours, pipe.HGetAll(ctx, n.errorsKey(destination, hour)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the errors of %s: %w", destination, err)
	}
	byText := map[string]ErrorCount{}
	for _, cmd := range hours {
		for text, value := range cmd.Val() {
			parts := strings.SplitN(value, " ", 3)
			count, err := strconv.Atoi(parts[0])
			if err != nil || len(parts) < 3 {
				continue
			}
			c := ErrorCount{Text: text, Count: count + byText[text].Count, Job: parts[2]}
			if ms, err := strconv.ParseInt(parts[1], 10, 64); err == nil {
				c.At = time.UnixMilli(ms).UTC()
			}
			byText[text] = c // a later hour has the last one
		}
	}
	out := make([]ErrorCount, 0, len(byText))
	for _, c := range byText {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.At.Compare(a.At), strings.Compare(a.Text, b.Text))
	})
	return out, nil
}
