package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// The newest job of a replace-key wins, also in one call. The job says whom it replaced, and the replaced one by whom.
func TestReplace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t)
	first := b.enqueue(jobs.Replace("profile"), jobs.Batch("monday"))
	child := b.enqueue(jobs.After(first.ID))
	other := b.enqueue(jobs.Replace("profile"), jobs.Prioritize(jobs.PriorityHigh))
	many, err := b.EnqueueMany(ctx, []*jobs.Spec{
		jobs.New(b.dest, 1, jobs.Replace("profile"), jobs.ID("one")), jobs.New(b.dest, 2, jobs.Replace("profile"), jobs.Key("alice")),
		jobs.New(b.dest, 2, jobs.Replace("profile"), jobs.ID("one")),
	})
	b.must(err)
	one, two, again := many[0].Job, many[1].Job, many[2].Job
	if one.Replaced != first.ID || two.Replaced != "one" || !again.Duplicate || other.Replaced != "" {
		t.Errorf("replaced %q, %q and, of another priority, %q; a repeated id is a duplicate: %t", one.Replaced, two.Replaced, other.Replaced, again.Duplicate)
	}
	for id, by := range map[string]string{first.ID: "one", "one": two.ID} {
		got := b.get(id)
		if got.Status != jobs.Cancelled || got.LastError != "replaced by "+by || got.Replace != "profile" {
			t.Errorf("%s is %s: %q", id, got.Status, got.LastError)
		}
		err := b.Retry(ctx, id)
		if !errors.Is(err, jobs.ErrStatus) || !strings.Contains(err.Error(), "a newer job of its replace-key") {
			t.Errorf("retry %s: %v", id, err)
		}
	}
	if sum, err := b.ActWhere(ctx, jobs.ActionRetry, jobs.Filter{Destination: b.dest}); err != nil || sum.Done != 0 || sum.Refused < 2 {
		t.Errorf("a retry of all cancelled jobs: %+v, %v", sum, err)
	}
	if got := b.get(two.ID); got.Status != jobs.Pending || got.Replaced != "one" {
		t.Errorf("the last one is %s and replaced %q", got.Status, got.Replaced)
	}
	history, err := b.History(ctx, two.ID)
	b.must(err)
	if history[0].Detail != "replaces one" {
		t.Errorf("its history says %q", history[0].Detail)
	}
	// The cancel releases children, as workers do.
	b.must(b.Cancel(ctx, two.ID))
	if got := b.get(child.ID); got.Status != jobs.Cancelled {
		t.Errorf("the child of a replaced job is %s", got.Status)
	}
}

// Replace-keys belong to an owner, as ids do.
func TestReplaceOfAnOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for owner, want := range map[string]bool{"ann": false, "": false} {
		s := jobs.New(b.dest, 1, jobs.Replace("k"))
		s.Owner = owner
		job, err := b.Enqueue(context.Background(), s)
		if b.must(err); (job.Replaced != "") != want {
			t.Errorf("a job of %q replaced %q", owner, job.Replaced)
		}
	}
}

func TestReplaceIsValidated(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]jobs.Option{
		"replace: \"a b\" must be 1 to 128":                          {jobs.Replace("a b")},
		"replace: cannot be given with after":                        {jobs.Replace("k"), jobs.After("p")},
		"replace_max: bounds how long a replace-key":                 {jobs.Replace("k"), jobs.ReplaceMax(time.Minute)},
		"replace_max: must be at least the delay of 2m0s, is 1m0s":   {jobs.Replace("k"), jobs.Delay(2 * time.Minute), jobs.ReplaceMax(time.Minute)},
		"replace_max: must not be negative":                          {jobs.Replace("k"), jobs.Delay(time.Minute), jobs.ReplaceMax(-1)},
		"replace_max: must not be more than 100 years; leave it out": {jobs.Replace("k"), jobs.Delay(time.Minute), jobs.ReplaceMax(200 * 366 * 24 * time.Hour)},
	} {
		if err := jobs.New("d", 1, opts...).Validate(jobs.Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := jobs.New("d", 1, jobs.Replace("k"), jobs.Delay(time.Minute), jobs.ReplaceMax(time.Minute)).Validate(jobs.Limits{}); err != nil {
		t.Error(err)
	}
}
