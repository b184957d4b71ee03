package doctor

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// listed is a pending list, as a hash of each id: a million ids would take a hundred
// megabytes. Two ids with the same hash hide each other in this pass; the next one has
// another seed.
type listed struct {
	seed   maphash.Seed
	sums   []uint64 // the last bit: the job is pending
	sorted bool

	exact    bool // each entry was read once
	counted  int  // tombstones by the counter, if it did not change
	expected int  // the count of an earlier reading: see settle
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

// tombstones counts the entries that a fetch will drop: all entries of jobs that are not pending, and all but one of
// each pending job.
func (l *listed) tombstones() int {
	l.sort()
	distinct := 0
	for i, s := range l.sums {
		if s&1 == 1 && (i == 0 || l.sums[i-1] != s) {
			distinct++
		}
	}
	return len(l.sums) - distinct
}

// pendingList reads the pending list of a queue, in which jobs are searched later, and counts
// its tombstones.
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
		exact, next, tombstones, kinds, ids := r.int(0) == 1, r.int(1), r.int(2), r.text(3), r.texts(4)
		p.take(q.name, "pending", r.texts(5))
		if err := r.err("read the pending list", q.name); err != nil || len(kinds) != len(ids) {
			return fmt.Errorf("read the pending list of %s: %w", q.name, errReply)
		}
		l := q.pending
		if l.counted < 0 {
			l.counted = tombstones
		}
		l.exact = l.exact && exact && tombstones == l.counted
		for i, id := range ids {
			l.add(id, kinds[i] == 'p')
		}
		if len(ids) < perScript {
			if len(l.sums) > 0 || l.counted != 0 {
				p.push(p.countTombstones(q))
			}
			return nil
		}
		p.push(p.pendingPart(q, next, ids[len(ids)-1]))
		return nil
	}
}

// countTombstones corrects the count of tombstones. A long list cannot be counted in one
// step; every change of it changes the count too, so a count that two readings in a row find
// wrong by the same number, while it did not change, is wrong.
func (p *pass) countTombstones(q *queueState) step {
	return func(ctx context.Context) error {
		l := q.pending
		right, settled := l.tombstones(), ""
		if l.exact && l.looks > 0 && right == l.expected {
			settled = strconv.Itoa(l.counted)
		}
		values, err := p.run(ctx, tombstonesScript, q.name, shortList, settled, right)
		if err != nil {
			return fmt.Errorf("count tombstones of %s: %w", q.name, err)
		}
		r := reply{values: values}
		verdict, was, is := r.int(0), r.int(1), r.int(2)
		if verdict == 1 {
			p.found.addDetailed(KindTombstoneCount, q.name,
				fmt.Sprintf("%d tombstones in the pending list were counted, and there are %d; is corrected", was, is), 1)
		}
		if again := verdict == -1 && l.exact && right != l.counted && l.looks == 0; again {
			l.looks, l.expected = 1, right
			p.push(p.pendingList(q))
		}
		return r.err("count tombstones", q.name)
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
