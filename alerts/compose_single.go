package alerts

import (
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// workerSilence is how long a worker may send no heartbeat before it counts as
// gone, as for the command line. Workers send one every ten seconds.
const workerSilence = 30 * time.Second

// report is what a single notice reports.
type report interface {
	compose(c composer) *notice.Notice
}

// single starts a notice of one thing.
func single(subject, class, icon string, now time.Time, rest string) *notice.Notice {
	return &notice.Notice{
		Kind: notice.Single, Severity: notice.Warning, Subject: subject, Class: class, Now: now,
		Title: notice.Title{Icon: icon, Name: subject, Rest: plain(rest)}, Summary: join(notice.Name(subject), rest),
	}
}

// burst is many failed jobs in a short time.
type burst struct {
	Destination string
	Failed      int
	Within      time.Duration
	At          time.Time
	LastError   string
	LastJob     string
}

func (f *burst) compose(composer) *notice.Notice {
	n := single(f.Destination, "failed jobs", iconFailed, f.At, ": "+count(f.Failed, "job", "jobs")+" failed within "+span(f.Within))
	last := []notice.Text{{notice.Bold("Last error: "), notice.Quote(f.LastError, notice.MaxReason)}}
	destination := shellName(f.Destination)
	list := []notice.Command{do("tidegate list --destination " + destination + " --status failed")}
	if f.LastJob != "" {
		last = append(last, join(notice.Bold("Of job: "), nameCode(f.LastJob), ", ", notice.Time(f.At)))
		list = append(list, do("tidegate get "+shellName(f.LastJob)))
	}
	n.Body = []notice.Block{
		lines(last...),
		paragraph(notice.Bold("What happens now:"), " failed jobs stay as they are, with their payload, until an operator retries them or ",
			notice.Code("JOB_RETENTION_FAILED"), " is over. Other jobs of ", nameCode(f.Destination), " continue."),
		commands(lookAndAct, append(list,
			act("count the jobs; without --dry-run they run again:", "tidegate retry --destination "+destination+" --status failed --dry-run"),
			act("stop meanwhile:", "tidegate queue pause "+destination))),
	}
	n.Summary = join(n.Summary, "; the last one: ", notice.Foreign(f.LastError, notice.MaxReason))
	return n
}

// poisoned is a job that killed its workers.
type poisoned struct {
	Destination, Key, Job string
	Crashes               int
	LastError             string
	At                    time.Time
}

func (p *poisoned) compose(composer) *notice.Notice {
	n := single(p.Destination, "poison job", iconPoison, p.At, ": a job killed "+count(p.Crashes, "worker", "workers")+" and was stopped")
	job := join(notice.Bold("Job: "), nameCode(p.Job))
	if p.Key != "" {
		job = join(job, " of key ", nameCode(p.Key))
	}
	about := []notice.Text{join(job, ", failed ", notice.Time(p.At))}
	if p.LastError != "" {
		about = append(about, notice.Text{notice.Bold("Last error: "), notice.Quote(p.LastError, notice.MaxReason)})
	}
	name := shellName(p.Job)
	n.Body = []notice.Block{
		lines(about...),
		paragraph(notice.Bold("What happens now:"), " it does not run again by itself; the jobs that were in flight beside it do. "+
			"Check the logs of the workers at that time: out of memory, a crash, a machine that was switched off?"),
		commands(lookAndAct, []notice.Command{
			do("tidegate get " + name), do("tidegate history " + name), act("run it again, once the cause is fixed:", "tidegate retry "+name),
		}),
	}
	n.Summary = join(n.Summary, ": ", notice.Name(p.Job))
	return n
}

// refusedAlone are jobs that the API refuses while it accepts others.
type refusedAlone struct {
	Destination string
	At          time.Time
	jobs.RefusedAlone
}

func (r *refusedAlone) compose(c composer) *notice.Notice {
	n := single(r.Destination, "jobs refused alone", iconFailed, r.At, ": the API refuses "+count(r.Jobs, "job", "jobs")+" and accepts others")
	name := shellName(r.Job)
	n.Body = []notice.Block{
		facts(when("Since", r.Since), number("Refused calls", r.Refusals), number("Failed jobs", r.Failed)),
		lines(join(notice.Bold("For example: "), nameCode(r.Job)), notice.Text{notice.Bold("It was: "), notice.Quote(r.Text, notice.MaxReason)}),
		paragraph(notice.Bold("What happens now:"), " other jobs continue. Each of these waits alone, longer each time, and fails after ",
			notice.Code("MAX_REFUSED_ALONE"), " refusals. Is it too large for the API, or is the quota of its user used up? "+
				"If the API limits each path or model by itself, set ", notice.Code("KEY_BY"), "."),
		commands(lookAndAct, []notice.Command{
			do("tidegate get " + name), do("tidegate breaker get " + shellName(r.Destination)),
			act("if it can never pass:", "tidegate cancel "+name),
		}),
	}
	n.Link = c.breakerPage(r.Destination)
	n.Summary = join(n.Summary, "; the last one: ", notice.Name(r.Job))
	return n
}

// overdue is a job that has waited for too long.
type overdue struct {
	Destination string
	Since       time.Time // since when the oldest job waits
	Job         string    // its id, "" if unknown
	Waits       string    // why it waits, if not for its turn
	Bound       time.Duration
	At          time.Time
	Backlog     int
	State       breaker.State // of the destination's breaker, which may explain it
	Until       time.Time
	Paused      bool
	WorkersSeen time.Time // last heartbeat of a worker; zero: never
}

func (o *overdue) compose(c composer) *notice.Notice {
	n := single(o.Destination, "old pending job", iconLate, o.At, ": the oldest job has waited for "+span(o.At.Sub(o.Since)))
	list := []notice.Fact{when("Waits since", o.Since), {Name: "Bound", Value: plain(span(o.Bound))}}
	tail := ""
	if o.Backlog >= 0 {
		list = append(list, number("Jobs waiting", o.Backlog))
		tail = "; " + jobsWait(o.Backlog)
	}
	reason, short, what := o.reason()
	destination := shellName(o.Destination)
	if o.Job != "" {
		what = append([]notice.Command{do("tidegate get " + shellName(o.Job))}, what...)
	}
	n.Body = []notice.Block{
		facts(list...),
		paragraph(notice.Bold("Likely reason:"), " ", reason),
		commands(lookAndAct, append([]notice.Command{
			do("tidegate stats --destination " + destination),
			do("tidegate list --destination " + destination + " --status pending,running"),
		}, what...)),
	}
	n.Link = c.breakerPage(o.Destination)
	n.Summary = join(n.Summary, ": ", short, tail)
	return n
}

// reason is why a job may wait for so long: in a sentence, in short, and what to do.
func (o *overdue) reason() (sentence, short notice.Text, what []notice.Command) {
	name, shell := nameCode(o.Destination), shellName(o.Destination)
	gone := o.At.Sub(o.WorkersSeen)
	get := do("tidegate breaker get " + shell)
	start := []notice.Command{act("start one:", "tidegate worker")}
	switch {
	case o.Paused:
		return join("an operator has paused ", name, "; its jobs wait until it is resumed."), plain("it is paused"),
			[]notice.Command{act("let its jobs continue:", "tidegate queue resume "+shell)}
	case o.State == breaker.Open && o.Until.IsZero():
		return join("the breaker of ", name, " is open until it is reset."), plain("the breaker is open until it is reset"),
			[]notice.Command{get, act("call again:", "tidegate breaker reset "+shell)}
	case o.State == breaker.Open && o.Until.After(o.At):
		at := notice.Time(o.Until)
		return join("the breaker of ", name, " is open until ", at, "."), join("the breaker is open until ", at), []notice.Command{get}
	case o.WorkersSeen.IsZero():
		return join("no worker has served ", name, " yet."), plain("no worker has served it yet"), start
	case gone > workerSilence:
		return join("no worker has served ", name, " for "+span(gone)+"."), plain("no worker has served it for " + span(gone)), start
	case o.State != breaker.Closed:
		return join("recovery of ", name, " is being tested: the next call is the probe."), plain("recovery is being tested"), []notice.Command{get}
	case o.Waits != "":
		why := notice.Foreign(o.Waits, notice.MaxReason) // it may hold an operator's reason
		return join("the oldest job is not in line: ", why, "."), notice.Text{why}, nil
	}
	return plain("the workers cannot keep up: the API answers slowly, or there are too few workers for so many jobs."), plain("workers cannot keep up"),
		[]notice.Command{act("see what limits it:", "tidegate breaker get "+shell)}
}

// unreached is a destination that none of its workers reaches.
type unreached struct {
	Destination string
	Since, At   time.Time
	Problem     string // of one of the workers
	Workers     int
}

func (u *unreached) compose(c composer) *notice.Notice {
	n := single(u.Destination, "unreachable destination", iconTrouble, u.At, ": no worker reaches it")
	n.Body = []notice.Block{
		facts(when("Since", u.Since), number("Workers", u.Workers)),
		lines(problemLine(u.Problem)),
		paragraph(notice.Bold("What happens now:"), " no call is made, so nothing fails: jobs of ", nameCode(u.Destination),
			" wait, one at a time tries, and all continue at the first call that reaches the API. Check the API's address, DNS, the proxy, "+
				"certificates and the number of file descriptors."),
		commands(look, []notice.Command{
			do("tidegate list --destination " + shellName(u.Destination) + " --status pending"),
			act("the state of a worker:", "tidegate health"),
		}),
	}
	n.Link = c.breakerPage(u.Destination)
	n.Summary = join(n.Summary, " since ", notice.Time(u.Since), ": ", notice.Foreign(u.Problem, notice.MaxReason))
	return n
}

func problemLine(problem string) notice.Text {
	return notice.Text{notice.Bold("Problem: "), notice.Quote(problem, notice.MaxReason)}
}

// unserved is a destination with jobs that no worker serves any more.
type unserved struct {
	Destination string
	Since, At   time.Time
	Backlog     int
}

func (u *unserved) compose(c composer) *notice.Notice {
	n := single(u.Destination, "destination without workers", iconTrouble, u.At, ": no worker serves it, and "+jobsWait(u.Backlog))
	destination := shellName(u.Destination)
	n.Body = []notice.Block{
		facts(when("Since", u.Since), number("Jobs waiting", u.Backlog)),
		paragraph(notice.Bold("What happens now:"), " other destinations continue. Jobs of ", nameCode(u.Destination),
			" wait until a worker serves it again, or expire. Was it renamed, or left out of the workers' environment?"),
		commands(lookAndAct, []notice.Command{
			do("tidegate stats --destination " + destination),
			act("count the jobs; without --dry-run they are cancelled:", "tidegate cancel --destination "+destination+" --dry-run"),
		}),
	}
	n.Link = c.breakerPage(u.Destination)
	n.Summary = join(n.Summary, " since ", notice.Time(u.Since))
	return n
}

// redisOutage is a time in which this worker could not reach Redis.
type redisOutage struct {
	Worker      string
	Since, Back time.Time // Back zero: it still lasts
	Problem     string    // without passwords
}

func (o *redisOutage) compose(composer) *notice.Notice {
	worker := join(notice.Bold("Worker: "), notice.Quote(o.Worker, notice.MaxBy))
	n := single("", "Redis unreachable", iconTrouble, o.Since, "A worker cannot reach Redis")
	n.Severity, n.At = notice.Critical, o.Since
	n.Summary = join("worker ", notice.Foreign(o.Worker, notice.MaxBy))
	if !o.Back.IsZero() {
		lasted := span(o.Back.Sub(o.Since))
		n.Kind, n.Attention = notice.Resolved, true
		n.Title = notice.Title{Icon: iconGood, Rest: plain("Redis is back after " + lasted)}
		n.Body = []notice.Block{
			lines(worker, join(notice.Bold("Away: "), notice.Time(o.Since), " to ", notice.Time(o.Back))),
			paragraph(notice.Bold("Now:"), " jobs are fetched again. Jobs that were in flight when Redis failed may run a second time, under the same ",
				notice.Code("Idempotency-Key"), "."),
			commands(look, []notice.Command{act("what is missing, if anything:", "tidegate doctor --dry-run")}),
		}
		n.Summary = join(n.Summary, " reaches Redis again after "+lasted)
		return n
	}
	n.Body = []notice.Block{
		lines(worker, join(notice.Bold("Since: "), notice.Time(o.Since)), problemLine(o.Problem)),
		paragraph(notice.Bold("What happens now:"), " calls in flight finish, and their outcomes are recorded once Redis is back. Nothing new is fetched, "+
			"and an open breaker stays open until its time. Jobs cannot be enqueued. The worker continues by itself."),
		commands(look, []notice.Command{
			act("which Redis it is:", "tidegate config check"),
			act("what is missing afterwards, if anything:", "tidegate doctor --dry-run"),
		}),
	}
	n.Summary = join(n.Summary, " cannot reach Redis since ", notice.Time(o.Since), ": ", notice.Foreign(o.Problem, notice.MaxReason))
	return n
}

// undelivered is a number of alerts that could not be delivered; 0 if delivery fails now.
type undelivered struct {
	Count   int
	Since   time.Time
	Problem string
	Through string // the label of a notifier
}

func (u *undelivered) compose(composer) *notice.Notice {
	through := "through " + notice.PlainName(u.Through)
	what := count(u.Count, "alert", "alerts") + " could not be delivered " + through
	happens := " the next alerts are tried as always. Alerts that were given up are not sent again: check what has happened since."
	if u.Count == 0 {
		what = "alerts cannot be delivered " + through
		happens = " they are tried again until they are a day old."
	}
	n := single("alerts", "undelivered alerts", iconTrouble, u.Since, what)
	n.Title.Name = ""
	n.Body = []notice.Block{
		lines(join(notice.Bold("Since: "), notice.Time(u.Since)), problemLine(u.Problem)),
		paragraph(notice.Bold("What happens now:"), happens),
		commands(lookAndAct, []notice.Command{
			do("tidegate list --destination tidegate-alerts --status failed"), do("tidegate breaker list"),
			act("once the cause is fixed:", "tidegate alerts test"),
		}),
	}
	n.Summary = join(what+": ", notice.Foreign(u.Problem, notice.MaxReason))
	return n
}
