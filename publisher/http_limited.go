package publisher

import (
	"context"
	"time"
)

// Times of a rate-limited answer, whose header says all that the breaker needs.
const (
	// bodyGrace is how long the report waits for a body that comes with the header: alerts
	// quote it.
	bodyGrace = 10 * time.Millisecond
	// limitedBodyFor bounds the reading of the body. What has arrived by then is kept.
	limitedBodyFor = time.Second
)

// readLimited reads the body of a rate-limited answer, passes it to keep, and reports the
// answer: when the body is there, or after bodyGrace without it. cut ends the reading.
func readLimited(ctx context.Context, limited error, read func() []byte, keep func([]byte), cut func()) {
	report := signalsOf(ctx).limited
	end := time.AfterFunc(limitedBodyFor, cut)
	defer end.Stop()
	reported := make(chan struct{})
	early := time.AfterFunc(bodyGrace, func() {
		defer close(reported)
		report(limited)
	})
	body := read()
	if early.Stop() {
		keep(body)
		report(limited)
		return
	}
	<-reported // the report reads what keep writes
	keep(body)
}
