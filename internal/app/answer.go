package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// TriedAnswer is what an answer comes to.
type TriedAnswer struct {
	publisher.Attempted
	// Rule is the decision of a rule; its Rule is 0 if none decided.
	Rule answers.Decided
}

// TryAnswer classifies an answer to a job's call as a worker does, without a call.
func TryAnswer(ctx context.Context, d config.Destination, job *jobs.Job, status int, header http.Header, body []byte) (TriedAnswer, error) {
	rules, err := OpenRules(d, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return TriedAnswer{}, fmt.Errorf("app: answer rules of %s: %w", d.Name, err)
	}
	options := httpOptions(d)
	if d.AuthTokensFile != "" {
		options.Tokens = httpdest.TokensFunc(func(string) (string, bool) { return "token", true })
	}
	if d.AuthPoolFile != "" {
		options.AuthToken = "token"
	}
	if d.OAuthTokenURL != "" {
		options.TokenSource = standIn{perKey: d.OAuthRefreshTokensFile != ""}
	}
	options.Transport = answering{status, header, body}
	var out TriedAnswer
	if rules != nil {
		options.Rules = explaining{rules, &out.Rule}
	}
	h, err := httpdest.New(options)
	if err == nil {
		out.Attempted, err = publisher.Attempt(ctx, h, job, time.Now(), publisher.Breaker(BreakerOptions(d)), publisher.ShortProbe())
	}
	if err != nil {
		return TriedAnswer{}, fmt.Errorf("app: try an answer: %w", err)
	}
	return out, nil
}

// explaining keeps the decision.
type explaining struct {
	rules *answers.Decider
	into  *answers.Decided
}

func (e explaining) Decide(a httpdest.Answered) (httpdest.Decision, bool) {
	*e.into = e.rules.Explain(a)
	return e.into.Decision, e.into.Rule != 0
}

// standIn is a source with one token, which is not sent to anyone.
type standIn struct{ perKey bool }

func (standIn) Token(context.Context, string) (string, error)         { return "token", nil }
func (standIn) Renew(context.Context, string, string) (string, error) { return "token", nil }
func (s standIn) PerKey() bool                                        { return s.perKey }
func (standIn) Changed() []string                                     { return nil }

// answering is a transport that makes no call.
type answering struct {
	status int
	header http.Header
	body   []byte
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}
