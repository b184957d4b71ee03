package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// gatewayPrefix begins the paths of the gateway: what follows the destination is the path of the API.
const gatewayPrefix = "/to/"

// gatewayRoute is the pattern of all of them in logs and metrics.
const gatewayRoute = gatewayPrefix + "{destination}/{path...}"

// maxIdempotencyKey bounds a caller's Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// IsGateway reports whether a request is for the gateway. It must be passed on without a mux, which would
// redirect to a clean path.
func IsGateway(r *http.Request) bool { return strings.HasPrefix(r.URL.EscapedPath(), gatewayPrefix) }

// GatewayToken accepts the token where SDKs put it: it becomes Authorization: Bearer, which next checks.
func GatewayToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = gatewayRoute
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if scheme == "" {
			token = r.Header.Get("X-Api-Key")
			r.Header.Del("X-Api-Key")
		}
		if token != "" && (scheme == "" || strings.EqualFold(scheme, "token")) {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		next.ServeHTTP(w, r)
	})
}

// gateway enqueues a request as a job, and answers with the API's response if the caller waits.
func (a *api) gateway(w http.ResponseWriter, r *http.Request) {
	defer a.cache.Wrote(r.Context())
	if p := a.passOn(w, r); p != nil {
		p.forSDKs().write(w)
	}
}

func (a *api) passOn(w http.ResponseWriter, r *http.Request) *Problem {
	if p := a.may(r.Context(), access.ScopeEnqueue); p != nil {
		return p
	}
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		return newProblem(http.StatusForbidden, "a page of another site may not call an API through this one")
	}
	wait, strict, p := a.preference(r)
	if p != nil {
		return p
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case strict && wait == 0:
		return newProblem(http.StatusBadRequest, "Prefer: handling=strict needs a wait too, such as Prefer: wait=30, handling=strict")
	case reads && wait == 0:
		return newProblem(http.StatusBadRequest, "%s needs the header Prefer: wait=30, because its response is its purpose; a job without a caller that waits would be a call for nothing", r.Method)
	}
	spec, leave, p := a.gatewayJob(w, r)
	defer leave()
	if p != nil {
		return p
	}
	id, _ := access.From(r.Context())
	if err := a.claim(id, spec); err != nil {
		p = a.problem(r.Context(), "path", err)
		return p
	}
	digest := ""
	if wait > 0 && spec.ID == "" {
		digest = requestDigest(id, spec)
	}
	job := a.abandoned(r.Context(), digest, spec)
	if job == nil {
		if _, p = a.takeQuota(r.Context(), []*jobs.Spec{spec}, 0); p != nil {
			return p
		}
	}
	waiting, stop := r.Context(), func() {}
	if wait > 0 {
		ctx, end, p := a.startWaiting(r.Context())
		switch {
		case p == nil:
			waiting, stop = ctx, end
		case reads, strict, job != nil:
			a.abandon(r.Context(), digest, job)
			return p
		default:
			wait = 0 // it is accepted all the same
		}
	}
	defer stop()
	spec.KeepResponse = wait > 0 || spec.ID != "" && !spec.Fresh // else nobody reads it
	if job == nil {
		if job, p = a.enqueueRequest(r, spec); p != nil {
			return p
		}
	}
	leave() // the job is in Redis
	h := w.Header()
	h.Set("Tidegate-Job", job.ID)
	a.warnUnserved(r.Context(), h, job.Destination)
	accepted := GatewayJob{ID: job.ID, Destination: job.Destination, Status: string(job.Status), Duplicate: job.Duplicate, Replaced: job.Replaced}
	if wait > 0 {
		ended, done, err := a.awaitJob(waiting, accepted.ID, wait)
		defer done()
		switch {
		case err != nil: // the job is accepted: after an error an SDK would send it again
			a.log.WarnContext(r.Context(), "a job whose caller waits could not be read; it got 202", "job", accepted.ID, "error", err)
		case ended.Status.Final():
			return writeResponse(w, r, ended)
		default:
			accepted.Status = cmp.Or(string(ended.Status), accepted.Status)
		}
		if left := r.Context().Err() != nil; left || strict {
			return a.leave(r, job, digest, left)
		}
	}
	h.Set("Location", "/v1/jobs/"+accepted.ID)
	a.writeJSON(r.Context(), w, http.StatusAccepted, accepted)
	return nil
}

// enqueueRequest enqueues the job of a request. The enqueue is completed even if the caller disconnects.
func (a *api) enqueueRequest(r *http.Request, spec *jobs.Spec) (*jobs.Job, *Problem) {
	ctx, cancel := begun(r.Context())
	defer cancel()
	id, _ := access.From(ctx)
	job, err := a.client.Enqueue(ctx, spec)
	switch {
	case errors.Is(err, jobs.ErrUnknownDestination):
		p := a.problem(ctx, "path", err)
		p.Status, p.Title = http.StatusNotFound, http.StatusText(http.StatusNotFound)
		return nil, p
	case err != nil:
		return nil, a.problem(ctx, "job", err)
	case !job.Duplicate:
	case taken(id, job):
		return nil, newProblem(http.StatusConflict, "the Idempotency-Key %s; choose another", idTaken)
	case !sameRequest(job, spec):
		return nil, newProblem(http.StatusUnprocessableEntity, "the Idempotency-Key was used for another request: job %s", job.ID)
	}
	return job, nil
}

// sameRequest compares what is called, and for whom. Other headers differ where an SDK sends a request again.
func sameRequest(job *jobs.Job, spec *jobs.Spec) bool {
	was, is := job.Request, spec.Request
	return was.Method == is.Method && was.Path == is.Path && was.Query == is.Query && was.Encoding == is.Encoding &&
		was.Headers["Content-Type"] == is.Headers["Content-Type"] && bytes.Equal(job.Payload, spec.Payload) &&
		job.Key == spec.Key && job.Batch == spec.Batch
}

// gatewayJob reads a request. leave gives back the room of its body, and may be called twice.
func (a *api) gatewayJob(w http.ResponseWriter, r *http.Request) (spec *jobs.Spec, leave func(), p *Problem) {
	leave = func() {}
	rest := strings.TrimPrefix(r.URL.EscapedPath(), gatewayPrefix)
	destination, path, more := strings.Cut(rest, "/")
	if more {
		path = "/" + path
	}
	if !jobs.ValidDestination(destination) {
		return nil, leave, newProblem(http.StatusNotFound, "the path is /to/, the name of a destination, and the path of its API, such as /to/shop/orders")
	}
	id, _ := access.From(r.Context())
	spec = &jobs.Spec{Destination: destination, Gateway: true, Payload: json.RawMessage("null")}
	spec.Request = jobs.Request{Method: r.Method, Path: path, Query: r.URL.RawQuery, Headers: passedHeaders(r.Header)}
	for name := range r.Header {
		if problem := httpjob.MethodHeader(name); problem != "" { // left out, a PATCH would be a POST
			return nil, leave, newProblem(http.StatusBadRequest, "the header %s %s", name, problem)
		}
	}
	if p := gatewayOptions(r.Header, spec); p != nil {
		return nil, leave, p
	}
	switch key := r.Header.Values("Idempotency-Key"); {
	case len(key) > 1 || len(key) == 1 && (key[0] == "" || len(key[0]) > maxIdempotencyKey):
		return nil, leave, newProblem(http.StatusBadRequest, "the Idempotency-Key must be given once and have 1 to %d bytes", maxIdempotencyKey)
	case len(key) == 1:
		sum := sha256.Sum256([]byte(id.Name + "\n" + destination + "\n" + key[0]))
		spec.ID = "to-" + hex.EncodeToString(sum[:20])
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if r.ContentLength != 0 {
			return nil, leave, newProblem(http.StatusBadRequest, "a body of %s is not passed on; leave it out", r.Method)
		}
		return spec, leave, nil
	}
	leave, p = a.gatewayBody(w, r, spec)
	return spec, leave, p
}

// gatewayBody reads the body: JSON is the payload as it is, and anything else is sent with EncodingRaw, both byte for byte.
func (a *api) gatewayBody(w http.ResponseWriter, r *http.Request, spec *jobs.Spec) (leave func(), p *Problem) {
	most := a.limits.MaxPayloadBytes
	if r.ContentLength > int64(most) {
		return func() {}, gatewayTooLarge(most)
	}
	size := int64(most)
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	if leave = a.bodies.enter(r.Context(), 3*size+jobMemory); leave == nil {
		return func() {}, errBusy()
	}
	given := leave
	leave = func() { given(); given = func() {} }
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return leave, gatewayTooLarge(int(large.Limit))
	} else if err != nil {
		return leave, bodyProblem(err, most)
	}
	kind := r.Header.Get("Content-Type")
	if contentType(r) == jsonType && r.Header.Get("Content-Encoding") == "" && utf8.Valid(body) && json.Valid(body) {
		spec.Payload = body
		if kind != jsonType {
			spec.Request.Headers["Content-Type"] = kind
		}
		return leave, nil
	}
	spec.Request.Encoding = jobs.EncodingRaw
	if _, _, err := mime.ParseMediaType(kind); kind != "" && err != nil {
		spec.Request.Headers["Content-Type"] = kind // the API may know it
		kind = ""
	}
	if spec.Payload, err = json.Marshal(jobs.File{ContentType: kind, Content: append([]byte{}, body...)}); err != nil {
		return leave, bodyProblem(err, most)
	}
	if len(spec.Payload) > most {
		return leave, gatewayTooLarge(most * 3 / 4)
	}
	return leave, nil
}

func gatewayTooLarge(most int) *Problem {
	return newProblem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes, which is the most that is accepted of this kind (MAX_PAYLOAD_BYTES; a body that is not JSON takes a third more)", most)
}

// passedHeaders returns the headers of a request that go to the API. It leaves out the headers of the connection
// (RFC 9110, section 7.6.1), the token, and the headers that jobs must not set.
func passedHeaders(from http.Header) map[string]string {
	_, token, _ := strings.Cut(from.Get("Authorization"), " ")
	connection := strings.Split(strings.ToLower(strings.Join(from.Values("Connection"), ",")), ",")
	for i := range connection {
		connection[i] = strings.TrimSpace(connection[i])
	}
	out := map[string]string{}
	for name, values := range from {
		value := strings.Join(values, ", ")
		switch {
		case name == "Content-Type", name == "Prefer", strings.HasPrefix(name, "Tidegate-"), httpjob.DeniedHeader(name),
			slices.Contains(connection, strings.ToLower(name)), len(token) > 3 && strings.Contains(value, token),
			!httpguts.ValidHeaderFieldValue(value), !utf8.ValidString(value):
		default:
			out[name] = value
		}
	}
	return out
}

// gatewayOptions reads the headers Tidegate-….
func gatewayOptions(h http.Header, s *jobs.Spec) *Problem {
	for name, values := range h {
		option, ours := strings.CutPrefix(name, "Tidegate-")
		if !ours {
			continue
		}
		value, err := values[0], error(nil)
		if len(values) > 1 && option != "Label" {
			err = errors.New("is given more than once")
		}
		switch option {
		case "Key":
			s.Key = value
		case "Batch":
			s.Batch = value
		case "Label": // may be repeated
			s.Labels, err = jobs.ParseLabels(values...)
		case "Order":
			s.Order = jobs.Ordering(value)
		case "Replace":
			err = replaceOption(value, s)
		case "Priority":
			s.Priority = jobs.Priority(value)
		case "Ttl":
			var ttl time.Duration
			if ttl, err = config.ParseDuration(value); err == nil {
				s.TTL = &ttl
			}
		case "Retry":
			s.Retry, err = config.ParseRetry(value)
		case "Cost":
			var cost int
			if cost, err = strconv.Atoi(value); err != nil {
				err = errors.New("must be a whole number")
			}
			s.Cost = &cost
		default:
			err = errors.New("is not known; there are Tidegate-Key, -TTL, -Priority, -Order, -Replace, -Retry, -Batch, -Label and -Cost")
		}
		if err != nil {
			p := newProblem(http.StatusBadRequest, "the header %s cannot be accepted", name)
			p.Errors = []ProblemField{{"header." + name, err.Error()}}
			return p
		}
	}
	return nil
}

// replaceOption reads a replace-key, such as "profile-7; delay=5s; max=10m".
func replaceOption(value string, s *jobs.Spec) (err error) {
	key, options, _ := strings.Cut(value, ";")
	s.Replace = strings.TrimSpace(key)
	for part := range strings.SplitSeq(options, ";") {
		name, given, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "delay" && err == nil:
			s.Delay, err = config.ParseDuration(given)
		case name == "max" && err == nil:
			s.ReplaceMax, err = config.ParseDuration(given)
		case name != "" && err == nil:
			err = fmt.Errorf("%q is not known; write a key, and perhaps a delay and the longest one, such as profile-7; delay=5s; max=10m", text.Cut(name, 40))
		}
	}
	if s.Replace == "" && err == nil {
		err = errors.New("has no key; write one, such as profile-7")
	}
	return err
}

// preference is what a request wants by the header Prefer (RFC 7240): its wait, at most longestWait, and whether it is
// strict. What it does not say is as its destination has it.
func (a *api) preference(r *http.Request) (wait time.Duration, strict bool, p *Problem) {
	destination, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), gatewayPrefix), "/")
	wait, strict = a.gatewayOf(destination)
	said := false
	for part := range strings.FieldsFuncSeq(strings.Join(r.Header.Values("Prefer"), ","), func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "handling":
			strict = strings.EqualFold(value, "strict")
		case "respond-async":
			if !said {
				wait, strict = 0, false
			}
		case "wait":
			seconds, err := strconv.Atoi(value)
			if err != nil || seconds < 0 {
				return 0, false, newProblem(http.StatusBadRequest, "the header Prefer cannot be accepted: wait is a number of seconds, such as wait=30")
			}
			if !said {
				wait, said = time.Duration(min(seconds, int(longestWait/time.Second)))*time.Second, true
			}
			if seconds == 0 {
				strict = false
			}
		}
	}
	return wait, strict, nil
}

// writeResponse answers with the API's response to a job that has ended.
func writeResponse(w http.ResponseWriter, r *http.Request, job *jobs.Job) *Problem {
	h, answer := w.Header(), job.Response
	h.Set("Tidegate-Attempts", strconv.Itoa(job.Attempt+1))
	switch {
	case job.Status == jobs.Expired:
		return newProblem(http.StatusGatewayTimeout, "the job expired before it could be published")
	case job.Status == jobs.Cancelled:
		return newProblem(http.StatusConflict, "the job was cancelled: %s", job.LastError)
	case answer == nil && job.Status == jobs.Completed:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case answer == nil || answer.Status < http.StatusOK || answer.Status > 999:
		return newProblem(http.StatusBadGateway, "the API did not respond: %s", job.LastError)
	}
	setPassed(h, r, job)
	body, kind := answer.Raw, answer.ContentType
	if body == "" && kind == "" && answer.Body != "" { // of a handler in Go
		body, kind = answer.Body, "text/plain; charset=utf-8"
	}
	if kind != "" {
		h.Set("Content-Type", kind)
	} else {
		h["Content-Type"] = nil // it is not guessed
	}
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // not a page of this site
	if answer.Cut {
		h.Set("Tidegate-Truncated", strconv.Itoa(len(body)))
	}
	w.WriteHeader(answer.Status)
	_, _ = io.WriteString(w, body) //nolint:gosec // sandboxed, and not sniffed
	return nil
}

// gatewayOperations add the gateway to the document, by its two most frequent methods.
func (a *api) gatewayOperations() {
	text := &huma.Schema{Type: huma.TypeString}
	header := func(name, doc, example string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: doc, Schema: text, Example: example}
	}
	anyBody := func() map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary", Description: "Of any content type."}}}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		answers := map[int]*huma.Response{
			http.StatusOK: {
				Description: "With Prefer: wait, the response of the API, with its own status and content type.", Content: anyBody(),
				Headers: map[string]*huma.Param{
					"Tidegate-Job":       {Description: "The job's id.", Schema: text, Example: "0190a6c2-7d1e-7c52-8f0e-6a2f4b1f9d10"},
					"Tidegate-Attempts":  {Description: "Calls: 1, and the retries.", Schema: text, Example: "1"},
					"Tidegate-Truncated": {Description: "Only if the body is not the whole one: its bytes.", Schema: text, Example: "1048576"},
				},
			},
			http.StatusAccepted: {
				Description: "It is enqueued, and has not ended after the time to wait.",
				Content:     map[string]*huma.MediaType{jsonType: {Schema: schemaOf[GatewayJob](a)}},
				Headers:     map[string]*huma.Param{"Location": {Description: "The job's path.", Schema: text, Example: "/v1/jobs/post-7"}},
			},
		}
		var body *huma.RequestBody
		if method == http.MethodPost {
			body = &huma.RequestBody{Description: "Passed on byte for byte, with its Content-Type.", Content: anyBody()}
		}
		a.addByHand(operation{
			method: method, path: gatewayPrefix + "{destination}/{path}", id: "gateway-" + strings.ToLower(method), tag: tagGateway, scope: access.ScopeEnqueue,
			missing: true, conflict: method == http.MethodPost,
			summary: fmt.Sprintf("Publish a %s request through the gateway", method),
			description: "Any method; the path may have any number of segments. The request becomes a job: path, query, headers and body go to the destination's API, with its credentials. GET and HEAD need `Prefer: wait=…`. " +
				"The token may also be sent as `X-Api-Key`. See docs/gateway.md.",
		}, body, answers,
			&huma.Param{Name: "destination", In: "path", Required: true, Description: "The destination.", Schema: text, Example: "shop"},
			&huma.Param{Name: "path", In: "path", Required: true, Description: "The path of the API.", Schema: text, Example: "orders"},
			header("Prefer", "Seconds to wait for the API's response, up to 300.", "wait=30"),
			header("Idempotency-Key", "The same request with it is accepted once, for each token and destination.", "order-7"),
			header("Tidegate-Key", "The job's key.", "alice"), header("Tidegate-TTL", "Expires the job after this time.", "1h"),
			header("Tidegate-Priority", "high, default or low.", "high"), header("Tidegate-Order", "key or none; see order of a job to enqueue.", "key"),
			header("Tidegate-Replace", "Its replace-key: the newest job of a key wins. With a delay each new job begins the wait anew, up to max.", "profile-7; delay=5s; max=10m"),
			header("Tidegate-Retry", "Its retry policy.", "max=3,initial=10s"),
			header("Tidegate-Batch", "Its batch.", "monday"), header("Tidegate-Label", "Its labels, up to 4.", "team=web, run=7"), header("Tidegate-Cost", "What the call takes of declared limits.", "1"),
		)
	}
}
