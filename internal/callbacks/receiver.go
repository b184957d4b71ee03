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

	"github.com/tidegate/tidegate/internal/secret"
	"github.com/tidegate/tidegate/internal/webhook"
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
	client      *http.Client
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
		client: &http.Client{Transport: finalAnswers{rt}},
		slots:  newCallSlots(limit), redact: redactor(u, secrets), timeout: callTimeout,
	}
}

func (r *receiver) close() { r.own.CloseIdleConnections() }

// notFollowed is the header in which finalAnswers keeps the target of a redirect.
const notFollowed = "Tidegate-Location"

// finalAnswers returns redirects as answers. http.Client reports a Location that it cannot
// parse as a failed call, even if it is configured not to follow redirects.
type finalAnswers struct{ http.RoundTripper }

func (t finalAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if resp != nil {
		resp.Header.Del(notFollowed)
		if to := resp.Header.Get("Location"); to != "" {
			resp.Header.Set(notFollowed, to)
			resp.Header.Del("Location")
		}
	}
	return resp, err
}

// answer is the answer of a receiver.
type answer struct {
	status int
	header http.Header
	body   string // cleaned
}

// post sends a callback, signed now. Errors are that there was no answer.
func (r *receiver) post(ctx context.Context, id string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the request cannot be built from the receiver's URL")
	}
	now := time.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tidegate")
	req.Header.Set(webhook.HeaderID, id)
	req.Header.Set(webhook.HeaderTimestamp, webhook.Timestamp(now))
	req.Header.Set(webhook.HeaderSignature, webhook.Sign(r.secrets, id, now, body))
	resp, err := r.client.Do(req)
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
