package doctor

import (
	"context"
	"fmt"
	"slices"
	"sort"
)

// allSuspects checks the jobs that were not in the pending lists again.
func (p *pass) allSuspects(context.Context) error {
	names := make([]string, 0, len(p.known))
	for name, q := range p.known {
		if len(q.suspects) > 0 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		p.push(p.suspectsOf(p.known[name]))
	}
	return nil
}

// suspectsOf checks jobs of one queue again. Each was pending and not in the list, and may
// have entered it since. So its record is read, the whole list is searched for it, and it is
// lost if it was not there and its record has not changed.
func (p *pass) suspectsOf(q *queueState) step {
	ids := q.suspects
	q.suspects = nil
	s := &search{queue: q.name, described: make(map[string]string, len(ids))}
	return func(context.Context) error {
		if len(ids) > 0 {
			p.push(p.describe(s, ids))
		}
		return nil
	}
}

// search is the search for jobs in a pending list.
type search struct {
	queue     string
	described map[string]string // by id, without found ones
}

func (p *pass) describe(s *search, ids []string) step {
	return func(ctx context.Context) error {
		chunk := ids[:min(len(ids), perScript)]
		args := make([]any, len(chunk))
		for i, id := range chunk {
			args[i] = id
		}
		values, err := p.run(ctx, suspectScript, s.queue, args...)
		if err != nil {
			return fmt.Errorf("search jobs of %s: %w", s.queue, err)
		}
		r := reply{}
		texts := r.strings(values)
		if r.bad || len(texts) != len(chunk) {
			return fmt.Errorf("search jobs of %s: %w", s.queue, errReply)
		}
		for i, text := range texts {
			if text != "" {
				s.described[chunk[i]] = text
			}
		}
		if rest := ids[len(chunk):]; len(rest) > 0 {
			p.push(p.describe(s, rest))
			return nil
		}
		p.push(p.seek(s, 0))
		return nil
	}
}

// seek removes jobs in the list from the search. New entries at its end shift the others, so
// some are read twice and none is missed; the overlap covers ids that are removed meanwhile.
func (p *pass) seek(s *search, start int) step {
	return func(ctx context.Context) error {
		if len(s.described) == 0 {
			return nil
		}
		ids, err := p.readList(ctx, s.queue, start, perRead)
		if err != nil {
			return err
		}
		for _, id := range ids {
			delete(s.described, id)
		}
		if len(ids) == perRead {
			p.push(p.seek(s, start+perRead-perRead/20))
			return nil
		}
		left := make([]string, 0, len(s.described))
		for id := range s.described {
			left = append(left, id)
		}
		sort.Strings(left)
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
			args = append(args, id, s.described[id])
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
