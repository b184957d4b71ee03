package cli

import (
	"strings"
	"testing"
)

// refusal is a command that is refused, and what it says.
type refusal struct {
	args   string // separated by |
	status int
	want   string
}

func (b *bench) refuses(t *testing.T, rows []refusal) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			b.run(t, strings.Split(row.args, "|")...).want(t, row.status, "", "tidegate: "+row.want+"\n")
		})
	}
}

// Wrong input is refused with exit status 2 before Redis is asked, and nothing is done where it is not clear what
// was meant.
func TestWrongInput(t *testing.T) {
	t.Parallel()
	const (
		destination = `"my shop" cannot be the name of a destination: 1 to 63 of a-z, 0-9 and -, starting with a letter or digit`
		filters     = `name the jobs by their ids, or by --status, --destination, --key, --batch, --label, --since, --until, --error or --cause; run "tidegate `
		retry       = "write it like max=3,initial=10s,multiplier=2,max-delay=120s,on=timeout+failure"
		alone       = "with --file only --destination, --batch and --retry may be given, as the defaults of lines that name none; put the rest into the lines"
		length      = `--for must be more than 0, such as 10m; leave it out for no end`
		long        = "--reason has more than 500 characters"
	)
	dir, reason := t.TempDir(), strings.Repeat("é", maxReason+1)
	b := &bench{env: append([]string{"REDIS_URL=redis://127.0.0.1:1", "MAX_PAYLOAD_BYTES=100"}, shop...)}
	b.refuses(t, []refusal{
		{"breaker|get|my shop", 2, destination},
		{"breaker|trip|my shop", 2, destination},
		{"breaker|get|shop/", 2, `name "shop/": the key after the slash is missing`},
		{"breaker|trip|shop/a b", 2, `name "shop/a b": key "a b" is not valid: want 1 to 128 of A-Z, a-z, 0-9 and '._:@-', starting with a letter or digit`},
		{"breaker|trip|shop|--for|soon", 2, `--for: "soon" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{"breaker|trip|shop|--for|0s", 2, length},
		{"breaker|force|shop|closed|--for=-1s", 2, length},
		{"breaker|trip|shop|--reason|" + reason, 2, long},
		{"breaker|list|-n|0", 2, "--limit must be from 1 to 1000"},
		{"breaker|list|--cursor|x", 2, "--cursor is for pages of JSON; add -o json"},
		{"limits|shop/", 2, `name "shop/": the key after the slash is missing`},
		{"limits|shop|--destination|shop", 2, "give a name, or --destination and --cursor, not both"},
		{"limits|--limit|0", 2, "--limit must be from 1 to 1000"},
		{"stats|-d|my shop", 2, "--destination: " + destination},
		{"queue|pause|my shop", 2, destination},
		{"queue|resume|my shop", 2, destination},
		{"queue|pause|shop|--reason|" + reason, 2, long},
		{"list|--limit|0", 2, "--limit must be from 1 to 1000"},
		{"cancel", 2, filters + `cancel --help"`},
		{"pause|--dry-run", 2, filters + `pause --help"`},
		{"resume|a|--batch|b", 2, `give either ids or filters, not both; run "tidegate resume --help"`},
		{"retry|a|--dry-run", 2, "--dry-run goes with filters; look at single jobs with: tidegate get ID"},
		// What a script's unset variable leaves must not act on more.
		{"cancel|--destination|shop|--batch|", 2, "--batch is empty; give it a value or leave it out"},
		{"cancel|--batch|b|--destination|", 2, "--destination is empty; give it a value or leave it out"},
		{"cancel|--batch|b|--key=", 2, "--key is empty; give it a value or leave it out"},
		{"cancel|--batch|b|--status|", 2, "--status is empty; give it a value or leave it out"},
		{"retry|--status|expired", 2, "--status: expired jobs cannot be retried; failed, cancelled ones can"},
		{"cancel|a|--reason|" + reason, 2, long},
		{"enqueue", 2, "destination: is missing; name one of your destinations"},
		{"enqueue|-d|shop|--payload|@" + dir + "/none", 2, "--payload: cannot read " + dir + "/none: no such file or directory"},
		{"enqueue|-d|shop|--payload|@" + dir, 2, "--payload: " + dir + " is a directory"},
		{"enqueue|-d|shop|--header|secret", 2, "--header: is not of the form NAME:VALUE"},
		{"enqueue|-d|shop|--at|tomorrow", 2, `--at: "tomorrow" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z`},
		{"enqueue|-d|shop|--delay|5", 2, `--delay: "5" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{"enqueue|-d|shop|--ttl|60", 2, `--ttl: "60" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{"enqueue|-d|shop|--ttl|1h|--expires-at|2099-01-31T14:35:00Z|--id|a b", 2, `id: "a b" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit; ttl: give either a ttl or expires_at, not both`},
		{"enqueue|-d|shop|--timeout|5m", 2, "--timeout goes with --wait"},
		{"enqueue|-d|shop|--retry|3", 2, `--retry: "3" is not of the form name=value; ` + retry},
		{"enqueue|-d|shop|--retry|initial=3s", 2, "--retry: max is missing: how often to call again; " + retry},
		{"enqueue|-d|shop|--retry|max=3,max=4", 2, "--retry: max is given twice"},
		{"enqueue|-d|shop|--retry|max=three", 2, "--retry: max=three cannot be read; " + retry},
		{"enqueue|-d|shop|--retry|max=3,initial=1500ms", 2, "--retry: initial=1500ms cannot be read; " + retry},
		{"enqueue|-d|shop|--retry|max=3,jitter=1", 2, `--retry: "jitter" is not known; ` + retry},
		{"enqueue|--file|jobs.jsonl|--batch|a b", 2, `--batch: "a b" cannot be the name of a batch: 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`},
		{"enqueue|--file|jobs.jsonl|--ttl|1h", 2, alone},
		{"enqueue|--file|jobs.jsonl|--after|a", 2, alone},
		{"enqueue|--file|jobs.jsonl|--wait", 2, alone},
		{"enqueue|--file|" + dir + "/none", 2, "--file: cannot read " + dir + "/none: no such file or directory"},
		{"enqueue|--file|" + dir, 2, "--file: " + dir + " is a directory"},
	})
}

// What is named and does not exist.
func TestUnknown(t *testing.T) {
	t.Parallel()
	const (
		unset = `"" cannot be the name of a destination: 1 to 63 of a-z, 0-9 and -, starting with a letter or digit`
		blog  = `destination "blog" is not known; known are shop`
		none  = `destination "shop" is not known, and no other is: start a worker that serves it, or set its DESTINATION_ variables here too`
		job   = `no job has the id "nope"; it never existed, or its retention has ended`
		batch = `no job of a batch "nope" is known; none was enqueued, or their retention has ended`
	)
	newBench(t, shop...).refuses(t, []refusal{
		// What a script's unset variable leaves.
		{"breaker|trip|", 2, unset},
		{"limits|forget|", 2, unset},
		{"queue|pause|", 2, "name a destination, or give --all"},
		{"breaker|get|blog", 4, blog},
		{"breaker|get|blog/alice", 4, blog},
		{"breaker|trip|blog", 4, blog},
		{"breaker|reset|blog", 4, blog},
		{"breaker|force|blog|closed", 4, blog},
		{"breaker|history|blog", 4, blog},
		{"breaker|incidents|shop|--limit|0", 2, "--limit must be at least 1"},
		{"breaker|list|--destination|blog", 4, blog},
		{"limits|blog", 4, blog},
		{"limits|forget|blog", 4, blog},
		{"limits|--destination|blog", 4, blog},
		{"queue|pause|blog", 4, blog},
		{"queue|resume|blog", 4, blog},
		{"stats|-d|blog", 2, blog},
		{"list|-d|blog", 2, blog},
		{"cancel|-d|blog", 2, blog},
		{"retry|-d|blog|--dry-run", 2, blog},
		{"get|nope", 4, job},
		{"get|no\x1b[2J", 4, `no job has the id "no[2J"; it never existed, or its retention has ended`},
		{"history|nope", 4, job},
		{"cancel|nope", 4, job},
		{"batch|get|nope", 4, batch},
		{"batch|get|nope|--wait", 4, batch},
		{"batch|get|a b", 2, `"a b" cannot be the name of a batch: 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`},
		{"list|--status|done", 2, `status: "done" is not a status; there are waiting, pending, running, retry_pending, paused, completed, failed, cancelled, expired`},
		{"list|--cursor|garbage", 2, "cursor: is none that a list has returned; start without one"},
	})
	empty := newBench(t)
	empty.refuses(t, []refusal{{"breaker|get|shop", 4, none}, {"queue|pause|shop", 4, none}, {"limits|shop", 4, none}})
	for _, command := range []string{"breaker list", "limits", "stats"} {
		empty.run(t, strings.Fields(command)...).want(t, 0, "no destination is known; start one with: tidegate worker\n", "")
	}
}
