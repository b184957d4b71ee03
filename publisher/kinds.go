package publisher

import (
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// callKind is what a call came to.
type callKind int

const (
	succeeded        callKind = iota
	accepted                  // the API reports the result
	rateLimited               // by the API
	unauthorized              // the API refused the credentials
	noCredentials             // there are none for the call
	noOwnCredentials          // likewise in this process alone
	failed                    // may be retried
	explicit                  // likewise, by jobs.Fail
	timedOut                  // likewise, at the destination's timeout
	jobTimedOut               // likewise, at the job's own shorter one, without a response
	permanent                 // no retry
	notCalled                 // no retry: the handler made no call
	unreachable               // the call did not leave this process
	jobUnreachable            // likewise, within the job's own shorter timeout
	rescheduled               // the handler asked for a reschedule
	refused                   // a breaker of the handler refused the call
	interrupted               // by a shutdown, or because this process was stopped: the API may have received it
	cancelled                 // by a cancel of the job: likewise
	numKinds
)

// accepts says whether the API took a call: neither its limit nor its health refused it.
type accepts int

const (
	never accepts = iota
	always
	byStatus
)

// kinds says what follows from each callKind: TestKinds names a row that is missing.
var kinds = [numKinds]struct {
	// outcome is the Outcome constant; "" if no call was made.
	outcome string
	called  bool         // a call was made, as far as the kind says it
	unknown bool         // the call says nothing about the API
	trigger jobs.Trigger // of a failure that a policy may retry
	accepts accepts
	// report is what the breaker learns; nil: nothing, the permit is released.
	report func(r callResult, answer *jobs.Response) breaker.Outcome
	// kind and reason are what becomes of the job; decide, if not nil, says more.
	kind   store.Kind
	reason string
	decide func(d *decider, e *ending, o *store.Outcome)
}{
	succeeded:        {outcome: OutcomeSuccess, called: true, accepts: always, report: success, kind: store.KindComplete, decide: (*decider).completed},
	accepted:         {outcome: OutcomeAccepted, called: true, accepts: always, report: success, kind: store.KindAccept, decide: (*decider).afterAccepted},
	rateLimited:      {outcome: OutcomeRateLimited, called: true, report: callResult.limited, kind: store.KindReschedule, reason: ReasonRateLimited, decide: (*decider).afterRefused},
	unauthorized:     {outcome: OutcomeUnauthorized, called: true, report: callResult.unauthorized, kind: store.KindReschedule, reason: ReasonCredentials, decide: (*decider).afterDenial},
	noCredentials:    {outcome: OutcomeUnauthorized, report: callResult.unauthorized, kind: store.KindReschedule, reason: ReasonCredentials, decide: (*decider).afterDenial},
	noOwnCredentials: {outcome: OutcomeUnauthorized, report: neutral, kind: store.KindReschedule, reason: ReasonCredentials, decide: (*decider).afterDenial},
	failed:           {outcome: OutcomeFailure, called: true, trigger: jobs.OnFailure, accepts: byStatus, report: callResult.answered, kind: store.KindRetry, decide: (*decider).afterFailure},
	explicit:         {outcome: OutcomeFailure, called: true, trigger: jobs.OnExplicit, accepts: byStatus, report: callResult.answered, kind: store.KindRetry, decide: (*decider).afterFailure},
	timedOut:         {outcome: OutcomeTimeout, called: true, trigger: jobs.OnTimeout, accepts: byStatus, report: callResult.answered, kind: store.KindRetry, decide: (*decider).afterFailure},
	jobTimedOut:      {outcome: OutcomeTimeout, called: true, trigger: jobs.OnTimeout, report: neutral, kind: store.KindRetry, decide: (*decider).afterFailure},
	permanent:        {outcome: OutcomePermanent, called: true, accepts: byStatus, report: callResult.answered, kind: store.KindFail},
	notCalled:        {report: neutral, kind: store.KindFail},
	unreachable:      {outcome: OutcomeUnreachable, called: true, unknown: true, kind: store.KindReschedule, reason: ReasonUnreachable, decide: (*decider).afterUnreachable},
	jobUnreachable:   {outcome: OutcomeUnreachable, called: true, unknown: true, kind: store.KindReschedule, reason: ReasonUnreachable, decide: (*decider).afterUnreachable},
	rescheduled:      {outcome: OutcomeRescheduled, called: true, accepts: byStatus, report: callResult.answered, kind: store.KindReschedule, reason: ReasonPublisher, decide: (*decider).afterReschedule},
	refused:          {report: neutral, kind: store.KindReschedule, reason: ReasonBreaker, decide: (*decider).afterRefusal},
	interrupted:      {outcome: OutcomeInterrupted, called: true, unknown: true, report: neutral, kind: store.KindRequeue, decide: withoutError},
	cancelled:        {outcome: OutcomeCancelled, called: true, unknown: true, report: neutral, kind: store.KindCancel, decide: withoutError},
}

func success(callResult, *jobs.Response) breaker.Outcome { return breaker.Success() }

func neutral(callResult, *jobs.Response) breaker.Outcome { return breaker.Neutral() }
