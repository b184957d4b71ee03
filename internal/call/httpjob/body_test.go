package httpjob_test

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

// bodyOf returns the body that a job with the payload gets, checked as at an enqueue.
func bodyOf(t *testing.T, e jobs.Encoding, payload string) (body, contentType string, err error) {
	t.Helper()
	invalid := jobs.New("d", []byte(payload), jobs.Encode(e)).Validate(jobs.Limits{MaxPayloadBytes: 1 << 20}, httpjob.Check)
	j := &jobs.Job{ID: "job-1", Payload: []byte(payload), Request: jobs.Request{Encoding: e}}
	b, contentType, err := httpjob.Body(j)
	if (invalid == nil) != (err == nil) {
		t.Errorf("%s of %.100s: enqueue %v, call %v", e, payload, invalid, err)
	}
	if err != nil && !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("%s of %.100s: error %v is not ErrInvalid", e, payload, err)
	}
	return string(b), contentType, err
}

func TestBodies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		encoding                   jobs.Encoding
		payload, body, contentType string
	}{
		{"", "{ \"a\" : 1.0}\n", "{ \"a\" : 1.0}\n", "application/json"},
		{jobs.EncodingJSON, `[1]`, `[1]`, "application/json"},
		{jobs.EncodingForm, `{}`, "", "application/x-www-form-urlencoded"},
		// Numbers as they are written, lists in their order, fields by their names.
		{jobs.EncodingForm, `{"n":1.50e3,"big":12345678901234567890,"tag":["b","a",1],"t":"é & <ü>","ok":true,"a[b]":""}`, "a%5Bb%5D=&big=12345678901234567890&n=1.50e3&ok=true&t=%C3%A9+%26+%3C%C3%BC%3E&tag=b&tag=a&tag=1", "application/x-www-form-urlencoded"},
		{jobs.EncodingRaw, ` "<a>é\n</a>"`, "<a>é\n</a>", "text/plain; charset=utf-8"},
		{jobs.EncodingRaw, `""`, "", "text/plain; charset=utf-8"},
		{jobs.EncodingRaw, `{"content_type":"image/png","base64":"AP8K"}`, "\x00\xff\n", "image/png"},
		{jobs.EncodingRaw, `{"base64":""}`, "", "application/octet-stream"},
	} {
		body, contentType, err := bodyOf(t, row.encoding, row.payload)
		if err != nil || body != row.body || contentType != row.contentType {
			t.Errorf("%s of %s: %q, %q, %v; want %q, %q", row.encoding, row.payload, body, contentType, err, row.body, row.contentType)
		}
	}
}

func TestMultipartBody(t *testing.T) {
	t.Parallel()
	const payload = `{"file":{"filename":"a \"b\".png","content_type":"image/png","base64":"AP8K"},"title":"Sünset","a":[1,true],
		"more":[{"filename":"x.bin","base64":""},{"content_type":"application/json","base64":"e30="}]}`
	body, contentType, err := bodyOf(t, jobs.EncodingMultipart, payload)
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatal(err)
	}
	r := multipart.NewReader(strings.NewReader(body), params["boundary"])
	var got []string
	for {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join([]string{part.FormName(), part.FileName(), part.Header.Get("Content-Type"), strconv.Quote(string(content))}, "|"))
	}
	want := []string{
		`a|||"1"`, `a|||"true"`, `title|||"Sünset"`,
		`file|a "b".png|image/png|"\x00\xff\n"`, `more|x.bin|application/octet-stream|""`, `more||application/json|"{}"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got)\n%s", diff)
	}
	// Each call of a job sends the same body; other content has another boundary.
	again, _, _ := bodyOf(t, jobs.EncodingMultipart, payload)
	other, _, err := bodyOf(t, jobs.EncodingMultipart, strings.Replace(payload, "Sünset", params["boundary"], 1))
	if again != body || err != nil || strings.HasPrefix(other, "--"+params["boundary"]) {
		t.Errorf("the second body is %q, %v", again, err)
	}
}

func TestBodiesAreRefused(t *testing.T) {
	t.Parallel()
	many := `{"a":[0` + strings.Repeat(",0", 1000) + `]}`
	for _, row := range []struct {
		encoding      jobs.Encoding
		payload, want string
	}{
		{jobs.EncodingForm, `[1]`, `payload: is not an object; with the encoding form it is one from field to value, such as {"title":"Sunset"}`},
		{jobs.EncodingForm, `null`, `payload: is not an object; with the encoding form it is one from field to value, such as {"title":"Sunset"}`},
		{jobs.EncodingForm, `{"a":{"b":1}}`, `payload: the field "a" is an object; with the encoding form a value is a string, a number, true or false, or a list of these`},
		{jobs.EncodingForm, `{"a":[[1]]}`, `payload: the field "a" is a list in a list; with the encoding form a value is a string, a number, true or false, or a list of these`},
		{jobs.EncodingForm, `{"a":null}`, `payload: the field "a" is null; with the encoding form a value is a string, a number, true or false, or a list of these`},
		{jobs.EncodingForm, `{"a":1,"a":2}`, `payload: has the field "a" twice; give it a list of values`},
		{jobs.EncodingForm, `{"":1}`, `payload: has a field ""; a name is not empty and has no control characters`},
		{jobs.EncodingForm, many, `payload: has more than 1000 values, which is the most that a form may have`},
		{jobs.EncodingMultipart, `{"a\r\nb":1}`, `payload: has a field "a\r\nb"; a name is not empty and has no control characters`},
		{jobs.EncodingMultipart, `{"f":{"filename":"a"}}`, `payload: the file "f" has no base64, its content`},
		{jobs.EncodingMultipart, `{"f":{"filename":"a\nb","base64":""}}`, `payload: the file "f" has a filename with control characters`},
		{jobs.EncodingMultipart, `{"f":{"name":"a","base64":""}}`, `payload: the file "f" cannot be read: unknown field "name"; it has filename, content_type and base64`},
		{jobs.EncodingMultipart, `{"f":{"base64":"?"}}`, `payload: the file "f" cannot be read: illegal base64 data at input byte 0; it has filename, content_type and base64`},
		{jobs.EncodingMultipart, `{"f":{"content_type":"a/b\r\nX: y","base64":""}}`, `payload: the file "f" has the content_type "a/b\r\nX: y"; write one such as image/png`},
		{jobs.EncodingRaw, `7`, `payload: is not a string or an object; with the encoding raw it is one of them, such as {"content_type":"image/png","base64":"…"}`},
		{jobs.EncodingRaw, `{}`, `payload: has no base64, its content`},
		{"xml", `{}`, `request.encoding: "xml" is none of json, form, multipart, raw`},
	} {
		if _, _, err := bodyOf(t, row.encoding, row.payload); err == nil || err.Error() != row.want {
			t.Errorf("%s of %.100s: error\n%v, want\n%s", row.encoding, row.payload, err, row.want)
		}
	}
}

func TestRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]jobs.Request{
		`request.method: "post" must be in upper case: POST`:                                             {Method: "post"},
		`request.method: CONNECT is for proxies and cannot be sent`:                                      {Method: "CONNECT"},
		`request.method: TRACE is for proxies and cannot be sent`:                                        {Method: "TRACE"},
		`request.method: "A B" is not an HTTP method; write one such as PUT`:                             {Method: "A B"},
		`request.timeout_secs: must be from 1 to 86400; leave it out for the destination's timeout`:      {TimeoutSecs: -1},
		`request.headers: content-type is set by the encoding multipart; leave it out`:                   {Encoding: jobs.EncodingMultipart, Headers: map[string]string{"content-type": "a/b"}},
		`request.method: "` + strings.Repeat("M", 33) + `" is not an HTTP method; write one such as PUT`: {Method: strings.Repeat("M", 33)},
	} {
		if err := httpjob.Validate(&r); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	for _, r := range []jobs.Request{{Method: "PROPFIND"}, {Method: "DELETE", TimeoutSecs: 86400}, {Encoding: jobs.EncodingRaw, Headers: map[string]string{"Content-Type": "text/csv"}}} {
		if err := httpjob.Validate(&r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
