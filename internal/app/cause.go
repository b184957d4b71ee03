package app

import (
	"regexp"
	"strings"
)

// causes are what callers without a token learn of an error. Errors themselves
// name hosts, addresses and users; the log has them.
var causes = []string{
	"connection refused", "no such host", "no route to host", "network is unreachable", "connection reset by peer",
	"too many open files", "certificate", "i/o timeout", "deadline exceeded", "pool timeout", "EOF",
}

// replyCode begins an error that Redis has answered.
var replyCode = regexp.MustCompile(`(?:^|: )(NOPERM|NOAUTH|WRONGPASS|READONLY|OOM|MISCONF|LOADING|BUSY|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|TRYAGAIN)\b`)

// causeOf is what the text of an error says without an address.
func causeOf(text string) string {
	if m := replyCode.FindStringSubmatch(text); m != nil {
		return "refuses: " + m[1]
	}
	for _, cause := range causes {
		if strings.Contains(text, cause) {
			return "not reachable: " + cause
		}
	}
	return "not reachable; the worker's log says why"
}

// withCause keeps what a reason says before the error that it ends with.
func withCause(reason string) string {
	what, text, found := strings.Cut(reason, ": ")
	if !found {
		return reason
	}
	return what + ": " + causeOf(text)
}
