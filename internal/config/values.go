package config

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/text"
)

// The types of the table that need their own way of reading or printing.
type (
	urlText    string      // a URL, checked with its neighbours
	millis     int64       // milliseconds
	secs       int64       // seconds
	statusList []int       // HTTP statuses, sorted
	headerList http.Header // Name:Value pairs
)

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }
func (s secs) duration() time.Duration   { return time.Duration(s) * time.Second }

// unreadable is a value that could not be read. Its texts never hold the value:
// whether that may be shown is decided by the variable.
type unreadable struct{ problem, fix string }

func (u *unreadable) Error() string { return u.problem }

// parsers replaces the readers of the env package for every type in the table,
// because its own put the value into their errors.
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[bool]():          readBool,
	reflect.TypeFor[int]():           readInt,
	reflect.TypeFor[float64]():       readFloat,
	reflect.TypeFor[time.Duration](): readDuration,
	reflect.TypeFor[millis]():        readMillis,
	reflect.TypeFor[secs]():          readSecs,
	reflect.TypeFor[statusList]():    readStatuses,
	reflect.TypeFor[headerList]():    readHeaders,
	reflect.TypeFor[rateText]():      readRate,
	reflect.TypeFor[calls]():         readCalls,
	reflect.TypeFor[hintList]():      readHints,
	reflect.TypeFor[offDuration]():   readOffDuration,
	reflect.TypeFor[burstText]():     readBurst,
	reflect.TypeFor[channelText]():   readChannel,
	reflect.TypeFor[mentionText]():   readMention,
	reflect.TypeFor[urlText]():       func(s string) (any, error) { return urlText(strings.TrimSpace(s)), nil },
	reflect.TypeFor[string]():        func(s string) (any, error) { return strings.TrimSpace(s), nil },
}

func readBool(s string) (any, error) {
	b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(s)))
	if err != nil {
		return nil, &unreadable{problem: "is neither true nor false"}
	}
	return b, nil
}

func readWhole(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, &unreadable{problem: "is too large to be read"}
	case err != nil:
		return 0, &unreadable{problem: "is not a whole number"}
	}
	return n, nil
}

func readInt(s string) (any, error) {
	n, err := readWhole(s)
	if err == nil && (n > math.MaxInt32 || n < math.MinInt32) {
		err = &unreadable{problem: "is too large to be read"}
	}
	return int(n), err
}

func readFloat(s string) (any, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, &unreadable{problem: "is not a finite number"}
	}
	return f, nil
}

func readDuration(s string) (any, error) {
	d, err := ParseDuration(strings.TrimSpace(s))
	if err != nil {
		problem := "is not a duration"
		if _, bare := strconv.ParseFloat(strings.TrimSpace(s), 64); bare == nil {
			problem = "has no unit"
		}
		return nil, &unreadable{problem: problem}
	}
	return d, nil
}

// readMillis and readSecs read whole numbers, and understand a duration well
// enough to say which number it would be.
func readMillis(s string) (any, error) {
	n, err := readUnits(s, time.Millisecond, "milliseconds")
	return millis(n), err
}

func readSecs(s string) (any, error) {
	n, err := readUnits(s, time.Second, "seconds")
	return secs(n), err
}

func readUnits(s string, unit time.Duration, units string) (int64, error) {
	n, err := readWhole(s)
	if err == nil {
		if n > math.MaxInt64/int64(unit) {
			return 0, &unreadable{problem: "is too large to be read"}
		}
		return n, nil
	}
	if d, derr := ParseDuration(strings.TrimSpace(s)); derr == nil && d > 0 && d%unit == 0 {
		return 0, &unreadable{
			problem: "has a unit",
			fix:     fmt.Sprintf("write it in %s: %d", units, d/unit),
		}
	}
	return 0, err
}

func readStatuses(s string) (any, error) {
	var list statusList
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, &unreadable{problem: "is not a list of HTTP statuses"}
		case n < 100 || n > 599:
			return nil, &unreadable{problem: fmt.Sprintf("holds %d, which is no HTTP status", n)}
		case n >= 200 && n <= 299:
			return nil, &unreadable{problem: fmt.Sprintf("holds %d, which means success", n), fix: "take it out"}
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// refusedHeaders are those that Tidegate or the HTTP client sets itself, and
// those that belong to one connection (RFC 9110, section 7.6.1).
var refusedHeaders = map[string]string{
	"Authorization":       "set the AUTH_TOKEN of this destination instead",
	"Host":                "put the host into the URL of this destination",
	"Content-Length":      "it is set from the payload",
	"Idempotency-Key":     "it is set from the job",
	"Transfer-Encoding":   "it belongs to one connection; take it out",
	"Connection":          "it belongs to one connection; take it out",
	"Proxy-Connection":    "it belongs to one connection; take it out",
	"Keep-Alive":          "it belongs to one connection; take it out",
	"Te":                  "it belongs to one connection; take it out",
	"Trailer":             "it belongs to one connection; take it out",
	"Upgrade":             "it belongs to one connection; take it out",
	"Proxy-Authenticate":  "it belongs to one connection; take it out",
	"Proxy-Authorization": "it belongs to one connection; take it out",
}

// readHeaders never names more of the value than the name of a header: values
// may be credentials.
func readHeaders(s string) (any, error) {
	headers := http.Header{}
	n := 0
	for pair := range strings.SplitSeq(s, ",") {
		n++
		name, value, found := strings.Cut(pair, ":")
		name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !found:
			return nil, &unreadable{
				problem: fmt.Sprintf("item %d has no colon", n),
				fix:     "write Name:Value pairs separated by commas; a value cannot hold a comma",
			}
		case !httpguts.ValidHeaderFieldName(name):
			return nil, &unreadable{
				problem: fmt.Sprintf("item %d does not start with the name of a header", n),
				fix:     "use letters, digits and hyphens before the colon",
			}
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, &unreadable{
				problem: fmt.Sprintf("the value of header %s holds a line break or another control character", canonical),
				fix:     "take it out",
			}
		case refusedHeaders[canonical] != "":
			return nil, &unreadable{
				problem: fmt.Sprintf("header %s cannot be set here", canonical),
				fix:     refusedHeaders[canonical],
			}
		}
		headers.Add(canonical, value)
	}
	return headerList(headers), nil
}

// allowed says in words what the variable takes.
func (v variable) allowed() string {
	bounds := ""
	switch {
	case v.max != "":
		bounds = fmt.Sprintf(" from %s to %s", v.min, v.max)
	case v.min != "":
		bounds = fmt.Sprintf(", %s or more", v.min)
	}
	switch v.typ {
	case reflect.TypeFor[bool]():
		return "use true or false"
	case reflect.TypeFor[int]():
		return "use a whole number" + bounds
	case reflect.TypeFor[float64]():
		return "use a number" + bounds
	case reflect.TypeFor[millis]():
		return "use a whole number of milliseconds" + bounds
	case reflect.TypeFor[secs]():
		return "use a whole number of seconds" + bounds
	case reflect.TypeFor[time.Duration]():
		return "use a duration" + bounds + ", such as 30s, 5m, 24h or 7d"
	case reflect.TypeFor[offDuration]():
		return "use off or a duration" + bounds + ", such as 30s, 5m, 24h or 7d"
	case reflect.TypeFor[burstText]():
		return "use off or failed jobs in a time from 1s to 24h, such as 50/5m"
	case reflect.TypeFor[channelText]():
		return "use the name or the id of a channel, such as #publishing or C0123ABCD"
	case reflect.TypeFor[mentionText]():
		return "use a mention, such as @oncall, @here, <!subteam^S0123ABCD> or the id of a person or user group"
	case reflect.TypeFor[statusList]():
		return "use HTTP statuses from 100 to 599 separated by commas, such as 429,503"
	case reflect.TypeFor[headerList]():
		return "use Name:Value pairs separated by commas"
	case reflect.TypeFor[rateText]():
		return "use calls per time, such as 60/1h, 10/s or 100/15m"
	case reflect.TypeFor[calls]():
		return "use a whole number" + bounds
	case reflect.TypeFor[hintList]():
		return "use " + strings.Join(hintNames(), ", ") + ", separated by commas, or " + noHints
	}
	if len(v.oneOf) > 0 {
		return "use " + strings.Join(v.oneOf[:len(v.oneOf)-1], ", ") + " or " + v.oneOf[len(v.oneOf)-1]
	}
	return ""
}

// check compares a value with the variable's bounds and words. The problem is
// empty if it is in order.
func (v variable) check(field reflect.Value) (problem string) {
	if len(v.oneOf) > 0 {
		word := strings.ToLower(field.String())
		if !slices.Contains(v.oneOf, word) {
			return "is not known"
		}
		field.SetString(word)
		return ""
	}
	if field.Type() == reflect.TypeFor[offDuration]() && field.Int() == 0 {
		return ""
	}
	if v.min != "" && compare(field, v.min) < 0 {
		return "is too small"
	}
	if v.max != "" && compare(field, v.max) > 0 {
		return "is too large"
	}
	return ""
}

// compare orders a value against a bound in a tag.
func compare(field reflect.Value, bound string) int {
	var diff float64
	switch field.Type() {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[offDuration]():
		b, err := ParseDuration(bound)
		if err != nil {
			panic("config: bad bound in a tag: " + bound)
		}
		diff = float64(field.Int() - int64(b))
	default:
		b, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			panic("config: bad bound in a tag: " + bound)
		}
		if field.CanFloat() {
			diff = field.Float() - b
		} else {
			diff = float64(field.Int()) - b
		}
	}
	switch {
	case diff < 0:
		return -1
	case diff > 0:
		return 1
	}
	return 0
}

// quote shows a value in an error.
func quote(s string) string { return text.Quote(s, 41) }
