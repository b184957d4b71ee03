// Package notice is what alerts and its notifiers share: a [Notice] is a message as data,
// a [Notifier] renders and sends it. Each notifier has a folder beside this one.
//
// A notifier for another service implements [Notifier]. It renders Title, Summary and Body
// of a notice, which hold text of others, in the service's markup; [Text.Plain]
// does so for services without markup. It is registered in alerts.Options.Notifiers. If the
// service can change what was sent, the notifier implements [Editor] too.
package notice

import (
	"context"
	"time"
)

// Kind is what a notice reports.
type Kind string

// The kinds of notices. Those of one incident share a Dedup.
const (
	// Opened starts a thread, and is updated as long as the incident lasts.
	Opened Kind = "opened"
	// Page asks on-call to act.
	Page Kind = "page"
	// Recovered ends an incident.
	Recovered Kind = "recovered"
	// Single reports one thing, once.
	Single Kind = "single"
	// Resolved ends a Single.
	Resolved Kind = "resolved"
)

// Reply reports whether notices of the kind belong to an earlier one.
func (k Kind) Reply() bool { return k != Opened && k != Single }

// Ends reports whether notices of the kind end an alarm.
func (k Kind) Ends() bool { return k == Recovered || k == Resolved }

// Notice is a message for people, as data.
type Notice struct {
	Kind Kind
	// Critical is true for what is urgent; the rest is a warning.
	Critical bool
	// ID is the same whenever this notice is sent again, Dedup for all notices of an
	// incident.
	ID, Dedup string
	// At is when the reported event began, Now when the notice was made.
	At, Now time.Time
	// Subject is a breaker, a destination or empty; Class says what happened to it:
	// "circuit breaker open".
	Subject, Class string
	// Icon and Title are the first line, Summary all that matters in one line. A Title that is about
	// a destination begins with its name.
	Icon           string
	Title, Summary Text
	// Body follows the title.
	Body []Block
	// Link is the address of a page of the dashboard, "" for none.
	Link string
	// Footer names the incident, in small letters.
	Footer Text
	// Attention is set if everybody, not only readers of the thread, is to see a reply.
	Attention bool
}

// Block is a part of a body; exactly one of its fields is set.
type Block struct {
	Facts     []Fact
	Paragraph Text // of our own words and names
	Lines     *Lines
	Commands  *Commands
}

// Fact is a value under its name. One without a value is left out.
type Fact struct {
	Name  string
	Value Text
}

// Lines are lines, followed by a list.
type Lines struct{ Lines, Bullets []Text }

// Commands are what to type, under a title, which may be empty.
type Commands struct {
	Title string
	List  []Command
}

// Command is a line to type, and what for.
type Command struct{ What, Line string }

// Root is where the first notice of a thread is. It is kept between notices.
type Root struct {
	// Ref is the notifier's reference to the message, Shown a digest of the content.
	Ref   string `json:"ref,omitempty"`
	Shown string `json:"shown,omitempty"`
}

// CallTimeout bounds one call of a notifier.
const CallTimeout = 10 * time.Second

// Notifier notifies people through one service. Its methods are called concurrently.
// Their errors are of type [*Error] where the service or the way to it failed.
type Notifier interface {
	// Name is unique and constant, [a-z]+: it is part of keys in Redis.
	Name() string
	// Label is the name in messages.
	Label() string
	// Pager reports whether the service raises alarms and resolves them, rather than
	// showing messages that people read. A pager gets no Opened, and Single only if there is
	// no other notifier or if it is about Redis.
	Pager() bool
	// Send sends a notice. If it starts a thread, Send notes where it is in root; replies
	// follow there if they can. It takes at most two calls of at most [CallTimeout].
	Send(ctx context.Context, n *Notice, root *Root) error
	// Close releases idle connections.
	Close()
}

// Editor is implemented by notifiers that can change what they sent.
type Editor interface {
	// Update shows n in place of the root, if that shows anything else.
	Update(ctx context.Context, n *Notice, root *Root) error
}

// Problem is something that keeps alerts from being delivered, or may.
type Problem struct {
	// Of is the notifier's label.
	Of string
	// Text is what is wrong and what to do, without secrets.
	Text string
	// Fatal is true if nothing can be delivered until it is corrected.
	Fatal bool
}

// Checker is implemented by notifiers that can check their settings without sending.
type Checker interface {
	Check(ctx context.Context) []Problem
}

// Delivery is one thing that was sent, or could not be: what metrics count.
type Delivery struct {
	// Receiver is slack, webhook, pagerduty or the name of your own notifier; Kind is message, update, trigger or
	// resolve.
	Receiver, Kind string
	// Err is nil if it has arrived. If a response was lost, it may have arrived all the same.
	Err error
}

// Observer observes deliveries. It is called concurrently and must return quickly. nil
// observes nothing.
type Observer func(Delivery)

// Observe reports a delivery.
func (o Observer) Observe(receiver, kind string, err error) {
	if o != nil {
		o(Delivery{receiver, kind, err})
	}
}

// Error is what went wrong between a notifier and its service. Neither it nor its Problem
// holds a secret.
type Error struct {
	Op string // "post to Slack"
	// Problem is what is wrong and what to do.
	Problem string
	// Limited is true if the service refused the call because of its limit, for RetryAfter
	// if that is known.
	Limited    bool
	RetryAfter time.Duration
	// Permanent is true if an operator has to change something.
	Permanent bool
	// Err is the cause. It may quote an address that is a secret.
	Err error
}

// Error has the operation and the problem.
func (e *Error) Error() string { return e.Op + ": " + e.Problem }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
