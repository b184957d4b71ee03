package publisher

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	accepts := func(n int) others { return others{accepted: n, latest: n > 0} }
	for name, row := range map[string]struct {
		others []others // since each refusal's predecessor
		want   string   // of each: a counts, d is in doubt, j is the job's own
	}{
		"a first refusal":                        {[]others{accepts(1000)}, "a"},
		"others are accepted all the time":       {[]others{accepts(20), accepts(100), accepts(100)}, "adj"},
		"few others":                             {[]others{accepts(1), accepts(3), accepts(3), accepts(3), accepts(3), accepts(3), accepts(3)}, "aaddddj"},
		"no others":                              {make([]others, 30), strings.Repeat("a", 30)},
		"nobody is accepted":                     {slices.Repeat([]others{{refused: 1}}, 50), strings.Repeat("a", 50)},
		"nobody is accepted any more":            {[]others{accepts(9), accepts(100), accepts(100), {refused: 3}}, "adja"},
		"no others any more":                     {[]others{accepts(9), accepts(100), accepts(100), {}, {}}, "adjjj"},
		"others are refused as well":             {[]others{{}, {accepted: 3, refused: 5}, {accepted: 3, refused: 5}, {accepted: 3, refused: 5}}, "aaaa"},
		"others are refused as well, afterwards": {[]others{{}, accepts(100), {accepted: 2, refused: 9}, accepts(100)}, "adaj"},
		"a window of 20 calls, one too many":     {[]others{{}, {accepted: 20, refused: 1}, {accepted: 20, refused: 1}}, "aaa"},
		"the latest call was refused":            {[]others{{}, {accepted: 100}}, "aa"},
		"a limit of 1 call beside a busy job":    {[]others{{}, accepts(1), accepts(1), accepts(1)}, "aaad"},
		"shedding of 5 %":                        {[]others{{}, {accepted: 95, refused: 5, latest: true}, {accepted: 95, refused: 5, latest: true}}, "add"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r refusals
			got := ""
			for _, o := range row.others {
				var whose blame
				whose, r = judge(r, o)
				got += string("adj"[whose])
				if back, _ := parseRefusals(r.String() + " 1500"); back.calls != r.calls || back.accepted != r.accepted {
					t.Errorf("%+v is kept as %+v", r, back)
				}
			}
			if got != row.want {
				t.Errorf("judged %s, want %s; %+v", got, row.want, r)
			}
		})
	}
}

func TestJudgeFailure(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before refusals
		others others
		want   bool
	}{
		"a first failure":          {refusals{}, others{accepted: 1000}, false},
		"no others":                {first(), others{}, false},
		"one other":                {first(), others{accepted: 1}, false},
		"three others":             {first(), others{accepted: 3}, false},
		"thirty others":            {first(), others{accepted: 30}, true},
		"others fail alike":        {first(), others{accepted: 3, refused: 9}, false},
		"an API that recovers":     {first(), others{accepted: 10, refused: 4}, false},
		"no others any more":       {refusals{calls: 2, accepted: 60, chance: .02}, others{}, true},
		"others accepted, earlier": {refusals{calls: 2, accepted: 8, chance: .1}, others{accepted: 1}, true},
	} {
		if own, r := judgeFailure(row.before, row.others); own != row.want || r.calls == 0 {
			t.Errorf("%s: own is %t, want %t; %+v", name, own, row.want, r)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]refusals{
		"": {}, "garbage": {}, "0 0 1 5": {}, "2 7 0.01 0 x": {}, "2 7 0.01 1 1500": {calls: 2, accepted: 7, chance: .01, alone: 1},
	} {
		if got, ago := parseRefusals(field); got != want || want.calls > 0 && ago != 1500*time.Millisecond {
			t.Errorf("%q is read as %+v, %s ago", field, got, ago)
		}
	}
	for n, want := range map[int]string{1: "refused once while 1 other call was accepted", 4: "refused 4 times while 812 other calls were accepted"} {
		if got := (refusals{calls: n, accepted: max(1, 812*(n/4))}).sentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, row := range []struct {
		calls      int
		hint, want time.Duration
	}{{1, 0, time.Second}, {2, 0, 2 * time.Second}, {4, 5 * time.Second, 8 * time.Second}, {2, 5 * time.Second, 5 * time.Second}, {99, 0, time.Hour}, {2, 48 * time.Hour, time.Hour}} {
		if got := (refusals{calls: row.calls}).wait(row.hint); got != row.want {
			t.Errorf("%d calls, hint %s: waits %s, want %s", row.calls, row.hint, got, row.want)
		}
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	s := &seen{}
	begin := time.Unix(1_000_000, 0)
	for i := range 10_000 { // 100 s, one call in 10 ms, each hundredth is refused
		at := begin.Add(time.Duration(i) * 10 * time.Millisecond)
		if i%100 == 99 {
			s.refuse("b", at)
		} else {
			s.accept("a", at)
		}
	}
	end := begin.Add(100 * time.Second)
	within := func(what string, got, want int) {
		t.Helper()
		if got < want*8/10 || got > want*12/10 {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	for _, ago := range []time.Duration{2 * time.Second, 10 * time.Second, 100 * time.Second} {
		o := s.since("", end.Add(-ago))
		within("accepted since "+ago.String(), o.accepted, 99*int(ago/time.Second))
		within("refused since "+ago.String(), o.refused, int(ago/time.Second))
		if o.latest {
			t.Errorf("the latest call was accepted: %+v", o)
		}
	}
	if o := s.since("a", begin.Add(-time.Hour)); o.accepted != 9900 || o.refused != 0 || !o.latest {
		t.Errorf("of the key a: %+v", o)
	}
	if o := s.since("c", begin); o != (others{}) {
		t.Errorf("of an unknown key: %+v", o)
	}
	if n := len(s.all.spans); n > seenSpans {
		t.Errorf("%d spans are kept", n)
	}
	for i := range 2 * seenKeys {
		s.accept(string(rune('a'+i%26))+time.Duration(i).String(), end)
	}
	if n := len(s.byKey); n > seenKeys {
		t.Errorf("%d keys are kept", n)
	}
	s.doubt("", end.Add(time.Minute))
	if o := s.since("", end); o.refused != 0 || o.latest {
		t.Errorf("a refusal in doubt counts: %+v", o)
	}
}
