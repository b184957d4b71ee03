package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// trifle is too short to count as a second that has begun: Redis's times are
// rounded to milliseconds, and read a moment apart.
const trifle = 20 * time.Millisecond

// Duration writes a time span in seconds, rounded up, from an hour on in two units,
// rounded: 8s, 4m12s, 2h5m, 3d4h. 0 and less is 0s.
func Duration(d time.Duration) string {
	seconds := ceil(d, time.Second)
	if seconds-d > time.Second-trifle && seconds > time.Second {
		seconds -= time.Second
	}
	minutes, hours := seconds.Round(time.Minute), seconds.Round(time.Hour)
	switch {
	case seconds <= 0:
		return "0s"
	case seconds < time.Minute:
		return unit(seconds, time.Second, "s")
	case seconds < time.Hour:
		return unit(seconds, time.Minute, "m") + unit(seconds%time.Minute, time.Second, "s")
	case minutes < 2*day:
		return unit(minutes, time.Hour, "h") + unit(minutes%time.Hour, time.Minute, "m")
	}
	return unit(hours, day, "d") + unit(hours%day, time.Hour, "h")
}

// Took writes how long a call took: 0ms, 210ms, 1.2s, 12s, 4m12s.
func Took(secs float64) string {
	switch d := time.Duration(secs * float64(time.Second)); {
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return Duration(d.Round(time.Second))
	}
}

// unit writes how many whole units d has; "" for none.
func unit(d, size time.Duration, name string) string {
	if d < size {
		return ""
	}
	return strconv.FormatInt(int64(d/size), 10) + name
}

// At writes an instant in the location of now, in the second that it was in, or rounded up if
// it is to come: the time alone on the day of now, else with the date.
func At(t, now time.Time) string {
	t = t.In(now.Location())
	if cut := t.Truncate(time.Second); cut.Before(t) && t.After(now) {
		t = cut.Add(time.Second)
	}
	y, m, d := t.Date()
	if ny, nm, nd := now.Date(); y == ny && m == nm && d == nd {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// minute writes an instant as At does, without seconds, in the minute that it is in.
func minute(t, now time.Time) string {
	t = t.In(now.Location()).Truncate(time.Minute)
	return strings.TrimSuffix(At(t, now), ":00")
}

// inAt is "in 4m12s, at 14:35:00".
func inAt(t, now time.Time) string {
	return fmt.Sprintf("in %s, at %s", Duration(t.Sub(now)), At(t, now))
}

func ceil(d, unit time.Duration) time.Duration {
	if cut := d.Truncate(unit); cut < d {
		return cut + unit
	}
	return d
}

// Count is "1 job", "2 jobs".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
