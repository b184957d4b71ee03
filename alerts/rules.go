package alerts

// rule holds the words of one kind of alerts. What finds it is in triggers.go and scan.go.
//
// Words are lines of text: *bold*, `code` and {values}. A line with a value that is not known is
// left out. In a body, a line is a paragraph, but for "= name | fact", "> line", "- bullet",
// "@list of bullets", "# title of commands", and "$ command" or "$ what for: | command". Blank
// lines separate blocks.
type rule struct {
	// Of a notice that belongs to no incident.
	class    string
	icon     string
	critical bool
	fleet    bool   // it is of no destination
	test     string // its name in the report of a test
	// metrics is the alert of deploy/prometheus/rules.yml with the same condition, "" for none.
	metrics string
	// title follows the destination's name in the title, summary the title in the summary.
	title, summary string
	body           string

	// Of an incident: the title once it is over, and that of the page.
	over, page string
	// happens is what happens by itself, tried what has; advice is what to do, act how.
	happens, tried, advice, act string
}

// The kinds of notices that belong to no incident.
const (
	redisLost    = "redis_lost"
	redisBack    = "redis_back"
	unreached    = "unreached"
	unservedJobs = "unserved"
	flows        = "flows" // of both: jobs run again, or there are none
)

// The kinds of incidents.
const (
	limited       = "limited"
	byHand        = "by_hand"
	tokenRefused  = "token_refused"
	noToken       = "no_token"
	down          = "down"
	limitedKeys   = "keys"
	refusedOfKeys = "refused_keys"
	waitingKeys   = "waiting_keys" // of refusedOfKeys: nothing but the token server holds them
)

// Icons.
const (
	iconLimited = "🔴"
	iconTesting = "🟡"
	iconGood    = "🟢"
	iconByHand  = "⏸️"
	iconPage    = "🚨"
)

// What a Redis that is away, full or refuses the login means for the jobs.
const (
	notFetched   = "*What happens now:* calls in flight finish, and their outcomes are recorded once Redis is back. Nothing new is fetched, and an open breaker stays open until its time. Jobs cannot be enqueued. "
	redisAway    = notFetched + "The worker continues by itself."
	redisRefuses = notFetched + "*Act:* the worker does not continue by itself: set the new user and password in REDIS_URL and restart the workers."
	redisOOM     = "*What happens now:* jobs still run, and an open breaker stays open until its time. Jobs cannot be enqueued, and heartbeats and statistics are not recorded, so the dashboard and `tidegate stats` may be wrong. *Act:* raise Redis's maxmemory; workers continue by themselves."
)

const (
	paced       = "calls resume slowly: 1, 2, 4 … in flight (slow start)"
	noRetries   = "its jobs wait, and lose no retries"
	keysWait    = "the jobs of these keys wait, and lose no retries; the jobs of other keys continue."
	mayWait     = "- If the jobs may wait, nothing: they run by themselves once a probe succeeds.\n"
	serverFirst = "- If the jobs may wait, nothing: they run once the token server answers.\n- Look at its status page, at OAUTH_TOKEN_URL, and at the way there from the workers.\n"
	triedSoFar  = "*Tried so far:* {tried}.{limit}"
	callAgain   = "$ call again now, limit or not: | tidegate breaker reset {name}\n$ pause its jobs, also after the limit: | tidegate queue pause {name}\n"
	tryAgain    = "$ try the token now: | tidegate breaker reset {name}\n$ pause its jobs: | tidegate queue pause {name}\n"
	ofKey       = "$ try the token of a key now: | tidegate breaker reset {destination}/{key}\n$ give up the jobs of a key: | tidegate cancel --destination {destination} --key {key}\n"
)

// rules are all kinds of alerts. Incidents of a destination page when they have lasted for
// ALERT_OPEN_TOO_LONG, keys where only a person can renew their credentials, or the token server
// was unreachable for as long; what belongs to no incident pages where there is no other notifier,
// Redis always.
var rules = map[string]rule{
	limited: {
		metrics: "TidegateBreakerOpenTooLong",
		icon:    iconLimited, title: " is{still} rate limited{until}",
		page: " has been rate limited for {lasted}",
		happens: "no worker calls {name} before then; " + noRetries + ". Then one call, the probe, tests it. If it succeeds, " + paced +
			". If it is refused, this message says until when.",
		tried: triedSoFar, act: callAgain,
		advice: mayWait + "- {if_expiring}Some jobs expire before then: warn their owners.\n" +
			"- See whether something else uses the same budget: another program, another token of the account, a test.\n" +
			"- If the API's owner says that the limit is gone, reset the breaker. A refused call opens it again.\n" +
			"- If the jobs must not run by themselves later, pause the queue.\n",
	},
	byHand: {
		metrics: "TidegateBreakerOpenTooLong",
		icon:    iconByHand, title: ": opened by hand{until}",
		page:   ": open by hand for {lasted}",
		tried:  "It was opened by hand, so nothing has been tried: no call is made before its time has come, or an operator resets it.{limit}",
		advice: "- Ask the operator whether the reason still holds.\n- If not, reset it: calls resume slowly (slow start).\n", act: callAgain,
	},
	noToken: {
		metrics: "TidegateBreakerOpenTooLong",
		icon:    iconLimited, title: ": token server unreachable since {since}",
		page:    ": token server unreachable for {lasted}",
		happens: noRetries + ". At {until_time} one call asks the token server again.",
		tried:   triedSoFar, advice: serverFirst, act: tryAgain,
	},
	tokenRefused: {
		metrics: "TidegateBreakerOpenTooLong",
		icon:    iconLimited, title: ": token refused since {since}",
		page: ": token refused for {lasted}",
		happens: noRetries + ". At {until_time} one call, the probe, tries the token again. " +
			"*Renew the token of *{name}; the breaker closes when it is accepted.",
		tried: triedSoFar, act: tryAgain,
		advice: "- Renew the token; the breaker closes when it is accepted.\n" +
			"- If the token is right, ask the API's owner why it is refused: the account may be locked.\n",
	},
	down: {
		metrics: "TidegateBreakerOpenTooLong",
		icon:    iconLimited, title: ": down since {since}",
		page: ": down for {lasted}",
		happens: "no worker calls {name}; " + noRetries + ". At {until_time} one call, the probe, tests it, and further ones later, until one succeeds: " +
			"nobody knows when. Then " + paced + ".",
		tried: triedSoFar, act: callAgain,
		advice: mayWait + "- Look at the last answers and at the API's status page. 403 to every call can be a ban: ask its owner.\n" +
			"- If the API is up again, reset the breaker. A call that fails in the slow start opens it again.\n",
	},
	limitedKeys: {
		metrics: "TidegateManyKeysLimited",
		icon:    iconLimited, title: ": {keys_limited} rate limited", over: ": no key is rate limited any more, after {lasted}",
		happens: keysWait + " When its time has come, one call tests each key. This message is kept up to date.",
		act:     "$ call again for a key now, limit or not: | tidegate breaker reset {destination}/{key}\n$ pause the jobs of all keys: | tidegate queue pause {destination}\n",
	},
	refusedOfKeys: {
		metrics: "TidegateManyKeysLimited",
		icon:    iconLimited, title: ": {keys_refused}", over: ": all keys have valid tokens again, after {lasted}",
		page:    ": {keys_refused}",
		happens: keysWait + " This message is kept up to date.",
		tried:   "Tidegate cannot renew these tokens by itself. The jobs of these keys wait, and lose no retries; the jobs of other keys continue.",
		advice: "- Let each user sign in again, and put the new token into the destination's file: workers read it by themselves, and the jobs run.\n" +
			"- If a user has left, cancel the jobs of the key.\n" +
			"- If it is most users at once, look at the account of the app: the API's owner may have locked it, or ended the consents.\n",
		act: ofKey,
	},
	waitingKeys: {
		metrics: "TidegateManyKeysLimited",
		icon:    iconLimited, title: ": {keys_refused}", over: ": all keys have valid tokens again, after {lasted}",
		page:    ": {keys_refused}",
		happens: keysWait + " This message is kept up to date.",
		tried:   "No token can be obtained. The jobs wait, and lose no retries; the token server is asked again by itself.{limit}",
		advice:  serverFirst, act: ofKey,
	},

	redisLost: {
		test: "Redis unreachable", metrics: "TidegateRedisDown",
		class: "Redis unreachable", icon: "⚠️", critical: true, fleet: true,
		title: "A worker {cannot}", summary: "worker {by} {cannot} since {since}: {problem}",
		body: `
> *Worker: *{by}
> *Since: *{since}
> *Problem: *{problem}

{act}

# Inspect
$ which Redis it is: | tidegate config check
$ what is missing afterwards, if anything: | tidegate doctor --dry-run`,
	},
	redisBack: {
		test: "Redis back", metrics: "TidegateRedisDown",
		class: "Redis unreachable", icon: iconGood, critical: true, fleet: true,
		title: "Redis is back after {waited}", summary: "worker {by} reaches Redis again after {waited}",
		body: `
> *Worker: *{by}
> *Away: *{since} to {at}

*Now:* jobs are fetched again. Jobs that were in flight when Redis failed may run a second time, under the same ` + "`Idempotency-Key`" + `.

# Inspect
$ what is missing, if anything: | tidegate doctor --dry-run`,
	},
	unreached: {
		test: "destination out of reach", metrics: "TidegateDestinationUnreachable",
		class: "destination out of reach", icon: "⚠️", critical: true,
		title: ": no worker reaches it", summary: ", since {since}: {problem}",
		body: `
> *Since: *{since}
> *Problem: *{problem}

*What happens now:* calls do not leave the workers, so the jobs wait and lose no retries. The workers try again by themselves. Check the URL, DNS, proxy and firewall. A second message says when this is over.

# Inspect
$ tidegate stats --destination {destination}
$ tidegate doctor --dry-run
$ which URL it is: | tidegate config check`,
	},
	unservedJobs: {
		test: "destination without a worker", metrics: "TidegateDestinationUnserved",
		class: "destination without a worker", icon: "⚠️",
		title: ": no worker serves it", summary: "{backlog_tail}",
		body: `
= Jobs waiting | {backlog}
= Served until | {since}

*What happens now:* the jobs wait, and expire if their time comes. Was {destination} renamed, or left out of the workers' settings? A second message says when this is over.

# Inspect and act
$ which destinations workers serve: | tidegate stats
$ start one that serves it: | tidegate worker
$ give its jobs up: | tidegate cancel --destination {destination}`,
	},
	flows: {
		test: "destination back", metrics: "TidegateDestinationUnserved",
		class: "destination without a worker", icon: iconGood,
		title: ": {news}",
		body: `
# Inspect
$ tidegate stats --destination {destination}`,
	},
}

// The bodies of incidents, whatever their kind.
const (
	openBody = `
= Since | {since}
= Until | {until_fact}
= The API asked for | {asked}
= Next test | {next_test}
= Keys that wait | {keys_waiting}
= Keys limited now | {keys_limited_now}
= Incidents of keys | {keys_seen}
= Jobs waiting | {backlog}
= Expire before then | {expiring}
= Failed probes | {failed_probes}

@keys

> *Last answers*{if_answers_of_keys}
> *Why: *{why}
@answers

*Why: *{why_keys}

*What happens now:* {happens}

{hint}

> *What to do*{if_refused}
{advice}

# Inspect and act
` + inspectAndAct

	overFacts = `
= Since | {since}
= Until | {ended}
= Incidents of keys | {keys_seen}
= Wasted calls | {wasted}
= Failed probes | {probes}
= Jobs rescheduled | {rescheduled}
= Backlog now | {backlog_now}
`
	overCommands = `
$ tidegate breaker get {breaker}
$ tidegate breaker incidents {breaker}
$ tidegate breaker list --destination {keys_of}
$ tidegate stats --destination {destination}`

	overBody = overFacts + `
> {learned_only}
> *Why: *{why}
@answers

*Now:* {happens}

# Inspect` + overCommands

	pageBody = `
{tried_macro}

= Since | {since}
= Next try | {next_try}
= Keys that wait | {keys_waiting}
= Jobs waiting | {backlog}
= Expire before then | {expiring_some}

> *Last answer*{if_answers}
@last_answer

> *What to do*
{advice}

` + inspectAndAct

	inspectAndAct = `$ tidegate breaker get {breaker}
$ tidegate breaker incidents {breaker}
$ tidegate list --destination {breaker} --status pending
$ tidegate breaker list --destination {keys_of}
$ tidegate list --destination {keys_of} --key {key} --status pending
{act}`

	recoveryBody = `
= Lasted | {lasted}
= Wasted calls | {wasted}
= Failed probes | {probes}
= Jobs rescheduled | {rescheduled}
= Backlog now | {backlog_now}

*Now:* {happens}`
)
