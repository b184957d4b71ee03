package alerts

// Delivery is one thing that was sent to people, or could not be.
type Delivery struct {
	// Receiver is ReceiverSlack, ReceiverWebhook or ReceiverPagerDuty.
	Receiver string
	// Kind is KindMessage, KindUpdate, KindTrigger or KindResolve.
	Kind string
	// Err is nil if it has arrived. Of one whose answer was lost nobody knows.
	Err error
}

// The receivers of a Delivery.
const (
	ReceiverSlack     = "slack"
	ReceiverWebhook   = "webhook"
	ReceiverPagerDuty = "pagerduty"
)

// The kinds of a Delivery: a message and the update of one in Slack, the trigger and the
// resolve of PagerDuty.
const (
	KindMessage = "message"
	KindUpdate  = "update"
	KindTrigger = pagerTrigger
	KindResolve = pagerResolve
)

// observer is told of deliveries; nil is nobody.
type observer func(Delivery)

func (o observer) tell(receiver, kind string, err error) {
	if o != nil {
		o(Delivery{Receiver: receiver, Kind: kind, Err: err})
	}
}
