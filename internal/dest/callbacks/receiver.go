package callbacks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/dest/webhook"
)

const (
	// maxRead is how much of an answer is read, maxKept how much of that is kept.
	maxRead = 64 << 10
	maxKept = 4 << 10
	// bodyWithin bounds reading an answer's body: its status has decided.
	bodyWithin = 2 * time.Second
	// connectWithin bounds a connection, and its TLS handshake.
	connectWithin = 5 * time.Second
)

// receiver is one address that callbacks are posted to.
type receiver struct {
	destination string
	url         *url.URL
	secrets     []webhook.Secret
	transport   http.RoundTripper // a client would follow redirects, or fail at one that it cannot read
	own         *http.Transport
	slots       *callSlots
	health      health
	redact      *secret.Redactor
	timeout     time.Duration // callTimeout, but for tests
}

func newReceiver(destination string, u *url.URL, secrets []webhook.Secret, limit int, wrap func(http.RoundTripper) http.RoundTripper) *receiver {
	own := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectWithin, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    limit,
		MaxConnsPerHost:        2 * limit, // some may be closing
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    connectWithin,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small answer that unpacks to a large one
	}
	var rt http.RoundTripper = own
	if wrap != nil {
		rt = wrap(rt)
	}
	return &receiver{
		destination: destination, url: u, secrets: secrets, own: own,
		transport: rt, slots: newCallSlots(limit), redact: redactor(u, secrets), timeout: callTimeout,
		health: health{log: outage.Log{After: failures, Every: logEvery}},
	}
}

func (r *receiver) close() { r.own.CloseIdleConnections() }

// answer is the answer of a receiver.
type answer struct {
	status int
	header http.Header
	body   string // cleaned
}

// post sends a callback to u, signed now. Errors are that there was no answer.
func (r *receiver) post(ctx context.Context, u *url.URL, id string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the request cannot be built from the receiver's URL")
	}
	now := time.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tidegate")
	req.Header.Set(webhook.HeaderID, id)
	req.Header.Set(webhook.HeaderTimestamp, webhook.Timestamp(now))
	req.Header.Set(webhook.HeaderSignature, webhook.Sign(r.secrets, id, now, body))
	if password, set := u.User.Password(); set || u.User.Username() != "" {
		req.SetBasicAuth(u.User.Username(), password)
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	// An incomplete body changes nothing.
	enough := time.AfterFunc(bodyWithin, cancel)
	defer enough.Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	return answer{status: resp.StatusCode, header: resp.Header, body: r.clean(string(text))}, nil
}
