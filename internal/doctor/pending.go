package doctor

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/tidegate/tidegate/internal/store"
)

// listed is what was in a pending list: one number for each id, since a million
// ids would fill a hundred megabytes. Two ids that share a number hide each other
// from this pass; the next one has other numbers.
type listed struct {
	seed   maphash.Seed
	sums   []uint64 // the last bit tells that the job is pending
	sorted bool

	exact    bool // each place was read once
	counted  int  // ghosts by the counter, the same all the time
	expected int  // what an earlier look made of the count: see settle
	looks    int
}

func (l *listed) sum(id string) uint64 { return maphash.String(l.seed, id) &^ 1 }

func (l *listed) add(id string, pending bool) {
	s := l.sum(id)
	if pending {
		s |= 1
	}
	l.sums = append(l.sums, s)
}

func (l *listed) sort() {
	if !l.sorted {
		slices.Sort(l.sums)
		l.sorted = true
	}
}

func (l *listed) has(id string) bool {
	l.sort()
	s := l.sum(id)
	i, _ := slices.BinarySearch(l.sums, s)
	return i < len(l.sums) && l.sums[i]&^1 == s
}

// ghosts is how many of the entries will be dropped: those of jobs that are not
// pending, and all but one of each job that is.
func (l *listed) ghosts() int {
	l.sort()
	distinct := 0
	for i, s := range l.sums {
		if s&1 == 1 && (i == 0 || l.sums[i-1] != s) {
			distinct++
		}
	}
	return len(l.sums) - distinct
}

// pendingList reads the pending list of a queue, so that later jobs can be looked
// for in it, and counts its ghosts.
func (p *pass) pendingList(q *queueState) step {
	return func(context.Context) error {
		l := &listed{seed: maphash.MakeSeed(), exact: true, counted: -1}
		if q.pending != nil {
			l.looks, l.expected = q.pending.looks, q.pending.expected
		}
		q.pending = l
		p.push(p.pendingPart(q, 0, ""))
		return nil
	}
}

func (p *pass) pendingPart(q *queueState, start int, last string) step {
	return func(ctx context.Context) error {
		values, err := p.run(ctx, listScript, q.name, start, perScript, last)
		if err != nil {
			return fmt.Errorf("read the pending list of %s: %w", q.name, err)
		}
		r := reply{values: values}
		exact, next, ghosts, kinds, ids := r.int(0) == 1, r.int(1), r.int(2), r.text(3), r.texts(4)
		p.take(q.name, "pending", r.texts(5))
		if err := r.err("read the pending list", q.name); err != nil || len(kinds) != len(ids) {
			return fmt.Errorf("read the pending list of %s: %w", q.name, errReply)
		}
		l := q.pending
		if l.counted < 0 {
			l.counted = ghosts
		}
		l.exact = l.exact && exact && ghosts == l.counted
		for i, id := range ids {
			l.add(id, kinds[i] == 'p')
		}
		if len(ids) < perScript {
			if len(l.sums) > 0 || l.counted != 0 {
				p.push(p.countGhosts(q))
			}
			return nil
		}
		p.push(p.pendingPart(q, next, ids[len(ids)-1]))
		return nil
	}
}

// countGhosts sets the count of ghosts right. A long list cannot be counted in one
// step; all that changes it changes the count along with it, so what two readings
// in a row find wrong by the same number, while the count stood still, is wrong.
func (p *pass) countGhosts(q *queueState) step {
	return func(ctx context.Context) error {
		l := q.pending
		right, settled := l.ghosts(), ""
		if l.exact && l.looks > 0 && right == l.expected {
			settled = strconv.Itoa(l.counted)
		}
		values, err := p.run(ctx, tombstonesScript, q.name, shortList, settled, right)
		if err != nil {
			return fmt.Errorf("count ghosts of %s: %w", q.name, err)
		}
		r := reply{values: values}
		verdict, was, is := r.int(0), r.int(1), r.int(2)
		if verdict == 1 {
			p.found.say(KindGhostCount, q.name,
				fmt.Sprintf("%d ids in the pending list of jobs that are not pending were counted, and there are %d; set right", was, is), 1)
		}
		if again := verdict == -1 && l.exact && right != l.counted && l.looks == 0; again {
			l.looks, l.expected = 1, right
			p.push(p.pendingList(q))
		}
		return r.err("count ghosts", q.name)
	}
}

// readList reads ids of a pending list from start on.
func (p *pass) readList(ctx context.Context, queue string, start, n int) ([]string, error) {
	ids, err := p.rdb.LRange(ctx, store.PendingKey(queue), int64(start), int64(start+n-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the pending list of %s: %w", queue, err)
	}
	return ids, nil
}
