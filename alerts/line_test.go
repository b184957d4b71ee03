package alerts

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
)

// line is the way to Slack and PagerDuty. A call that they leave hanging ends at once
// as if its time were up.
type line struct {
	b     *harness
	next  *http.Transport
	hangs bool // some calls do
	// instead takes a call, if it is not nil and does not return nil twice.
	instead func(*http.Request) (*http.Response, error)
}

func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	if l.instead != nil {
		if resp, err := l.instead(req); resp != nil || err != nil {
			return resp, err
		}
	}
	if !l.hangs {
		return l.next.RoundTrip(req)
	}
	fake := l.b.slack.Fake
	if !strings.HasPrefix(fake.URL(), "http://"+req.URL.Host) {
		fake = l.b.pager.Fake
	}
	ctx, cancel := context.WithCancel(req.Context())
	l.b.t.Cleanup(cancel) // the answer may still have to be read
	before := len(fake.Requests())
	type answer struct {
		resp *http.Response
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := l.next.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // the caller's to close
		answered <- answer{resp, err}
	}()
	var mine fakehttp.Request
	look := func(done func(fakehttp.Request) bool) error {
		return fake.AwaitRequests(req.Context(), func(list []fakehttp.Request) bool {
			if len(list) > before {
				mine = list[before]
			}
			return len(list) > before && done(mine)
		})
	}
	if err := look(func(r fakehttp.Request) bool { return r.Fault == fakehttp.Hang || !r.Done.IsZero() }); err != nil {
		return nil, err
	}
	if mine.Fault != fakehttp.Hang {
		got := <-answered
		return got.resp, got.err
	}
	cancel()
	// What the call has done, it has done by then.
	err := look(func(r fakehttp.Request) bool { return !r.Done.IsZero() })
	<-answered
	return nil, errors.Join(context.DeadlineExceeded, err)
}

func (l *line) CloseIdleConnections() { l.next.CloseIdleConnections() }

// answer is an answer that no called service gives.
func answer(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: req, ProtoMajor: 1, ProtoMinor: 1}, nil
	}
}
