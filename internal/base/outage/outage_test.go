package outage

import (
	"fmt"
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for name, test := range map[string]struct {
		log  *Log
		want string // of calls a second apart: f a failure, F one that is logged, w and W a success
	}{
		"once":               {&Log{}, "wFffWwFW"},
		"every two seconds":  {&Log{Every: 2 * time.Second}, "FfFfFW"},
		"three in a row":     {&Log{After: 3}, "ffwffFfWff"},
		"three, then at two": {&Log{After: 3, Every: 2 * time.Second}, "ffFfFfFW"},
	} {
		began, got := time.Time{}, ""
		for i, c := range test.want {
			now := start.Add(time.Duration(i) * time.Second)
			var since time.Time
			var log bool
			call := "w"
			if c == 'f' || c == 'F' {
				if call = "f"; began.IsZero() {
					began = now
				}
				since, log = test.log.Failed(now)
			} else {
				since, log = test.log.Worked()
			}
			if !since.Equal(began) {
				t.Errorf("%s: call %d: since %v, want %v", name, i+1, since, began)
			}
			if call == "w" {
				began = time.Time{}
			}
			if log {
				call = map[string]string{"f": "F", "w": "W"}[call]
			}
			got += call
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := &Limiter{Every: time.Hour}
	got := []bool{l.Allow("a"), l.Allow("a"), l.Allow("b")}
	l.Reset()
	got = append(got, l.Allow("a"))
	if want := "[true false true true]"; fmt.Sprint(got) != want {
		t.Errorf("allowed: %v, want %s", got, want)
	}
	for i := range 2 * maxProblems {
		l.Allow(fmt.Sprint(i))
	}
	if len(l.logged) != maxProblems {
		t.Errorf("%d problems are remembered, want %d", len(l.logged), maxProblems)
	}
	for problem := range l.logged {
		l.logged[problem] = time.Now().Add(-l.Every)
	}
	if !l.Allow("new") || len(l.logged) != 1 {
		t.Errorf("%d problems are remembered after their time, want the new one", len(l.logged))
	}
	short := &Limiter{}
	for range 2 {
		if !short.Allow("a") {
			t.Error("a problem is not allowed after its time")
		}
	}
}
