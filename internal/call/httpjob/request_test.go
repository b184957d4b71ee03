package httpjob_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const nameRule = "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit"
	const destinationRule = "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit"
	for _, tc := range []struct {
		name string
		spec *jobs.Spec
		want string // "" for valid
	}{
		{"query with a question mark", jobs.New("d", nil, jobs.Query("?a=b")), "request.query: must not start with a question mark"},
		{"query with a fragment", jobs.New("d", nil, jobs.Query("a=b#c")), "request.query: is not a valid URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a space", jobs.New("d", nil, jobs.Query("a=b c")), "request.query: is not a valid URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a line break", jobs.New("d", nil, jobs.Query("a=b\r\nHost: x")), "request.query: is not a valid URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a bad encoding", jobs.New("d", nil, jobs.Query("a=%zz")), "request.query: is not a valid URL query; encode it, for instance a=b&c=d%20e"},
		{"query that is no UTF-8", jobs.New("d", nil, jobs.Query("a=\xff")), "request.query: is not valid UTF-8; encode it, for instance a=b&c=d%20e"},
		{"longest query", jobs.New("d", nil, jobs.Query(strings.Repeat("q", 4096))), ""},
		{"query too long", jobs.New("d", nil, jobs.Query(strings.Repeat("q", 4097))), "request.query: has 4097 bytes, at most 4096 are accepted"},

		{"header without a name", jobs.New("d", nil, jobs.Header("", "v")), `request.headers: "" is not a header name`},
		{"header name with a space", jobs.New("d", nil, jobs.Header("X A", "v")), `request.headers: "X A" is not a header name`},
		{
			"header smuggled into a value", jobs.New("d", nil, jobs.Header("X-A", "v\r\nX-B: w")),
			"request.headers: the value of X-A has characters that a header must not have (line breaks?)",
		},
		{
			"header value that is no UTF-8", jobs.New("d", nil, jobs.Header("X-A", "\xff")),
			"request.headers: the value of X-A has characters that a header must not have (line breaks?)",
		},
		{"header given twice", jobs.New("d", nil, jobs.Header("x-a", "1"), jobs.Header("X-A", "2")), "request.headers: X-A and x-a are the same header; give it once"},
		{"longest headers", jobs.New("d", nil, jobs.Header("X", strings.Repeat("v", 8191))), ""},
		{
			"headers too long together", jobs.New("d", nil, jobs.Header("X", strings.Repeat("v", 4096)), jobs.Header("Y", strings.Repeat("v", 4096))),
			"request.headers: have 8194 bytes together, at most 8192 are accepted",
		},

		{
			"everything at once, sorted by field",
			jobs.New("Bad Name", []byte("{"), jobs.Path("no-slash"), jobs.Query("?q"), jobs.Header("Host", "x"), jobs.Header("Authorization", "y"),
				jobs.Prioritize("p"), jobs.MaxReschedules(-5), jobs.ID(" "), jobs.Key("{}"), jobs.Delay(-1),
				jobs.Retry(jobs.RetryPolicy{MaxRetries: -1, InitialDelay: -2 * time.Second, BackoffMultiplier: -3, MaxDelay: -4 * time.Second, RetryOn: []jobs.Trigger{}})),
			strings.Join([]string{
				"delay: must not be negative",
				`destination: "Bad Name" ` + destinationRule,
				`id: " " ` + nameRule,
				`key: "{}" ` + nameRule,
				"max_reschedules: must not be negative; leave it out for no limit",
				"payload: is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it",
				`priority: "p" is none of high, default, low`,
				"request.headers: Authorization is set by Tidegate or by the connection and cannot be set by a job",
				"request.headers: Host is set by Tidegate or by the connection and cannot be set by a job",
				"request.path: must start with exactly one slash; it is appended to the destination's URL",
				"request.query: must not start with a question mark",
				"retry.backoff_multiplier: must be at least 1.0, is -3",
				"retry.initial_delay_secs: must be at least 1, is -2",
				"retry.max_delay_secs: must be from initial_delay_secs (-2) to 3600, is -4",
				"retry.max_retries: must be from 1 to 10, is -1",
				"retry.retry_on: must name at least one of timeout, failure, explicit; leave it out for all",
			}, "; "),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.spec.Validate(jobs.Limits{}, httpjob.Check)
			if tc.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted, want %s", tc.want)
			}
			if diff := cmp.Diff(strings.Split(tc.want, "; "), strings.Split(err.Error(), "; ")); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestPath(t *testing.T) {
	t.Parallel()
	const (
		slash    = "must start with exactly one slash; it is appended to the destination's URL"
		extra    = "must not contain ?, # or a backslash; a query goes into request.query"
		spaces   = "must not contain spaces or control characters; encode them (%20)"
		percent  = "has a malformed percent encoding"
		dots     = "must not contain . or .. as a segment, encoded or not"
		controls = "must not contain control characters, encoded or not"
		noUTF8   = "is not valid UTF-8; encode it (%C3%A9)"

		decodedUTF8 = "must be valid UTF-8 when it is decoded"
		backslash   = "must not contain a backslash, encoded or not"
	)
	for path, want := range map[string]string{
		"":                         "",
		"/":                        "",
		"/items/7":                 "",
		"/items/7/":                "",
		"/a//b":                    "",
		"/a%20b/c%2Fd":             "",
		"/ä/日本":                    "",
		"/a.b/..c/d../...":         "",
		"/a:b@c;d=e,f!$&'()*+~":    "",
		"/100%25/%2561%25":         "",
		"/a;b=c/d%3Be":             "",
		"/%E6%97%A5":               "",
		strings.Repeat("/a", 1024): "",

		"items":                         slash,
		"//evil.example/x":              slash,
		"https://evil/":                 slash,
		"%2Fitems":                      slash,
		"/a?b=c":                        extra,
		"/a#b":                          extra,
		`/a\b`:                          extra,
		"/a b":                          spaces,
		"/a\tb":                         spaces,
		"/a\r\nHost: x":                 spaces,
		"/a\x00":                        spaces,
		"/a\x7f":                        spaces,
		"/a%":                           percent,
		"/a%2":                          percent,
		"/a%zz":                         percent,
		"/..":                           dots,
		"/a/../b":                       dots,
		"/a/./b":                        dots,
		"/a/..":                         dots,
		"/%2e%2e/b":                     dots,
		"/%2E./b":                       dots,
		"/.%2e":                         dots,
		"/a%2f..%2fb":                   dots,
		"/a%2F%2e%2E":                   dots,
		"/..%5cb":                       dots,
		"/a%5c%2e%2e%5cb":               dots,
		"/%2e":                          dots,
		"/%252e%252e/":                  dots,
		"/..;a/b":                       dots,
		"/a/%2e%2e%3Ba":                 dots,
		"/%ef%bc%8e%ef%bc%8e/":          dots,
		"/a%5cb":                        backslash,
		"/a%255Cb":                      backslash,
		"/%c0%ae%c0%ae/":                decodedUTF8,
		"/%25ff":                        decodedUTF8,
		"/%25252525252561":              "is percent-encoded more than 5 times",
		"/a%0d%0aHost:x":                controls,
		"/a%250d":                       controls,
		"/a%00":                         controls,
		"/a%7F":                         controls,
		"/a\xff":                        noUTF8,
		"/" + strings.Repeat("a", 2048): "has 2049 bytes, at most 2048 are accepted",
	} {
		if want != "" {
			want = "request.path: " + want
		}
		err := httpjob.Validate(&jobs.Request{Path: path})
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%.60q: %q, want %q", path, got, want)
		}
	}
}

// Headers that a job must not set, however they are spelled.
func TestDeniedHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "Host", "Idempotency-Key", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Expect", "Accept-Encoding",
	} {
		for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			want := "request.headers: " + spelled + " is set by Tidegate or by the connection and cannot be set by a job"
			err := jobs.New("d", nil, jobs.Header(spelled, "x")).Validate(jobs.Limits{}, httpjob.Check)
			if err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", spelled, err, want)
			}
		}
	}
	for name, problem := range map[string]string{
		"Cookie":          "Cookie changes the caller, the address or the method for servers that trust it, and cannot be set by a job",
		"X-Forwarded-For": "X-Forwarded-For changes the caller, the address or the method for servers that trust it, and cannot be set by a job",
		"X_Forwarded-For": "X_Forwarded-For has an underscore, which some servers read as a hyphen; write a hyphen",
		"X-Method":        "X-Method asks the API for another method than that of the call, and cannot be set by a job; call with that method itself",
		"X_Own":           "X_Own has an underscore, which some servers read as a hyphen; write a hyphen",
	} {
		err := jobs.New("d", nil, jobs.Header(name, "x")).Validate(jobs.Limits{}, httpjob.Check)
		if err == nil || err.Error() != "request.headers: "+problem {
			t.Errorf("%s: error %v, want %s", name, err, problem)
		}
	}
	for _, name := range []string{"Content-Type", "User-Agent", "Accept", "X-Authorization", "X-Original", "X-Request-Id"} {
		if err := httpjob.Validate(&jobs.Request{Headers: map[string]string{name: "x"}}); err != nil {
			t.Errorf("%s is denied: %v", name, err)
		}
	}
}

// Headers by which servers trust a caller are refused, and others that look like them are not.
func TestHeadersThatServersTrust(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq(`
		True-Client-IP CF-Connecting-IP CF-Connecting-IPv6 CF-Ray CF-Access-Jwt-Assertion X-Remote-User X-Remote-Group X-Remote-Extra-Scopes
		Remote-User Remote-Groups X-Remote-IP X-Remote-Addr X-Client-IP Client-IP X-Cluster-Client-Ip X-Originating-IP X-Host X-HTTP-Host-Override
		Proxy Proxy-Authorization Proxy-Foo X-Proxy-User X-Envoy-External-Address X-Envoy-Original-Path X-Forwarded X-Forwarded-For x-forwarded-user
		X-Forward-For X-Forwarder-For Forwarded-For X-Real-IP X-Original-URL X-Original-Method X-Rewrite-URL X-Override-URL X-Goog-IAP-JWT-Assertion
		X-Goog-Authenticated-User-Email X-MS-CLIENT-PRINCIPAL X-MS-CLIENT-PRINCIPAL-NAME X-MS-TOKEN-AAD-ID-TOKEN X-Auth-Request-User X-Auth-Request-Email
		X-Authenticated-User X-Authenticated-UserId Ssl-Client-Cert SSL_CLIENT_VERIFY X-SSL-Client-DN X-Ssl-Cipher X-Client-Cert Client-Cert
		Client-Cert-Chain X-Client-Verify X-Forwarded-Client-Cert X-Amzn-Oidc-Identity X-Amzn-Mtls-Clientcert X-HTTP-Method-Override X-Method-Override
		X-HTTP-Method X-Method HTTP-Method X-Verb X-HTTP-Verb-Override X-Request-Method Method-Override X.Http.Method.Override X-WEBAUTH-USER X-Consumer-Username X-Credential-Identifier X-Userinfo X-Authentik-Username
		X-Pomerium-Claim-Email Tailscale-User-Login Fastly-Client-IP Fly-Client-IP Incap-Client-IP X-Sucuri-ClientIP X-Nf-Client-Connection-Ip
		X-Vercel-Forwarded-For X-Azure-ClientIP X-Azure-SocketIP X-Appengine-User-IP X-CloudScheduler Akamai-Origin-Hop WL-Proxy-Client-IP
		CloudFront-Viewer-Address X-Accel-Mapping X-Sendfile-Type X-Middleware-Subrequest Front-End-Https X-Scheme X-Url-Scheme X-Serverless-Authorization
		X-ProxyUser-Ip X-TrueClient-IP X-Origin-IP X-Backend-Host X-Forward X-Host-Name Http-Url Http-Proxy Request-Uri X-Request-Url X-Http-DestinationURL
		Impersonate-User Impersonate-Extra-Scopes OIDC-Claim-Sub Shib-Session-Id iv-user SM-User SMUSER OAM-Remote-User HTTP-X-Forwarded-For X-HTTP-Remote-User
		X-SSO-User X-Auth-Username X-Username X-Apigateway-Api-Userinfo X-Client-Subject-DN X-Teleport-User Teleport-Jwt-Assertion X-Proto X-Ssl Rack-Url-Scheme
		Metadata-Flavor X-aws-ec2-metadata-token X-Identity-Header Disguised-Host X-WAWS-Unencoded-URL X-Matched-Path X-Orig-Client Cookie2 X-Trusted-IP
		X-Custom-IP-Authorization X-ARR-ClientCert Via Forwarded Cookie CDN-Loop X-Real_IP x-REMOTE-user`) {
		r := jobs.Request{Headers: map[string]string{name: "x"}}
		if err := httpjob.Validate(&r); err == nil || !strings.Contains(err.Error(), "cannot be set by a job") && !strings.Contains(name, "_") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name := range strings.FieldsSeq(`
		X-Request-Id X-Correlation-Id X-Goog-Upload-Command X-Goog-User-Project X-Goog-Api-Client X-Amz-Date X-Amz-Target X-Amzn-Trace-Id X-Ms-Client-Request-Id X-Ms-Version
		X-GitHub-Api-Version X-Auth-Token X-Auth-Key X-Client-Id X-Client-Version X-Client-Name X-User-Id X-User-Agent PSU-IP-Address X-FAPI-Customer-IP-Address
		X-Original X-Methods Method X-Payment-Method X-Realm Remote X-Hosted-By X-HTTP-Accept Content-Type Accept If-Match Prefer Range Notion-Version Stripe-Account X-Api-Key
		X-Auth-Email X-Auth-User X-User-Email X-User-Token X-Source X-Origin X-Backend-Id X-Server-Id X-Hostid X-Url-Id HTTP-Version X-Http-Client Smtp-Id X-Ivy X-Shibuya X-Source-Version Metadata Origin Referer
		Client-Request-Token X-Source-Id X-Authorization-Id X-Consumer X-Cookie-Policy CFX-Id Proxied-By Traceparent Destination Depth X-Upload-Content-Type`) {
		r := jobs.Request{Headers: map[string]string{name: "x"}}
		if err := httpjob.Validate(&r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
