// Package httpjob is the HTTP request of a job as HTTP destinations send it: the checks of what a job
// adds to its destination's request, the outputs of its parents in it, and its body. Package jobs does
// without it, so that a program that only enqueues stays small (docs/adr/0061).
package httpjob

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/text/unicode/norm"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Check reports what an HTTP destination could not send of a job, for jobs.WithCheck: its request, its
// body and its expressions.
func Check(s *jobs.Spec) []jobs.FieldError {
	var found problems
	if s == nil {
		found.add("spec", "is nil")
		return found
	}
	if problem := bodyProblem(s.Request.Encoding, s.Payload); problem != "" {
		found.add("payload", "%s", problem)
	}
	r := resolver{after: s.After}
	request, _ := r.resolve(s.Request, s.Payload) // with a letter in place of each expression
	if r.err != nil {
		found.add(r.field, "%s", r.problem)
	}
	found.inRequest(&request)
	return found
}

// Validate checks what a job adds to the request of its destination: its path stays below the
// destination's URL, however often a server decodes it, and its headers do not replace those
// of Tidegate, the connection or a proxy. It returns nil or a *jobs.ValidationError. The HTTP
// destination checks it before each call, because other programs can write records.
func Validate(r *jobs.Request) error {
	var found problems
	if invalid, ok := errors.AsType[*jobs.ValidationError](r.Validate()); ok {
		found = invalid.Fields
	}
	if found.inRequest(r); len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b jobs.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return &jobs.ValidationError{Fields: found}
}

// problems are at most mostProblems.
type problems []jobs.FieldError

const mostProblems = 50

func (p *problems) add(field, format string, args ...any) {
	if len(*p) < mostProblems {
		*p = append(*p, jobs.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

// inRequest adds the problems of a request that its own Validate does not report. Parts that are too long add none.
func (p *problems) inRequest(r *jobs.Request) {
	if problem := methodProblem(r.Method); problem != "" {
		p.add("request.method", "%s", problem)
	}
	if problem := pathProblem(r.Path); problem != "" {
		p.add("request.path", "%s", problem)
	}
	switch _, err := url.ParseQuery(r.Query); {
	case len(r.Query) > store.MaxQueryBytes || !utf8.ValidString(r.Query):
	case strings.HasPrefix(r.Query, "?"):
		p.add("request.query", "must not start with a question mark")
	case err != nil || strings.ContainsAny(r.Query, "#\r\n \x00"):
		p.add("request.query", "is not a valid URL query; encode it, for instance a=b&c=d%%20e")
	}
	spelled := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		value := r.Headers[name]
		other, again := spelled[text.HeaderName(name)]
		spelled[text.HeaderName(name)] = name
		switch {
		case again && httpguts.ValidHeaderFieldName(name):
			p.add("request.headers", "%s and %s are the same header; give it once", clip(other), clip(name))
		case !httpguts.ValidHeaderFieldName(name):
			p.add("request.headers", "%q is not a header name", clip(name))
		case !httpguts.ValidHeaderFieldValue(value) || !utf8.ValidString(value):
			p.add("request.headers", "the value of %s has characters that a header must not have (line breaks?)", clip(name))
		case r.Encoding == jobs.EncodingMultipart && strings.EqualFold(name, "Content-Type"):
			p.add("request.headers", "%s is set by the encoding multipart; leave it out", clip(name))
		default:
			if problem := deniedHeader(name); problem != "" {
				p.add("request.headers", "%s %s", clip(name), problem)
			}
		}
	}
}

// clip shortens a quotation of the input.
func clip(s string) string { return text.Cut(s, 81) }

// methodProblem returns the problem of a job's method, or "".
func methodProblem(method string) string {
	switch upper := strings.ToUpper(method); {
	case method == "" || len(method) > store.MaxMethodBytes:
		return ""
	case !httpguts.ValidHeaderFieldName(method):
		return fmt.Sprintf("%q is not an HTTP method; write one such as PUT", clip(method))
	case method != upper:
		return fmt.Sprintf("%q must be in upper case: %s", clip(method), clip(upper))
	case method == "CONNECT" || method == "TRACE":
		return method + " is for proxies and cannot be sent"
	}
	return ""
}

// pathProblem returns the problem of a job's path, or "". A path is appended to the
// destination's URL and must stay below it.
func pathProblem(path string) string {
	if path == "" || len(path) > store.MaxPathBytes || !utf8.ValidString(path) {
		return ""
	}
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return "must start with exactly one slash; it is appended to the destination's URL"
	}
	if strings.ContainsAny(path, "?#\\") {
		return "must not contain ?, # or a backslash; a query goes into request.query"
	}
	for _, r := range path {
		if r <= ' ' || r == 0x7f {
			return "must not contain spaces or control characters; encode them (%20)"
		}
	}
	if _, err := url.PathUnescape(path); err != nil {
		return "has a malformed percent encoding"
	}
	for range maxDecodings {
		if problem := decodedProblem(path); problem != "" {
			return problem
		}
		decoded := percentEncoded.ReplaceAllStringFunc(path, func(code string) string {
			b, _ := hex.DecodeString(code[len(code)-2:])
			return string(b)
		})
		if decoded == path {
			return ""
		}
		path = decoded
	}
	return fmt.Sprintf("is percent-encoded more than %d times", maxDecodings-1)
}

// maxDecodings bounds how often a path is decoded. Proxies and servers decode it one after
// the other.
const maxDecodings = 6

// percentEncoded also matches IIS's form of ASCII (%u002e).
var percentEncoded = regexp.MustCompile("%(?:u00)?[0-9A-Fa-f]{2}")

// decodedProblem checks a path as a server sees it after decoding.
func decodedProblem(path string) string {
	if !utf8.ValidString(path) {
		// Overlong forms of dots and slashes, for instance.
		return "must be valid UTF-8 when it is decoded"
	}
	path = norm.NFKC.String(path) // some servers normalise: a full-width dot becomes a dot
	if strings.ContainsFunc(path, unicode.IsControl) {
		return "must not contain control characters, encoded or not"
	}
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		// Some servers drop the parameters of a segment (RFC 3986, section 3.3).
		if end := strings.IndexAny(segment, ";?#"); end >= 0 {
			segment = segment[:end]
		}
		if segment = strings.TrimSpace(segment); segment == "." || segment == ".." {
			return "must not contain . or .. as a segment, encoded or not"
		}
	}
	if strings.Contains(path, `\`) {
		return "must not contain a backslash, encoded or not"
	}
	return ""
}

// Problems of headers that a job must not set.
const (
	headerOfOurs   = "is set by Tidegate or by the connection and cannot be set by a job"
	headerOfTrust  = "changes the caller, the address or the method for servers that trust it, and cannot be set by a job"
	headerOfMethod = "asks the API for another method than that of the call, and cannot be set by a job; call with that method itself"
	headerSpelling = "has an underscore, which some servers read as a hyphen; write a hyphen"
)

// deniedHeaders are set by Tidegate, by the HTTP client or by the connection (RFC 9110, section
// 7.6.1).
var deniedHeaders = []string{
	"authorization", "host", "idempotency-key", "content-length", "transfer-encoding", "connection", "keep-alive",
	"proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade", "expect", "accept-encoding",
}

// trustedHeader matches the headers by which servers trust proxies, content networks and
// gateways in front of them, in lower case.
var trustedHeader = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`cookie2?|forwarded|x-forward|via|proxy|cdn-loop|front-end-https|xroxy-.*|x-bluecoat-via|x-nginx-proxy|x-trusted-proxy|x-varnish`,
	`http-(?:x-|proxy|forwarded|remote-).*|x-http-(?:x-|forwarded|remote-).*`,
	`(?:x-)?(?:forward(?:ed|er)?-|remote-|ssl-|proxy-|auth-request-|authenticated-|webauth-|original-|rewrite-|override-).*|x-forwarded.*`,
	`(?:x-)?(?:http-)?(?:host|path|url)-override|(?:x-|http-|x-http-)(?:host|scheme|https|ssl|proto|url|destinationurl)|https`,
	`(?:x-)?(?:host|server)-?name|x-(?:backend|gateway|server|trusted)-host|host|disguised-host|was-default-hostname|(?:x-|rack-)url-(?:scheme|proto)|(?:x-)?(?:base-url|request-ur[il])`,
	// Addresses of the caller, except headers that APIs ask for, such as PSU-IP-Address.
	`(?:.+-)?(?:(?:true)?client|real|connecting|connection|origin|originating|remote|true|src|source|peer|socket|cluster|proxy-?user|trusted|from|backend)-?(?:ip|addr|address|host|port)(?:-.*)?|x-real-.*|x-orig-.*|x-ip|x-custom-ip-authorization`,
	// Certificates of the caller (RFC 9440, and the headers of proxies).
	`(?:.+-)?(?:tls-)?client-?(?:cert|certificate|verify|dn|s-dn|i-dn|subject|issuer)(?:-.*)?|x-forwarded-tls.*|xfcc|x-arr-.*|x-amzn-mtls-.*`,
	// Identities that gateways have checked.
	`x-ms-client-principal.*|x-ms-token-.*|x-goog-iap-.*|x-goog-authenticated-user-.*|x-serverless-authorization|x-amzn-oidc-.*`,
	`x-consumer-.*|x-credential-identifier|x-anonymous-consumer|x-(?:.*-)?userinfo|x-authentik-.*|x-authelia-.*|x-pomerium-.*|x-vouch-.*|x-token-claim.*|x-jwt-payload.*|tailscale-.*|ts-user-.*`,
	`(?:x-)?(?:impersonate|oidc|shib|shibboleth|iv|sm|oam|ajp|teleport|logon|scal|tailscale)-.*|smuser|(?:x-)?(?:sso|logon|traefik|kong)-user|auth-user|x-(?:username|auth-username|auth-groups?|auth-roles?)`,
	// Proofs that metadata services of clouds ask for.
	`metadata-flavor|x-google-metadata-request|x-aws-ec2-metadata-.*|x-identity-header`,
	// What content networks and platforms set.
	`cf-.*|x-envoy-.*|fastly-.*|fly-.*|incap-.*|x-sucuri-.*|x-nf-.*|x-vercel-.*|x-azure-.*|x-appengine-.*|x-cloudscheduler.*|x-cloudtasks-.*|akamai-.*|x-akamai-.*|cloudfront-.*|cdn-src-.*|ali-cdn-.*|wl-proxy-.*`,
	// What servers of applications obey.
	`x-accel-.*|x-sendfile.*|x-middleware-.*|x-invoke-.*|x-next-.*|x-now-.*|x-matched-path|x-prerender-revalidate|x-waws-.*|x-site-deployment-id`,
}, "|") + `)$`)

// methodHeader matches the headers, in lower case, that make frameworks override the request's method. With one of
// them a call would not do what its job says, and the job's method decides about retries, and is what rules and
// people see.
var methodHeader = regexp.MustCompile(`^(?:(?:x-)?(?:http-)?(?:method|verb)-override|(?:x-|http-|x-http-|x-request-)(?:method|verb))$`)

// MethodHeader returns what is wrong with a header that asks for another method, "" for other headers.
func MethodHeader(name string) string {
	if methodHeader.MatchString(text.HeaderName(name)) {
		return headerOfMethod
	}
	return ""
}

// DeniedHeader reports whether a job must not set a header.
func DeniedHeader(name string) bool { return deniedHeader(name) != "" }

// deniedHeader returns the problem of a header that a job must not set, or "".
func deniedHeader(name string) string {
	plain := text.HeaderName(name)
	switch {
	case strings.Contains(name, "_"):
		return headerSpelling
	case slices.Contains(deniedHeaders, plain):
		return headerOfOurs
	case methodHeader.MatchString(plain):
		return headerOfMethod
	case trustedHeader.MatchString(plain):
		return headerOfTrust
	}
	return ""
}
