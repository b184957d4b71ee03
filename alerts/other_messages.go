package alerts

import (
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/breaker"
)

// workerSilence is how long a worker may give no sign of life before it counts as
// gone, as for the command line. Workers give one every ten seconds.
const workerSilence = 30 * time.Second

// failedBurst says that many jobs of a destination have failed.
func (w writer) failedBurst(f burst) message {
	t := title{emojiFailed, ": " + count(f.Failed, "job", "jobs") + " failed within " + span(f.Within)}
	var b sheet
	b.header(t.inTitle(f.Destination))
	elements := []slack.RichTextElement{richLine(richBold("Last error: "), richCode(f.LastError, mostReason))}
	if f.LastJob != "" {
		elements = append(elements, richLine(richBold("Of job: "), richCode(plainName(f.LastJob), mostName), richText(", "), richDate(f.At)))
	}
	b.rich(elements...)
	b.section("*What happens now:* failed jobs stay as they are, with their payload, until somebody runs them again or " +
		"`JOB_RETENTION_FAILED` is over. Others of " + codeName(f.Destination) + " go on.")
	list := []command{{"", "tidegate list --destination " + shellName(f.Destination) + " --status failed"}}
	if f.LastJob != "" {
		list = append(list, command{"", "tidegate get " + shellName(f.LastJob)})
	}
	b.commands("To look and to act", append(list,
		command{"count those to run again; without --dry-run they do:", "tidegate retry --destination " + shellName(f.Destination) + " --status failed --dry-run"},
		command{"stop meanwhile:", "tidegate queue pause " + shellName(f.Destination)}))
	return compose(&b, t.inText(f.Destination), "; the last one: ", inert(f.LastError, mostReason))
}

// poisonJob says that a job that killed its workers was stopped.
func (w writer) poisonJob(p poisoned) message {
	t := title{emojiPoison, ": a job killed " + count(p.Crashes, "worker", "workers") + " and was stopped"}
	var b sheet
	b.header(t.inTitle(p.Destination))
	job := []slack.RichTextSectionElement{richBold("Job: "), richCode(plainName(p.Job), mostName)}
	if p.Key != "" {
		job = append(job, richText(" of key "), richCode(plainName(p.Key), mostName))
	}
	elements := []slack.RichTextElement{richLine(append(job, richText(", failed "), richDate(p.At))...)}
	if p.LastError != "" {
		elements = append(elements, richLine(richBold("Last error: "), richCode(p.LastError, mostReason)))
	}
	b.rich(elements...)
	b.section("*What happens now:* it does not run again by itself; the jobs that were in hand beside it do. " +
		"Look at the logs of the workers at that time: out of memory, a crash, a machine that was switched off?")
	b.commands("To look and to act", []command{
		{"", "tidegate get " + shellName(p.Job)},
		{"", "tidegate history " + shellName(p.Job)},
		{"run it again, once the reason is mended:", "tidegate retry " + shellName(p.Job)},
	})
	return compose(&b, t.inText(p.Destination), ": ", inertName(p.Job))
}

// oldestPending says that a job has been next in line for too long, and why that may
// be.
func (w writer) oldestPending(o overdue) message {
	t := title{emojiLate, ": the oldest job has waited for " + span(o.At.Sub(o.Since))}
	var b sheet
	b.header(t.inTitle(o.Destination))
	list := []field{{"Waits since", date(o.Since)}, {"Bound", span(o.Bound)}}
	if o.Backlog >= 0 {
		list = append(list, field{"Jobs waiting", thousands(o.Backlog)})
	}
	b.fields(list...)
	why, text, act := overdueReason(&o)
	b.section("*Likely reason:* " + why)
	b.commands("To look and to act", append([]command{
		{"", "tidegate stats --destination " + shellName(o.Destination)},
		{"", "tidegate list --destination " + shellName(o.Destination) + " --status pending,running"},
	}, act...))
	b.link(w.breakerPage(o.Destination))
	tail := ""
	if o.Backlog >= 0 {
		tail = "; " + jobsWait(o.Backlog)
	}
	return compose(&b, t.inText(o.Destination), ": ", text, tail)
}

// overdueReason is why a job may wait for so long: in mrkdwn, in the words of a
// notification, and what to do about it.
func overdueReason(o *overdue) (mrkdwn, text string, act []command) {
	name, shell := codeName(o.Destination), shellName(o.Destination)
	gone := o.At.Sub(o.WorkersSeen)
	switch {
	case o.Paused:
		return "an operator has paused " + name + "; its jobs wait until it is resumed.", "it is paused",
			[]command{{"let its jobs go on:", "tidegate queue resume " + shell}}
	case o.State == breaker.Open && o.Until.IsZero():
		return "the breaker of " + name + " is open until it is reset.", "the breaker is open until it is reset",
			[]command{{"", "tidegate breaker get " + shell}, {"call again:", "tidegate breaker reset " + shell}}
	case o.State == breaker.Open && o.Until.After(o.At):
		return "the breaker of " + name + " is open until " + date(o.Until) + ".", "the breaker is open until " + clock(o.Until, o.At),
			[]command{{"", "tidegate breaker get " + shell}}
	case o.WorkersSeen.IsZero():
		return "no worker has served " + name + " yet.", "no worker has served it yet",
			[]command{{"start one:", "tidegate worker"}}
	case gone > workerSilence:
		return "no worker has served " + name + " for " + span(gone) + ".", "no worker has served it for " + span(gone),
			[]command{{"start one:", "tidegate worker"}}
	case o.State != breaker.Closed:
		return "recovery of " + name + " is being tested: the next call is the probe.", "recovery is being tested",
			[]command{{"", "tidegate breaker get " + shell}}
	}
	return "the workers cannot keep up: the API answers slowly, or there are too few workers for so many jobs.", "workers cannot keep up",
		[]command{{"see what limits it:", "tidegate breaker get " + shell}}
}

// redisLost says that a worker cannot reach Redis.
func (w writer) redisLost(o outage) message {
	var b sheet
	b.header(emojiTrouble + " A worker cannot reach Redis")
	b.rich(
		richLine(richBold("Worker: "), richCode(o.Worker, mostBy)),
		richLine(richBold("Since: "), richDate(o.Since)),
		richLine(richBold("Problem: "), richCode(o.Problem, mostReason)),
	)
	b.section("*What happens now:* calls in flight finish, and what they have done is written down later. Nothing new is fetched, " +
		"and a breaker that is open stays so until its time. Jobs cannot be enqueued while nobody reaches Redis. The worker goes on by itself.")
	b.commands("To look", []command{
		{"which Redis it is:", "tidegate config check"},
		{"what is missing afterwards, if anything:", "tidegate doctor --dry-run"},
	})
	return compose(&b, "worker ", inert(o.Worker, mostBy), " cannot reach Redis since ", clock(o.Since, o.Since), ": ", inert(o.Problem, mostReason))
}

// redisBack says that a worker reaches Redis again.
func (w writer) redisBack(o outage) message {
	lasted := span(o.Back.Sub(o.Since))
	var b sheet
	b.header(emojiGood + " Redis is back after " + lasted)
	b.rich(
		richLine(richBold("Worker: "), richCode(o.Worker, mostBy)),
		richLine(richBold("Away: "), richDate(o.Since), richText(" to "), richDate(o.Back)),
	)
	b.section("*Now:* jobs are fetched again. What was in hand when Redis went away may run a second time, under the same `Idempotency-Key`.")
	b.commands("To look", []command{{"what is missing, if anything:", "tidegate doctor --dry-run"}})
	return compose(&b, "worker ", inert(o.Worker, mostBy), " reaches Redis again after ", lasted)
}

// undeliveredAlerts says that people were not told of something, or, with a Count of 0,
// that they cannot be told now.
func (w writer) undeliveredAlerts(u undelivered) message {
	through := plainName(u.Through)
	if u.Through == "" {
		through = "Slack"
	}
	what := count(u.Count, "alert", "alerts") + " could not be delivered through " + through
	happens := "*What happens now:* the next alerts are tried as always. Those that were given up are not sent again: look at what happened since then."
	if u.Count == 0 {
		what = "alerts cannot be delivered through " + through
		happens = "*What happens now:* they are tried again until they are a day old."
	}
	var b sheet
	b.header(emojiTrouble + " " + breakColons(what))
	b.rich(
		richLine(richBold("Since: "), richDate(u.Since)),
		richLine(richBold("Problem: "), richCode(u.Problem, mostReason)),
	)
	b.section(happens)
	b.commands("To look and to act", []command{
		{"", "tidegate list --destination tidegate-alerts --status failed"},
		{"", "tidegate breaker list"},
		{"once the reason is mended:", "tidegate alerts test"},
	})
	return compose(&b, inert(what, mostReason), ": ", inert(u.Problem, mostReason))
}
