package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

// Files of a folder.
const (
	dataFile = "redis.aof"
	urlFile  = "redis-url"
)

const (
	// saveEvery is the least time between two snapshots, and saveShare that time as a multiple of what
	// the last one took: commands wait for it.
	saveEvery = 2 * time.Second
	saveShare = 20
	// expireEvery is the least time between two looks at TTLs, whose precision it is.
	expireEvery = 10 * time.Millisecond
	// maxData bounds a snapshot: it is held in memory a few times.
	maxData = 256 << 20
	// loadBatch is how many commands are replayed at once.
	loadBatch = 1000
	// callTimeout bounds a snapshot and a batch of commands of the replay.
	callTimeout = time.Minute
	// endMark begins the argument of the last command of a snapshot, with the SHA-256 of what is before it.
	endMark = "tidegate:sha256:"
)

//go:embed dump.lua
var dump string

// folder is where a server keeps its data.
type folder struct {
	dir        string
	log        *slog.Logger
	client     *redis.Client // of the server itself
	unlock     func()
	saved      [sha256.Size]byte // of the last snapshot that was written
	stop       context.CancelFunc
	background sync.WaitGroup
}

// StartIn starts a server that keeps its data in dir, which is created if it does not exist: it loads
// the last snapshot, and saves one every few seconds and at Close. What a killed process has
// changed since its last snapshot is lost. The file redis-url in dir has the URL of the running server; port
// and password stay the same as long as the port is free. Problems of saving go to log.
//
// Errors: another process uses dir; the snapshot is damaged, which is left as it is.
func StartIn(ctx context.Context, dir string, log *slog.Logger) (_ *Server, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	f := &folder{dir: dir, log: log, stop: func() {}}
	if f.unlock, err = lock(dir); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	var s *Server
	defer func() {
		if err == nil {
			return
		}
		if s != nil {
			s.redis.Close()
		}
		if f.client != nil {
			_ = f.client.Close()
		}
		f.unlock()
	}()
	commands, err := f.read()
	if err != nil {
		return nil, err
	}
	address, password := f.last()
	if s, err = startAt(address, password); err != nil && address != "" {
		s, err = startAt("", password)
	}
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	options.ReadTimeout, options.WriteTimeout, options.MaxRetries, options.DisableIdentity = callTimeout, callTimeout, -1, true
	f.client = redis.NewClient(options)
	if err = f.replay(ctx, commands); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{".gitignore": "*\n", urlFile: s.URL() + "\n"} {
		if err = f.write(name, []byte(content)); err != nil {
			return nil, err
		}
	}
	s.folder = f
	saving, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.background.Go(func() { f.keepSaving(saving) })
	f.background.Go(func() { s.expire(saving) })
	return s, nil
}

// URLIn returns the URL of the last server of a folder, "" if there was none.
func URLIn(dir string) string {
	content, err := os.ReadFile(filepath.Join(dir, urlFile))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(content))
}

// last returns address and password of the last server of the folder.
func (f *folder) last() (address, password string) {
	u, err := url.Parse(URLIn(f.dir))
	if err != nil || u.Hostname() != "127.0.0.1" {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.Host, password
}

// keepSaving saves snapshots until ctx ends.
func (f *folder) keepSaving(ctx context.Context) {
	pause, problem := saveEvery, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began, now := time.Now(), ""
		if err := f.save(); err != nil {
			now = err.Error()
		}
		if now != problem && now != "" {
			f.log.ErrorContext(ctx, "the embedded Redis cannot be saved", "error", now)
		}
		problem, pause = now, max(saveEvery, saveShare*time.Since(began))
	}
}

// expire lets TTLs follow the clock until ctx ends. With ClockTTL each command would sort all keys.
func (s *Server) expire(ctx context.Context) {
	last, pause := time.Now(), expireEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		now := time.Now()
		s.redis.FastForward(now.Sub(last))
		last, pause = now, max(expireEvery, saveShare*time.Since(now))
	}
}

// close saves a last time and releases the folder.
func (f *folder) close() error {
	f.stop()
	f.background.Wait()
	err := f.save()
	if err != nil {
		err = fmt.Errorf("%w; jobs since the last snapshot are lost", err)
	}
	err = errors.Join(err, f.client.Close())
	f.unlock()
	return err
}

// save writes a snapshot, if it differs from the last: commands in Redis's own protocol that
// restore the data, so that "redis-cli --pipe" takes them to another Redis.
func (f *folder) save() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	commands, err := f.client.Eval(ctx, dump, nil).Slice()
	if err != nil {
		return fmt.Errorf("embedded: take a snapshot: %w", err)
	}
	var b bytes.Buffer
	for _, c := range commands {
		args, _ := c.([]any)
		appendCommand(&b, args...)
		if b.Len() > maxData {
			return fmt.Errorf("embedded: the data is larger than %d MB; set REDIS_URL to a Redis server", maxData>>20)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	if sum == f.saved {
		return nil
	}
	appendCommand(&b, "ECHO", endMark+hex.EncodeToString(sum[:]))
	if err := f.write(dataFile, b.Bytes()); err != nil {
		return err
	}
	f.saved = sum
	return nil
}

func appendCommand(b *bytes.Buffer, args ...any) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, a := range args {
		text, _ := a.(string)
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(text), text)
	}
}

// write replaces a file of the folder: a crash leaves the old one or the new one.
func (f *folder) write(name string, content []byte) error {
	path := filepath.Join(f.dir, name)
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

// read returns the commands of the last snapshot.
func (f *folder) read() (commands [][]any, err error) {
	path := filepath.Join(f.dir, dataFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	rest := content
	for len(rest) > 0 {
		before := len(content) - len(rest)
		args, after, ok := cutCommand(rest)
		if !ok {
			break
		}
		if len(args) == 2 && args[0] == "ECHO" && len(after) == 0 {
			if sum := sha256.Sum256(content[:before]); args[1] == endMark+hex.EncodeToString(sum[:]) {
				f.saved = sum
				return commands, nil
			}
		}
		commands, rest = append(commands, args), after
	}
	return nil, fmt.Errorf("embedded: the snapshot %s is damaged, and left as it is: restore it from a copy, or move it away to start without its jobs", path)
}

// cutCommand reads the first command of a snapshot.
func cutCommand(in []byte) (args []any, rest []byte, ok bool) {
	n, rest, ok := cutNumber(in, '*')
	for range n {
		var size int
		if size, rest, ok = cutNumber(rest, '$'); !ok || size+2 > len(rest) {
			return nil, nil, false
		}
		args, rest = append(args, string(rest[:size])), rest[size+2:]
	}
	return args, rest, ok && n > 0
}

// cutNumber reads a line such as "*3": a number that is no more than what follows can hold.
func cutNumber(in []byte, kind byte) (n int, rest []byte, ok bool) {
	line, rest, found := bytes.Cut(in, []byte("\r\n"))
	if !found || len(line) < 2 || line[0] != kind {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, rest, err == nil && n >= 0 && n <= len(rest)
}

// replay runs the commands of a snapshot.
func (f *folder) replay(ctx context.Context, commands [][]any) error {
	for len(commands) > 0 {
		n := min(loadBatch, len(commands))
		_, err := redispipe.Run(ctx, f.client, func(p redis.Pipeliner) error {
			for _, args := range commands[:n] {
				p.Do(ctx, args...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("embedded: load %s: %w", filepath.Join(f.dir, dataFile), err)
		}
		commands = commands[n:]
	}
	return nil
}
