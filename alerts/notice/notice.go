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
	// Reopened follows a Recovered that was premature.
	Reopened Kind = "reopened"
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

// Severity is how urgent a notice is.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Notice is a message for people, as data.
type Notice struct {
	Kind     Kind
	Severity Severity
	// ID is the same whenever this notice is sent again, Dedup for all notices of an
	// incident.
	ID, Dedup string
	// At is when what it reports began, Now when the notice was made.
	At, Now time.Time
	// Subject is a breaker, a destination or empty; Class says what happened to it:
	// "circuit breaker open".
	Subject, Class string
	// Title is the first line, Summary all that matters in one line.
	Title   Title
	Summary Text
	// Body follows the title. If it is empty, Short does.
	Body []Block
	// Short is the body for services that can neither update a message nor reply to one,
	// nil if that is Body too.
	Short *Short
	// Link is the address of a page of the dashboard, "" for none.
	Link string
	// Footer names the incident, in small letters.
	Footer Text
	// Details are facts for programs.
	Details map[string]any
	// Attention is set if everybody, not only readers of the thread, is to see a reply.
	Attention bool
}

// Title is a headline: an icon, the name of the subject, which may be empty, and the rest.
type Title struct {
	Icon, Name string
	Rest       Text
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

// Short is a body of one line and some commands.
type Short struct {
	Line     Text
	Commands []Command
}

// Root is where the first notice of a thread is. It is kept between notices.
type Root struct {
	// Ref is the notifier's reference to the message, Shown a digest of what it shows.
	Ref   string `json:"ref,omitempty"`
	Shown string `json:"shown,omitempty"`
	// Hold, if set, makes sure that no other process sends to the thread for the next 15
	// seconds. A notifier calls it before each call but the first.
	Hold func(context.Context) error `json:"-"`
}

// Extend calls Hold.
func (r *Root) Extend(ctx context.Context) error {
	if r.Hold == nil {
		return nil
	}
	return r.Hold(ctx)
}

// Notifier notifies people through one service. Its methods are called concurrently.
// Their errors are of type [*Error] where the service or the way to it failed.
type Notifier interface {
	// Name is unique and constant, [a-z]+: it is part of keys in Redis.
	Name() string
	// Label is the name in messages.
	Label() string
	// Pager reports whether the service raises alarms and resolves them, rather than
	// showing messages that people read. A pager gets no Opened, no Reopened and no Page of
	// an incident that is over, and Single only if there is no other notifier or if it is about Redis.
	Pager() bool
	// Send sends a notice. If it starts a thread, Send notes where it is in root; replies
	// follow there if they can. It takes at most two calls of at most [CallTimeout].
	Send(ctx context.Context, n *Notice, root *Root) error
	// Close releases idle connections.
	Close()
}

// Editor is implemented by notifiers that can see and change what they sent.
type Editor interface {
	// Update shows n in place of the root. It returns whether it had to.
	Update(ctx context.Context, n *Notice, root *Root) (bool, error)
	// Find looks for a notice that may have been sent at since or later, and notes where it
	// is if it starts a thread. It is false also if the service does not allow to look.
	Find(ctx context.Context, n *Notice, root *Root, since time.Time) (bool, error)
	// SendOnce sends n unless another process has, which may happen at the same time.
	SendOnce(ctx context.Context, n *Notice, root *Root, since time.Time) error
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

// Sample is a notice for a test.
type Sample struct {
	What   string
	Notice *Notice
	Update bool // it updates the first one
}

// Try makes one step of a test and returns whether it worked.
type Try func(of, what string, f func() error) bool

// Tester is implemented by notifiers with a test of their own.
type Tester interface {
	Test(ctx context.Context, samples []Sample, try Try)
}

// Test sends samples one by one. If the first one fails, it does not go on. It panics if try or to is nil.
func Test(ctx context.Context, label string, samples []Sample, try Try, to Notifier) {
	if try == nil || to == nil {
		panic("notice: test: the function try or the notifier is nil; pass both")
	}
	editor, edits := to.(Editor)
	var root Root
	for i, s := range samples {
		if s.Update && !edits {
			continue
		}
		worked := try(label, s.What, func() error {
			if s.Update {
				_, err := editor.Update(ctx, s.Notice, &root)
				return err
			}
			at := &root
			if i > 0 && !s.Notice.Kind.Reply() {
				at = &Root{} // a thread of its own
			}
			return to.Send(ctx, s.Notice, at)
		})
		if i == 0 && !worked {
			return
		}
	}
}

// Delivery is one thing that was sent, or could not be.
type Delivery struct {
	// Receiver is ReceiverSlack, ReceiverWebhook, ReceiverPagerDuty or that of a notifier of
	// your own; Kind is KindMessage, KindUpdate, KindTrigger or KindResolve.
	Receiver, Kind string
	// Err is nil if it has arrived. If an answer was lost, it may have arrived all the same.
	Err error
}

// The receivers of a Delivery.
const (
	ReceiverSlack     = "slack"
	ReceiverWebhook   = "webhook"
	ReceiverPagerDuty = "pagerduty"
)

// The kinds of a Delivery: a message and the update of one, the trigger and the resolve of
// an alarm.
const (
	KindMessage = "message"
	KindUpdate  = "update"
	KindTrigger = "trigger"
	KindResolve = "resolve"
)

// Observer observes deliveries. It is called concurrently and must return quickly. nil
// observes nothing.
type Observer func(Delivery)

// Observe reports a delivery.
func (o Observer) Observe(receiver, kind string, err error) {
	if o != nil {
		o(Delivery{Receiver: receiver, Kind: kind, Err: err})
	}
}
