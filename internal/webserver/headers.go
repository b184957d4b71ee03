package webserver

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// ContentSecurityPolicy is that of every answer: pages take scripts, styles, pictures
// and events from this server alone, run nothing that stands in their own text, send
// forms to this server alone, and are shown in no frame.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// setHeaders sets what every answer has unless its handler says otherwise.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", ContentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: browsers would then send forms with "Origin: null", which looks
	// like another site.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// problem is an error as RFC 9457 has it; of the type about:blank, which says no more
// than the status.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Problem answers with an error in the form of RFC 9457.
func Problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem{"about:blank", http.StatusText(status), status, detail}) // the client has left
}

// RetryAfter says in how many seconds to come again, at least one.
func RetryAfter(h http.Header, after time.Duration) {
	h.Set("Retry-After", seconds(after))
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
