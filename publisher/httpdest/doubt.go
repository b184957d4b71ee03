package httpdest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/call/progress"
)

// maxDoubted is how much of a body is examined: an error is short.
const maxDoubted = 16 << 10

// doubtOf returns the doubt about a response, and false if there is none.
func doubtOf(status int, body []byte) (progress.Doubt, bool) {
	switch {
	case status >= 200 && status < 300:
		return doubtfulSuccess(status, body)
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
		return doubtfulFailure(status, body)
	}
	return progress.Doubt{}, false
}

// doubtfulSuccess examines a 2xx. Only a short object with one of few words is decoded.
func doubtfulSuccess(status int, body []byte) (progress.Doubt, bool) {
	body = bytes.TrimLeft(body, " \t\r\n\ufeff")
	if len(body) == 0 || len(body) > maxDoubted || body[0] != '{' ||
		!bytes.Contains(body, []byte(`"err`)) && !bytes.Contains(body, []byte(`"ok"`)) && !bytes.Contains(body, []byte(`"success"`)) && !bytes.Contains(body, []byte(`"status"`)) {
		return progress.Doubt{}, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return progress.Doubt{}, false
	}
	found := func(sign, when string) (progress.Doubt, bool) {
		return progress.Doubt{Sign: sign, Rule: "when: status == " + statusNumber(status) + " && " + when + ", then: fail"}, true
	}
	data, hasData := fields["data"]
	nothing := !hasData || onlyNull(data)
	switch {
	case isFalse(fields["ok"]):
		return found(`"ok": `+string(fields["ok"]), "body.ok == "+string(fields["ok"]))
	case isFalse(fields["success"]):
		return found(`"success": `+string(fields["success"]), "body.success == "+string(fields["success"]))
	case holds(fields["errors"]) && nothing && (hasData || onlyErrors(fields)):
		d, _ := found("errors without data", "")
		d.Rule = "DESTINATION_<i>_PRESET=graphql, or " + "when: status == " + statusNumber(status) + " && len(body.errors) > 0 && body.data == nil, then: fail"
		return d, true
	case holds(fields["error"]) && nothing && !holds(fields["result"]):
		return found(`"error" without data`, "body.error != nil")
	case isText(fields["status"], "error", "fail") && nothing:
		return found(`"status": `+string(fields["status"]), "body.status == "+string(fields["status"]))
	}
	for _, name := range []string{"errcode", "error_code"} {
		if holds(fields[name]) && nothing {
			return found(`"`+name+`"`, "body."+name+" != nil && body."+name+" != 0")
		}
	}
	return progress.Doubt{}, false
}

func statusNumber(status int) string { return strings.Fields(statusText(status))[0] }

// onlyErrors reports whether an object has errors and nothing that a call has done. A bulk operation reports its
// results beside the errors of single items.
func onlyErrors(fields map[string]json.RawMessage) bool {
	for name := range fields {
		switch name {
		case "errors", "error", "extensions", "message", "code", "status", "statusCode", "request_id", "requestId", "account_id":
		default:
			return false
		}
	}
	return true
}

// onlyNull reports whether a JSON value is null, or an object that has only null: GraphQL's data if it made none of
// the calls.
func onlyNull(v json.RawMessage) bool {
	if string(v) == "null" {
		return true
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(v, &fields) != nil || len(fields) == 0 {
		return false
	}
	for _, field := range fields {
		if string(field) != "null" {
			return false
		}
	}
	return true
}

// holds reports whether a field is there and not empty, as errors are: not null, false, 0, "", [] or {}.
func holds(v json.RawMessage) bool {
	var empty bytes.Buffer
	if len(v) == 0 || json.Compact(&empty, v) != nil {
		return false
	}
	switch empty.String() {
	case "null", "false", "0", `""`, "[]", "{}", `"0"`:
		return false
	}
	return true
}

func isFalse(v json.RawMessage) bool {
	return string(v) == "false" || string(v) == "0" || strings.EqualFold(string(v), `"false"`)
}

func isText(v json.RawMessage, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.EqualFold(string(v), `"`+text+`"`) })
}

// limitWords name a rate limit, in lower case.
var limitWords = []string{
	"ratelimit", "rate limit", "rate_limit", "rate-limit", "too many requests", "too_many_requests", "toomanyrequests", "throttl",
	"quota exceeded", "quota_exceeded", "quotaexceeded", "exceeded your quota", "exceeded your current quota", "quota has been exceeded",
	"limit exceeded", "limit_exceeded", "limitexceeded", "request limit", "slow down", "slowdown", "requests per ",
}

// doubtfulFailure examines a 4xx that is not read as a limit.
func doubtfulFailure(status int, body []byte) (progress.Doubt, bool) {
	lower := bytes.ToLower(body[:min(len(body), maxDoubted)])
	for _, word := range limitWords {
		if bytes.Contains(lower, []byte(word)) {
			return progress.Doubt{
				Limit: true, Sign: "“" + word + "”",
				Rule: "when: status == " + statusNumber(status) + ` && lower(string(body)) contains "` + word + `", then: limited`,
			}, true
		}
	}
	return progress.Doubt{}, false
}

var (
	// limitReached matches what a body says of a limit that is reached: words of rate limits, daily limits and quotas of
	// calls. A quota alone may be one of storage or of a plan, which no wait renews.
	limitReached = regexp.MustCompile(`(?i)(rate|request|requests|totalrequests|call|calls|api|daily|hourly|usage)[ _-]?limits?[ _-]?(has been |have been |was |is |already )*(exceeded|reached)` +
		`|exceeded (a|an|your|the|its)( [a-z]+){0,2} rate limit|(is|are|been|being) rate[ -]?limited` +
		`|(request|requests|query|queries|call|calls|api|rate|daily|usage)[ _-]?quota[ _-]?(has been |was |is )?exceeded|quota exceeded for quota metric|\bquotaExceeded\b` +
		`|too[ _-]?many[ _-]?requests|throttlingexception|requests? (is|was|were|has been|have been) throttled|over (rate|qps)\b`)
	// address matches what a body links to: pages on limits are linked from other refusals, too.
	address = regexp.MustCompile(`https?:[^\s"'<>]+`)
)

// namesLimit reports whether the body of a 403 plainly says that a rate limit is reached.
func namesLimit(body []byte) bool {
	return limitReached.Match(address.ReplaceAll(body[:min(len(body), maxDoubted)], nil))
}
