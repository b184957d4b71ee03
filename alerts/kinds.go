package alerts

// The kinds of incidents. Each has a file of that name in messages. They page when they have lasted for
// ALERT_OPEN_TOO_LONG, keys where only a person can renew their credentials, or the token server was unreachable for as
// long. What finds them is in triggers.go and scan.go.
const (
	limited       = "limited"
	byHand        = "by_hand"
	tokenRefused  = "token_refused"
	noToken       = "no_token"
	down          = "down"
	limitedKeys   = "keys"
	refusedOfKeys = "refused_keys"
)

// The kinds of notices that belong to no incident. Each has a file in messages, too. They page where there is no other
// notifier; a lost Redis always pages.
const (
	redisLost    = "redis_lost"
	redisBack    = "redis_back"
	unreached    = "unreached"
	unservedJobs = "unserved"
	flows        = "flows" // unreached or unservedJobs is over: jobs run again, or there are none
	blockedKeys  = "blocked_keys"
)

// singles are the kinds that belong to no incident.
var singles = map[string]struct {
	class, test string // test is the name in the report of a test
	critical    bool
}{
	redisLost:    {class: "Redis unreachable", test: "Redis unreachable", critical: true},
	redisBack:    {class: "Redis unreachable", test: "Redis back", critical: true},
	unreached:    {class: "destination out of reach", test: "destination out of reach", critical: true},
	unservedJobs: {class: "destination without a worker", test: "destination without a worker"},
	flows:        {class: "destination without a worker", test: "destination back"},
	blockedKeys:  {class: "key blocked by a failed job", test: "key blocked by a failed job"},
}
