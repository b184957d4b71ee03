package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// Each act is kept with its operator and reason, a refused one is not, and 10,000 acts are kept.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "audit").want(t, 0, "no action of an operator is kept that matches\n", "")
	b.run(t, "enqueue", "-d", "shop", "--id", "a", "--payload", "{}", "--delay", "1h").ok(t)
	b.run(t, "queue", "pause", "shop", "--reason", "tea").ok(t)
	b.run(t, "queue", "pause", "shop").ok(t) // changes nothing
	b.run(t, "breaker", "trip", "shop", "--for", "10m").ok(t)
	b.run(t, "breaker", "force", "shop", "closed").ok(t)
	b.run(t, "cancel", "--destination", "shop", "--reason", "wrong file").ok(t)
	if got := b.run(t, "cancel", "a"); got.status == 0 {
		t.Error("a cancelled job was cancelled")
	}
	b.run(t, "limits", "set", "shop", "--rate", "5/1s", "--for", "1h", "--reason", "asked").ok(t)
	b.run(t, "limits", "unset", "shop").ok(t)
	b.env = append(b.env, "DESTINATION_1_NAME=x", "DESTINATION_1_URL=https://x.example.com/", "DESTINATION_1_AUTH_TOKEN_FILE=/not/there")
	if got := b.run(t, "token", "new", "--name", "ann", "--scope", "read", "--file", t.TempDir()+"/tokens.json", "--reason", "new here"); got.status != 0 {
		t.Fatal(got)
	}
	want := regexp.MustCompile(`^AT +WHO +ACTION +TARGET +COUNT +DETAIL +REASON
[-0-9: ]+ +\S+@\S+ +new token +ann [0-9a-f]{12} +1 +read +new here
[-0-9: ]+ +\S+@\S+ +unset limit +shop +- +- +-
[-0-9: ]+ +\S+@\S+ +set limit +shop +- +5/1s, for 1h +asked
[-0-9: ]+ +\S+@\S+ +cancel jobs +jobs of shop +1 +- +wrong file
[-0-9: ]+ +\S+@\S+ +force breaker +shop +- +closed, until it is reset +-
[-0-9: ]+ +\S+@\S+ +trip breaker +shop +- +for 10m +-
[-0-9: ]+ +\S+@\S+ +pause destination +shop +- +- +tea
$`)
	if out := b.run(t, "audit").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if out := b.run(t, "audit", "--action", "limit", "--since", "1h", "-n", "1", "--who", "@").ok(t); !strings.Contains(out, "unset limit") || !strings.HasSuffix(out, "there are more: -n, or -o json with --cursor\n") {
		t.Errorf("selected:\n%s", out)
	}
	b.run(t, "audit", "--since", "soon").want(t, 2, "", "tidegate: --since: \"soon\" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z, or how long ago, such as 2h; run \"tidegate audit --help\"\n")

	rdb := b.server.Client(t)
	if _, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 19_999 {
			p.XAdd(t.Context(), &redis.XAddArgs{Stream: "tidegate:{audit}:acts", Values: []any{"by", "x", "action", "old"}})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.run(t, "queue", "resume", "shop").ok(t)
	if n := rdb.XLen(t.Context(), "tidegate:{audit}:acts").Val(); n != 10_000 {
		t.Errorf("%d acts are kept", n)
	}
	n, cursor := 0, ""
	for i := 0; i == 0 || cursor != ""; i++ {
		args := []string{"audit", "-n", "1000", "-o", "json"}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		page := decode[ops.Page[ops.AuditEntry]](t, b.run(t, args...).ok(t))
		n, cursor = n+len(page.Items), page.Next
	}
	if n != 10_000 {
		t.Errorf("%d acts on all pages", n)
	}
}

// A limit that is set is shown with its operator until it is unset; a wrong one is refused.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	out := b.run(t, "limits", "set", "shop", "--rate", "5/1s", "--reason", "asked").ok(t)
	if !regexp.MustCompile(`^shop: 5/1s until it is unset, by \S+@\S+: asked; workers take it up within 2 seconds\nend it with: tidegate limits unset shop\n$`).MatchString(out) {
		t.Errorf("set: %s", out)
	}
	shown := regexp.MustCompile(`\nshop +override +5 per 1 s +- +- +- +-\nshop: 5/1s until it is unset, by \S+@\S+: asked\nend it with`)
	if out := b.run(t, "limits").ok(t); !shown.MatchString(out) {
		t.Errorf("limits:\n%s", out)
	}
	if out := b.run(t, "doctor").ok(t); !strings.Contains(out, "set the limit of shop to 5/1s until it is unset; tidegate limits unset shop") {
		t.Errorf("doctor:\n%s", out)
	}
	br, err := breaker.New(t.Context(), b.server.Client(t), breaker.Options{
		Destination: "shop", Limits: []breaker.NamedLimit{{Name: "all", Unit: "tokens", Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 60}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer br.Close()
	out = b.run(t, "limits", "set", "all", "--rate", "5/1s:5", "--for", "1h").ok(t)
	if !regexp.MustCompile(`^all: 5/1s:5 until .*; workers take it up within 2 seconds\nend it with: tidegate limits unset all\n$`).MatchString(out) {
		t.Errorf("set of a named limit: %s", out)
	}
	shown = regexp.MustCompile(`\nshop +override +all: 60 tokens per 1 h.*\nall: 5/1s:5 until .*\nend it with: tidegate limits unset all\nshop: `)
	if out := b.run(t, "limits").ok(t); !shown.MatchString(out) {
		t.Errorf("limits:\n%s", out)
	}
	b.run(t, "limits", "unset", "all").want(t, 0, "all: the configured limit holds again, within 2 seconds\n", "")
	if out := b.run(t, "audit").ok(t); !regexp.MustCompile(`set limit +all `).MatchString(out) {
		t.Errorf("audit:\n%s", out)
	}
	b.run(t, "limits", "set", "shop", "--rate", "off").ok(t)
	if out := b.run(t, "limits", "shop").ok(t); !strings.Contains(out, "no limit") {
		t.Errorf("off:\n%s", out)
	}
	b.run(t, "limits", "unset", "shop").want(t, 0, "shop: the configured limit holds again, within 2 seconds\n", "")
	b.run(t, "limits", "unset", "shop").want(t, 0, "shop had no limit that was set\n", "")
	for _, args := range [][]string{{"shop", "--rate", "5"}, {"shop", "--rate", "5/1s", "--for", "0s"}, {"blog", "--rate", "5/1s"}, {"shop"}} {
		if got := b.run(t, append([]string{"limits", "set"}, args...)...); got.status != 2 && got.status != 4 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
