package embedded

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/text"
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
	content, _, err := text.ReadFile(filepath.Join(dir, urlFile), 4096)
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

// inUse is the error of a folder that another process has locked.
func inUse(dir string) error {
	return fmt.Errorf("another process uses %s: stop it, or start in another folder", dir)
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
	var b []byte
	for _, c := range commands {
		args, _ := c.([]any)
		b = append(b, command(args...)...)
		if len(b) > maxData {
			return fmt.Errorf("embedded: the data is larger than %d MB; set REDIS_URL to a Redis server", maxData>>20)
		}
	}
	b = append(b, seal(b)...)
	sum := sha256.Sum256(b)
	if sum == f.saved {
		return nil
	}
	if err := f.write(dataFile, b); err != nil {
		return err
	}
	f.saved = sum
	return nil
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

// read returns the commands of the last snapshot, without its seal.
func (f *folder) read() ([]byte, error) {
	path := filepath.Join(f.dir, dataFile)
	content, _, err := text.ReadFile(path, 1<<40)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	commands := content[:max(0, len(content)-len(seal(nil)))]
	if !bytes.Equal(content[len(commands):], seal(commands)) {
		return nil, fmt.Errorf("embedded: the snapshot %s is damaged, and left as it is: restore it from a copy, or move it away to start without its jobs", path)
	}
	return commands, nil
}

// seal is the command at the end of a snapshot, with a checksum of the others.
func seal(commands []byte) []byte {
	return command("ECHO", fmt.Sprintf("tidegate:sha256:%x", sha256.Sum256(commands)))
}

// command encodes a command in Redis's protocol.
func command(args ...any) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		text, _ := a.(string)
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(text), text)
	}
	return b
}

// replay runs the commands of a snapshot.
func (f *folder) replay(ctx context.Context, commands []byte) error {
	in := bufio.NewReader(bytes.NewReader(commands))
	for more := true; more; {
		_, err := redispipe.Run(ctx, f.client, func(p redis.Pipeliner) error {
			for range loadBatch {
				read, err := server.ParseReply(in)
				if more = !errors.Is(err, io.EOF); !more {
					return nil
				}
				if err != nil {
					return err
				}
				args, _ := read.([]any)
				p.Do(ctx, args...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("embedded: load %s: %w", filepath.Join(f.dir, dataFile), err)
		}
	}
	return nil
}
