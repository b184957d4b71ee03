package httpdest

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/call/progress"
)

// Times of a rate-limited response, whose header is all that the breaker needs. Tests set longer
// ones.
var (
	// bodyGrace is how long the report waits for the body, which alerts quote.
	bodyGrace = 10 * time.Millisecond
	// limitedBodyFor bounds the read of the body. What was received by then is kept.
	limitedBodyFor = time.Second
)

// readLimited reads the body of a rate-limited response, passes it to keep, and reports the
// response: after the body, or after bodyGrace without it. cut ends the read.
func readLimited(ctx context.Context, limited error, read func() []byte, keep func([]byte), cut func()) {
	report := progress.Of(ctx).Limited
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
