package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// allSuspects checks the jobs that were not in the pending lists again.
func (p *pass) allSuspects(context.Context) error {
	names := make([]string, 0, len(p.known))
	for name, q := range p.known {
		if len(q.suspects) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		p.push(p.suspectsOf(p.known[name]))
	}
	return nil
}

// suspectsOf checks jobs of one queue again. Each had to be in the list and was not read there, and may
// have entered it since. So the whole list is searched for it, and it is lost if it is not there
// and its record has not changed.
func (p *pass) suspectsOf(q *queueState) step {
	s := &search{queue: q.name, marks: q.suspects}
	q.suspects = map[string]string{}
	return p.seek(s, 0)
}

// search is the search for jobs in a pending list.
type search struct {
	queue string
	marks map[string]string // by id, without found ones
}

// seek removes jobs in the list from the search. New entries at its end shift the others, so
// some are read twice and none is missed; the overlap covers ids that are removed meanwhile.
func (p *pass) seek(s *search, start int) step {
	return func(ctx context.Context) error {
		if len(s.marks) == 0 {
			return nil
		}
		ids, err := p.readList(ctx, s.queue, start, perRead)
		if err != nil {
			return err
		}
		for _, id := range ids {
			delete(s.marks, id)
		}
		if len(ids) == perRead {
			p.push(p.seek(s, start+perRead-perRead/20))
			return nil
		}
		left := slices.Sorted(maps.Keys(s.marks))
		var steps []step
		for chunk := range slices.Chunk(left, perLost) {
			steps = append(steps, p.lost(s, chunk))
		}
		p.push(steps...)
		return nil
	}
}

func (p *pass) lost(s *search, ids []string) step {
	return func(ctx context.Context) error {
		args := []any{perRead}
		for _, id := range ids {
			args = append(args, id, s.marks[id])
		}
		values, err := p.run(ctx, lostScript, s.queue, args...)
		if err != nil {
			return fmt.Errorf("return lost jobs to %s: %w", s.queue, err)
		}
		r := reply{}
		p.take(s.queue, "pending", r.strings(values))
		if r.bad {
			return fmt.Errorf("return lost jobs to %s: %w", s.queue, errReply)
		}
		return nil
	}
}
