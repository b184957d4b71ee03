package jobs_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	const nameRule = "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit"
	const destinationRule = "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit"
	good := jobs.RetryPolicy{MaxRetries: 3}
	for _, tc := range []struct {
		name string
		spec *jobs.Spec
		want string // "" for valid
	}{
		{"least", jobs.New("d", nil), ""},
		{"all of it", jobs.New("a-1", map[string]any{"a": 1}, jobs.ID("job:1@x.y_z-"), jobs.Key("alice"), jobs.Path("/items/7"),
			jobs.Query("a=b&c=d%20e"), jobs.Header("X-A", "b\tc"), jobs.Prioritize(jobs.PriorityHigh), jobs.MaxReschedules(0),
			jobs.Retry(good), jobs.Delay(time.Hour)), ""},
		{"longest names", jobs.New(strings.Repeat("d", 63), 1, jobs.ID(strings.Repeat("i", 128)), jobs.Key(strings.Repeat("k", 128))), ""},

		{"no destination", jobs.New("", nil), "destination: is missing; name one of your destinations"},
		{"destination in capitals", jobs.New("DeviantArt", nil), `destination: "DeviantArt" ` + destinationRule},
		{"destination with braces", jobs.New("a}b", nil), `destination: "a}b" ` + destinationRule},
		{"destination with a colon", jobs.New("a:high", nil), `destination: "a:high" ` + destinationRule},
		{"destination too long", jobs.New(strings.Repeat("d", 64), nil), `destination: "` + strings.Repeat("d", 64) + `" ` + destinationRule},
		{"destination with a line break", jobs.New("d\n", nil), `destination: "d\n" ` + destinationRule},
		{"very long input is clipped", jobs.New(strings.Repeat("D", 5000), nil), `destination: "` + strings.Repeat("D", 80) + `…" ` + destinationRule},

		{"id with a space", jobs.New("d", nil, jobs.ID("a b")), `id: "a b" ` + nameRule},
		{"id too long", jobs.New("d", nil, jobs.ID(strings.Repeat("i", 129))), `id: "` + strings.Repeat("i", 80) + `…" ` + nameRule},
		{"id with a brace", jobs.New("d", nil, jobs.ID("a{b}")), `id: "a{b}" ` + nameRule},
		{"key that starts with a dot", jobs.New("d", nil, jobs.Key(".k")), `key: ".k" ` + nameRule},
		{"key with an umlaut", jobs.New("d", nil, jobs.Key("jürgen")), `key: "jürgen" ` + nameRule},

		{"empty payload", jobs.New("d", []byte{}), "payload: is empty; JSON is expected, for instance {} or null"},
		{"payload that is no JSON", jobs.New("d", []byte("{a:1}")), "payload: is not valid JSON: invalid character 'a' looking for beginning of object key string; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"two values", jobs.New("d", []byte("1 2")), "payload: is not valid JSON: invalid character '2' after top-level value; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"cut short", jobs.New("d", []byte(`{"a":`)), "payload: is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes, such as {\"title\":\"Sunset\"} or \"Sunset\"; in a shell put single quotes around it"},
		{"largest payload", jobs.New("d", []byte(`"`+strings.Repeat("x", 262142)+`"`)), ""},
		{
			"payload too large", jobs.New("d", []byte(`"`+strings.Repeat("x", 262143)+`"`)),
			"payload: has 262145 bytes, at most 262144 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference",
		},
		{"payload that cannot be encoded", jobs.New("d", make(chan int)), "payload: cannot be encoded as JSON: json: unsupported type: chan int"},
		{"payload that is not a number", jobs.New("d", math.NaN()), "payload: cannot be encoded as JSON: json: unsupported value: NaN"},

		{"priority", jobs.New("d", nil, jobs.Prioritize("urgent")), `priority: "urgent" is none of high, default, low`},
		{"no priority is the default one", jobs.New("d", nil, jobs.Prioritize("")), ""},
		{"negative reschedules", jobs.New("d", nil, jobs.MaxReschedules(-1)), "max_reschedules: must not be negative; leave it out for no limit"},
		{"negative delay", jobs.New("d", nil, jobs.Delay(-time.Second)), "delay: must not be negative"},
		{"delay and time", jobs.New("d", nil, jobs.Delay(time.Second), jobs.At(time.Now())), "delay: give either a delay or a time, not both"},

		{"no retries", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{})), "retry.max_retries: must be from 1 to 10, is 0"},
		{"too many retries", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 11})), "retry.max_retries: must be from 1 to 10, is 11"},
		{"negative initial delay", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: -1 * time.Second})), "retry.initial_delay_secs: must be at least 1, is -1"},
		{"shrinking", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: 0.5})), "retry.backoff_multiplier: must be at least 1.0, is 0.5"},
		{"multiplier that is no number", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: math.NaN()})), "retry.backoff_multiplier: must be at least 1.0, is NaN"},
		{"infinite multiplier", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, BackoffMultiplier: math.Inf(1)})), "retry.backoff_multiplier: must be at least 1.0, is +Inf"},
		{
			"cap below the first delay", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 10 * time.Second, MaxDelay: 9 * time.Second})),
			"retry.max_delay_secs: must be from initial_delay_secs (10) to 3600, is 9",
		},
		{
			"cap above the limit", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, MaxDelay: 3601 * time.Second})),
			"retry.max_delay_secs: must be from initial_delay_secs (5) to 3600, is 3601",
		},
		{"cap at its bounds", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 10, InitialDelay: 3600 * time.Second, MaxDelay: 3600 * time.Second, BackoffMultiplier: 1})), ""},
		{"a policy with defaults, without the option", &jobs.Spec{Destination: "d", Payload: []byte("1"), Retry: &jobs.RetryPolicy{MaxRetries: 1}}, ""},
		{"a fraction of a second", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 1500 * time.Millisecond})), "retry.initial_delay_secs: must be whole seconds, is 1.5s"},
		{"a cap with a fraction", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, MaxDelay: 90500 * time.Millisecond})), "retry.max_delay_secs: must be whole seconds, is 1m30.5s"},
		{"a first delay above the default cap", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: 900 * time.Second})), ""},
		{
			"no trigger", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{}})),
			"retry.retry_on: must name at least one of timeout, failure, explicit; leave it out for all",
		},
		{
			"unknown trigger", jobs.New("d", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, RetryOn: []jobs.Trigger{"timeout", "429"}})),
			`retry.retry_on: "429" is none of timeout, failure, explicit`,
		},

		{"query with a question mark", jobs.New("d", nil, jobs.Query("?a=b")), "request.query: must not start with a question mark"},
		{"query with a fragment", jobs.New("d", nil, jobs.Query("a=b#c")), "request.query: is no URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a space", jobs.New("d", nil, jobs.Query("a=b c")), "request.query: is no URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a line break", jobs.New("d", nil, jobs.Query("a=b\r\nHost: x")), "request.query: is no URL query; encode it, for instance a=b&c=d%20e"},
		{"query with a bad encoding", jobs.New("d", nil, jobs.Query("a=%zz")), "request.query: is no URL query; encode it, for instance a=b&c=d%20e"},
		{"query that is no UTF-8", jobs.New("d", nil, jobs.Query("a=\xff")), "request.query: is not valid UTF-8; encode it, for instance a=b&c=d%20e"},
		{"longest query", jobs.New("d", nil, jobs.Query(strings.Repeat("q", 4096))), ""},
		{"query too long", jobs.New("d", nil, jobs.Query(strings.Repeat("q", 4097))), "request.query: has 4097 bytes, at most 4096 are accepted"},

		{"header without a name", jobs.New("d", nil, jobs.Header("", "v")), `request.headers: "" is no header name`},
		{"header name with a space", jobs.New("d", nil, jobs.Header("X A", "v")), `request.headers: "X A" is no header name`},
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
			err := tc.spec.Validate(jobs.Limits{})
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
			var list *jobs.ValidationError
			if !errors.Is(err, jobs.ErrInvalid) || !errors.As(err, &list) || len(list.Fields) == 0 {
				t.Errorf("%T is no ValidationError that matches ErrInvalid", err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := jobs.Limits{MaxPayloadBytes: 4, RetryMaxRetries: 2, RetryMaxDelay: time.Minute}
	err := jobs.New("d", []byte("[1,2]"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 61 * time.Second})).Validate(l)
	want := "payload: has 5 bytes, at most 4 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference; " +
		"retry.max_delay_secs: must be from initial_delay_secs (1) to 60, is 61; retry.max_retries: must be from 1 to 2, is 3"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := jobs.New("d", []byte("[12]"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, MaxDelay: 60 * time.Second})).Validate(l); err != nil {
		t.Errorf("at the bounds: %v", err)
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
		err := (&jobs.Request{Path: path}).Validate()
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
			err := jobs.New("d", nil, jobs.Header(spelled, "x")).Validate(jobs.Limits{})
			if err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", spelled, err, want)
			}
		}
	}
	for name, problem := range map[string]string{
		"Cookie":          "Cookie changes the caller, the address or the method for servers that trust it, and cannot be set by a job",
		"X-Forwarded-For": "X-Forwarded-For changes the caller, the address or the method for servers that trust it, and cannot be set by a job",
		"X_Forwarded-For": "X_Forwarded-For has an underscore, which some servers read as a hyphen; write a hyphen",
		"X_Own":           "X_Own has an underscore, which some servers read as a hyphen; write a hyphen",
	} {
		err := jobs.New("d", nil, jobs.Header(name, "x")).Validate(jobs.Limits{})
		if err == nil || err.Error() != "request.headers: "+problem {
			t.Errorf("%s: error %v, want %s", name, err, problem)
		}
	}
	for _, name := range []string{"Content-Type", "User-Agent", "Accept", "X-Authorization", "X-Original", "X-Request-Id"} {
		if err := (&jobs.Request{Headers: map[string]string{name: "x"}}).Validate(); err != nil {
			t.Errorf("%s is denied: %v", name, err)
		}
	}
}

func TestValidNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "0": true, "A.b_c:d@e-f": true, "0199a0b1-0000-7000-8000-000000000000": true, strings.Repeat("x", 128): true,
		"": false, "-a": false, "_a": false, "a b": false, "a\n": false, "a/b": false, "a{": false, "ä": false, "a*": false, strings.Repeat("x", 129): false,
	} {
		if got := jobs.ValidName(name); got != want {
			t.Errorf("name %q: %t", name, got)
		}
	}
	for name, want := range map[string]bool{
		"a": true, "0": true, "a-": true, "deviant-art-2": true, strings.Repeat("x", 63): true,
		"": false, "-a": false, "A": false, "a_b": false, "a.b": false, "a:b": false, "a b": false, "a\n": false, "{a}": false, strings.Repeat("x", 64): false,
	} {
		if got := jobs.ValidDestination(name); got != want {
			t.Errorf("destination %q: %t", name, got)
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
		X-HTTP-Method X.Http.Method.Override X-WEBAUTH-USER X-Consumer-Username X-Credential-Identifier X-Userinfo X-Authentik-Username
		X-Pomerium-Claim-Email Tailscale-User-Login Fastly-Client-IP Fly-Client-IP Incap-Client-IP X-Sucuri-ClientIP X-Nf-Client-Connection-Ip
		X-Vercel-Forwarded-For X-Azure-ClientIP X-Azure-SocketIP X-Appengine-User-IP X-CloudScheduler Akamai-Origin-Hop WL-Proxy-Client-IP
		CloudFront-Viewer-Address X-Accel-Mapping X-Sendfile-Type X-Middleware-Subrequest Front-End-Https X-Scheme X-Url-Scheme X-Serverless-Authorization
		X-ProxyUser-Ip X-TrueClient-IP X-Origin-IP X-Backend-Host X-Forward X-Host-Name Http-Url Http-Proxy Request-Uri X-Request-Url X-Http-DestinationURL
		Impersonate-User Impersonate-Extra-Scopes OIDC-Claim-Sub Shib-Session-Id iv-user SM-User SMUSER OAM-Remote-User HTTP-X-Forwarded-For X-HTTP-Remote-User
		X-SSO-User X-Auth-Username X-Username X-Apigateway-Api-Userinfo X-Client-Subject-DN X-Teleport-User Teleport-Jwt-Assertion X-Proto X-Ssl Rack-Url-Scheme
		Metadata-Flavor X-aws-ec2-metadata-token X-Identity-Header Disguised-Host X-WAWS-Unencoded-URL X-Matched-Path X-Orig-Client Cookie2 X-Trusted-IP
		X-Custom-IP-Authorization X-ARR-ClientCert Via Forwarded Cookie CDN-Loop X-Real_IP x-REMOTE-user`) {
		r := jobs.Request{Headers: map[string]string{name: "x"}}
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "cannot be set by a job") && !strings.Contains(name, "_") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name := range strings.FieldsSeq(`
		X-Request-Id X-Correlation-Id X-Goog-Upload-Command X-Goog-User-Project X-Goog-Api-Client X-Amz-Date X-Amz-Target X-Amzn-Trace-Id X-Ms-Client-Request-Id X-Ms-Version
		X-GitHub-Api-Version X-Auth-Token X-Auth-Key X-Client-Id X-Client-Version X-Client-Name X-User-Id X-User-Agent PSU-IP-Address X-FAPI-Customer-IP-Address
		X-Original X-Realm Remote X-Hosted-By X-HTTP-Accept Content-Type Accept If-Match Prefer Range Notion-Version Stripe-Account X-Api-Key
		X-Auth-Email X-Auth-User X-User-Email X-User-Token X-Source X-Origin X-Backend-Id X-Server-Id X-Hostid X-Url-Id HTTP-Version X-Http-Client Smtp-Id X-Ivy X-Shibuya X-Source-Version Metadata Origin Referer
		Client-Request-Token X-Source-Id X-Authorization-Id X-Consumer X-Cookie-Policy CFX-Id Proxied-By Traceparent Destination Depth X-Upload-Content-Type`) {
		r := jobs.Request{Headers: map[string]string{name: "x"}}
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
