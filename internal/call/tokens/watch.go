package tokens

import (
	"cmp"
	"crypto/sha256"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Watcher reads a file again when it changes: when it is written anew, replaced, or
// reached by symbolic links that now lead elsewhere, as Kubernetes mounts its Secrets. If
// the file cannot be used then, what was read before stays in use. It checks the file only
// when it is asked.
type Watcher[T any] struct {
	o     WatchOptions[T]
	start time.Time

	current atomic.Pointer[T]
	next    atomic.Int64 // when Current checks the file again, in ns since start
	soon    atomic.Int64 // when Recheck may

	mu      sync.Mutex  // held while the file is checked
	info    fs.FileInfo // of what was last read, nil if that failed
	sum     [sha256.Size]byte
	readAt  time.Time
	problem string // what is wrong with the file, "" if nothing
}

// WatchOptions say what a Watcher reads. All but Every are required.
type WatchOptions[T any] struct {
	Path string
	// Every is the shortest time between two checks by Current. Default 1 s.
	Every time.Duration
	// Parse makes a value of the file's content.
	Parse func([]byte) (T, error)
	// Changed is called when another content was read again.
	Changed func(T, fs.FileInfo)
	// Failed is called once for each problem that keeps the file from being used.
	Failed func(error)
}

// Watch reads the file. The error is [Errors], or Parse's.
func Watch[T any](o WatchOptions[T]) (*Watcher[T], fs.FileInfo, error) {
	o.Every = cmp.Or(o.Every, time.Second)
	w := &Watcher[T]{o: o, start: time.Now()}
	if _, err := w.read(); err != nil {
		return nil, nil, err
	}
	w.next.Store(int64(o.Every))
	return w, w.info, nil
}

// Current returns what the file held Every ago or later.
func (w *Watcher[T]) Current() T {
	if w.sinceStart() >= w.next.Load() && w.mu.TryLock() {
		w.check(true)
		w.next.Store(w.sinceStart() + int64(w.o.Every))
		w.mu.Unlock()
	}
	return *w.current.Load()
}

// Recheck returns what the file holds now, for a caller that has missed something in
// Current. It checks the file at most once every pause.
func (w *Watcher[T]) Recheck(pause time.Duration) T {
	if w.sinceStart() >= w.soon.Load() {
		w.mu.Lock()
		w.check(false)
		w.soon.Store(w.sinceStart() + int64(min(pause, w.o.Every)))
		w.mu.Unlock()
	}
	return *w.current.Load()
}

func (w *Watcher[T]) sinceStart() int64 { return int64(time.Since(w.start)) }

// coarse is the resolution of the file systems with the coarsest times: what was
// read so soon after it was written may have been written again with the same time.
const coarse = 2 * time.Second

// check reads the file again if it has changed; thorough also if it may have without
// showing it. The caller holds mu.
func (w *Watcher[T]) check(thorough bool) {
	info, err := os.Stat(w.o.Path)
	if err == nil && w.info != nil && os.SameFile(info, w.info) && info.Size() == w.info.Size() && info.ModTime().Equal(w.info.ModTime()) {
		if !thorough || w.readAt.Sub(info.ModTime()) >= coarse {
			return
		}
	}
	changed, err := w.read()
	switch {
	case err != nil:
		if text := err.Error(); text != w.problem {
			w.problem = text
			w.o.Failed(err)
		}
	case changed:
		w.problem = ""
		w.o.Changed(*w.current.Load(), w.info)
	}
}

// read reads the file and makes its value the current one, unless the content is unchanged. The caller holds mu,
// except the first time.
func (w *Watcher[T]) read() (changed bool, err error) {
	w.info, w.readAt = nil, time.Now()
	content, info, err := ReadFile(w.o.Path)
	if err != nil {
		return false, err
	}
	w.info = info
	sum := sha256.Sum256(content)
	if sum == w.sum && w.problem == "" {
		return false, nil
	}
	w.sum = sum
	value, err := w.o.Parse(content)
	if err != nil {
		return false, err
	}
	w.current.Store(&value)
	return true, nil
}
