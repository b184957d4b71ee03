package breaker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// bubble is a Redis whose connections are pipes and whose clock is the bubble's, so
// that a minute passes as soon as all goroutines wait.
type bubble struct {
	redis *miniredis.Miniredis
	rdb   redis.UniversalClient
	mu    sync.Mutex
	asked []asked
}

// asked is a command and when it was sent, from the bubble's beginning.
type asked struct {
	at      time.Duration
	command string
}

// inBubble runs a test with time of its own.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{redis: miniredis.NewMiniRedis()}
		b.redis.ClockTTL(true)
		began := time.Now()
		b.rdb = b.client(func(c net.Conn) net.Conn {
			return &tap{Conn: c, tell: func(command string) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.asked = append(b.asked, asked{time.Since(began), command})
			}}
		})
		for _, script := range []*script{snapshotScript, registerScript, doneScript} {
			if err := script.Load(t.Context(), b.rdb).Err(); err != nil {
				t.Fatal(err)
			}
		}
		test(t, b)
		if err := b.rdb.Close(); err != nil {
			t.Error(err)
		}
		b.redis.Close()
	})
}

func (b *bubble) client(over func(net.Conn) net.Conn) redis.UniversalClient {
	return redis.NewClient(&redis.Options{
		Addr: "bubble", ContextTimeoutEnabled: true, MaxRetries: -1, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := b.redis.Dial()
			if err != nil {
				return nil, err
			}
			return over(newQueued(c)), nil
		},
	})
}

// queued buffers what is written, as a socket does: both ends of a pipe that write would wait for each other.
type queued struct {
	net.Conn
	out   chan []byte
	close func() error
	done  chan struct{}
}

func newQueued(c net.Conn) *queued {
	q := &queued{Conn: c, out: make(chan []byte, 64), done: make(chan struct{})}
	q.close = sync.OnceValue(func() error {
		close(q.done)
		return c.Close()
	})
	go func() {
		for {
			select {
			case p := <-q.out:
				if _, err := c.Write(p); err != nil {
					return
				}
			case <-q.done:
				return
			}
		}
	}()
	return q
}

func (q *queued) Write(p []byte) (int, error) {
	select {
	case q.out <- slices.Clone(p):
		return len(p), nil
	case <-q.done:
		return 0, net.ErrClosed
	}
}

func (q *queued) Close() error { return q.close() }

// tap tells what is sent over a connection.
type tap struct {
	net.Conn
	tell func(command string)
}

func (c *tap) Write(p []byte) (int, error) {
	switch text := strings.ToLower(string(p)); {
	case strings.Contains(text, snapshotScript.Hash()), strings.Contains(text, "\r\nmget\r\n"):
		c.tell("snapshot")
	case strings.Contains(text, registerScript.Hash()):
		c.tell("register")
	case strings.Contains(text, doneScript.Hash()):
		c.tell("advance")
	case strings.Contains(text, "\r\nsubscribe\r\n"):
		c.tell("subscribe")
	case strings.Contains(text, "\r\nping\r\n"):
		c.tell("ping")
	}
	return c.Conn.Write(p)
}

// at are the whole seconds in which a command was sent from then on, later than
// since and up to until.
func (b *bubble) at(command string, since, until time.Duration) (seconds []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.asked {
		if a.command == command && a.at > since && a.at <= until {
			seconds = append(seconds, int(a.at/time.Second))
		}
	}
	return seconds
}

// pass lets time go by, until all goroutines wait again.
func passTime(d time.Duration) {
	wait(context.Background(), d)
	synctest.Wait()
}

func equal(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: in seconds %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: in seconds %v, want %v", what, got, want)
			return
		}
	}
}

func startInBubble(t *testing.T, b *bubble, o Options) *Breaker {
	t.Helper()
	o.Destination = "api"
	br, err := New(t.Context(), b.rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return br
}

func endInBubble(t *testing.T, b *Breaker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatAnInstanceDoesByItself(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		br := startInBubble(t, b, Options{})
		defer endInBubble(t, br)
		const whole = 80 * time.Second
		passTime(whole + 500*time.Millisecond)
		var everySecond []int
		for s := 1; s <= 80; s++ {
			everySecond = append(everySecond, s)
		}
		equal(t, "reads", b.at("snapshot", 0, whole), everySecond...)
		equal(t, "registrations", b.at("register", 0, whole), 10, 20, 30, 40, 50, 60, 70, 80)
		// Nothing is said on the channel: it is asked whether it lives, and answers.
		equal(t, "pings", b.at("ping", 0, whole), 11, 22, 33, 44, 55, 66, 77)
		equal(t, "subscriptions", b.at("subscribe", 0, whole))
		equal(t, "looks at the hash", b.at("advance", 0, whole))
		if n := len(b.at("snapshot", -1, 0)); n != 2 { // that of New, and that of the subscription
			t.Errorf("%d reads at the start, want 2", n)
		}
	})
}

func TestOpenEndsAtItsInstant(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		br := startInBubble(t, b, Options{FailureThreshold: 1, Cooldown: 42 * time.Second, MaxInFlight: 1, NoEarlyTests: true})
		defer endInBubble(t, br)
		other := startInBubble(t, b, Options{FailureThreshold: 1, Cooldown: 42 * time.Second, MaxInFlight: 1, NoEarlyTests: true})
		defer endInBubble(t, other)
		began := time.Now()
		report(t, br.Key("k"), RateLimited(0))
		report(t, br, RateLimited(0))
		synctest.Wait()
		for _, b := range []*Breaker{br, other, br.Key("k"), other.Key("k")} {
			if left := b.View().OpenUntil.Sub(began); left < 42*time.Second || left > 42*time.Second+time.Millisecond {
				t.Errorf("%s is open for %v, want 42s", b.Name(), left)
			}
		}
		until := other.View().OpenUntil
		passTime(time.Until(until) - time.Nanosecond)
		for _, b := range []*Breaker{br, other, other.Key("k")} {
			var open *OpenError
			if _, err := b.Allow(t.Context()); !errors.As(err, &open) || open.RetryAfter > time.Millisecond {
				t.Errorf("a nanosecond before its end: %v", err)
			}
			if b.View().State != Open {
				t.Errorf("a nanosecond before its end: %v", b.View().State)
			}
		}
		passTime(time.Nanosecond)
		if other.View().State != HalfOpen {
			t.Errorf("at its end: %v", other.View().State)
		}
		passTime(time.Millisecond) // Redis's instants are whole milliseconds
		p, err := other.Allow(t.Context())
		if err != nil || !p.Probe() {
			t.Errorf("at its end: %+v, %v", p, err)
		}
		if time.Since(began) > 42*time.Second+3*time.Millisecond {
			t.Errorf("the probe was given after %v", time.Since(began))
		}
	})
}

// A connection that has died without a word is renewed, and what was missed is seen
// with the next read.
func TestDeadSubscriptionIsRenewedInTime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		var heard recorder
		client := &mute{UniversalClient: b.rdb}
		client.ears = b.client(func(c net.Conn) net.Conn {
			d := &deafConn{Conn: c}
			client.last.Store(d)
			return d
		})
		defer client.ears.Close()
		br, err := New(t.Context(), client, Options{Destination: "api", OnEvent: heard.add})
		if err != nil {
			t.Fatal(err)
		}
		defer endInBubble(t, br)
		synctest.Wait()
		subscription := br.link.pubsub.Load()
		passTime(500 * time.Millisecond) // beside the reads
		client.last.Load().deaf.Store(true)
		passTime(5 * time.Second)
		if _, err := DefaultNamespace.Trip(t.Context(), b.rdb, "api", TripOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if br.View().State != Closed {
			t.Fatal("it hears, and should not")
		}
		passTime(time.Second)
		if br.View().State != Open || len(heard.all()) != 1 {
			t.Errorf("a second later: %v, events %+v", br.View().State, heard.all())
		}
		passTime(23*time.Second + 900*time.Millisecond)
		if br.link.pubsub.Load() != subscription {
			t.Error("the subscription was renewed before it was silent for 30s")
		}
		passTime(2 * time.Second)
		if br.link.pubsub.Load() == subscription {
			t.Error("the subscription was not renewed after 30s of silence")
		}
		if _, err := DefaultNamespace.Reset(t.Context(), b.rdb, "api", ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if br.View().State != Closed {
			t.Error("the new subscription hears nothing")
		}
	})
}

// mute is a client whose subscriptions have connections of their own, which can be
// made to hear nothing any more, not even the answer to a ping.
type mute struct {
	redis.UniversalClient
	ears redis.UniversalClient
	last atomic.Pointer[deafConn]
}

func (m *mute) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return m.ears.Subscribe(ctx, channels...)
}

// deafConn loses what is said to it.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// What a loss took, and others wrote over at once, is found within a minute and a
// bit.
func TestAllIsReadOnceAMinute(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		br := startInBubble(t, b, Options{})
		defer endInBubble(t, br)
		for i := range 40 { // many make registrations rare
			other, err := New(t.Context(), b.rdb, Options{Destination: fmt.Sprintf("other-%d", i)})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			defer endInBubble(t, other)
		}
		for i := range 30 { // more than looks at hashes find one by one
			if _, err := DefaultNamespace.Trip(t.Context(), b.rdb, fmt.Sprintf("api/k%04d", i), TripOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		passTime(1500 * time.Millisecond)
		for i := range 29 {
			forget(t, b.rdb, "api", fmt.Sprintf("k%04d", i))
		}
		if _, err := DefaultNamespace.Trip(t.Context(), b.rdb, "api/other", TripOptions{}); err != nil {
			t.Fatal(err)
		}
		passTime(70 * time.Second)
		if n, other := openKeys(br), br.Key("other").View().State; n != 2 || other != Open {
			t.Errorf("%d keys are OPEN, want 2; other is %v", n, other)
		}
	})
}

// An instance that does not hear that calls are counted tells what it has in flight
// with its next read.
func TestJoinsAreToldByThemselves(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		o := Options{MaxInFlight: 2}
		br := startInBubble(t, b, o)
		defer endInBubble(t, br)
		idle := startInBubble(t, b, o)
		defer endInBubble(t, idle)
		report(t, br, told(3, 10*time.Minute, 100))
		synctest.Wait()
		for i := range 3 { // the idle one has told that it has none
			if p, err := br.Allow(t.Context()); err != nil || !p.Metered() {
				t.Fatalf("call %d: %+v, %v", i, p, err)
			}
		}
		var open *OpenError
		if _, err := br.Allow(t.Context()); !errors.As(err, &open) || open.Cause != CauseBudget {
			t.Errorf("the fourth: %v", err)
		}
	})
}
