package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

type answersCmds struct {
	Test answersTestCmd `cmd:"" help:"Show which outcome a response maps to."`
}

type answersTestCmd struct {
	Destination string   `placeholder:"NAME" help:"Destination of the response. Default: the only one."`
	Status      int      `required:"" help:"Status of the response."`
	Header      []string `sep:"none" placeholder:"NAME:VALUE" help:"Header of the response; repeatable."`
	Body        string   `placeholder:"TEXT or @FILE" help:"Body of the response; @- for stdin."`
	Key         string   `help:"Key of the job."`
	Attempt     int      `help:"Number of retries that the job has made."`
	outputFlag
}

// triedAnswer is what an answer comes to, as a document.
type triedAnswer struct {
	Destination string `json:"destination"`
	// Rule that decided, "Tidegate-Outcome", or "" if the status did.
	Rule    string          `json:"rule"`
	Outcome string          `json:"outcome"`
	Wait    float64         `json:"wait_secs"`
	Scope   string          `json:"scope"`
	Cost    *float64        `json:"cost"`
	Output  json.RawMessage `json:"output"`
	Budgets []triedBudget   `json:"budgets"`
	Job     string          `json:"job"`
	Error   string          `json:"error"`
	Breaker string          `json:"breaker"`
	// Failed are the expressions that failed on the answer.
	Failed []string `json:"failed"`
}

// triedBudget is what an answer announces in fields of the API's own.
type triedBudget struct {
	Name   string  `json:"name"`
	Left   int     `json:"left"`
	Limit  *int    `json:"limit"`
	Resets float64 `json:"resets_secs"`
	Scope  string  `json:"scope"`
}

// Run prints what an answer comes to.
func (c *answersTestCmd) Run(ctx context.Context, p *Process) error {
	cfg, err := p.loadWarning(config.Load, func(w config.Warning) bool { return !w.AboutAlerts() && !w.AboutWorkers() })
	if err != nil {
		return err
	}
	if err := cfg.RequireDestinations(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	d := cfg.Destinations[0]
	if c.Destination != "" || len(cfg.Destinations) > 1 {
		var known bool
		if d, known = cfg.Destination(c.Destination); !known {
			names := make([]string, len(cfg.Destinations))
			for i, d := range cfg.Destinations {
				names[i] = d.Name
			}
			return inputErrorf("--destination: name one of %s", strings.Join(names, ", "))
		}
	}
	if c.Status < 100 || c.Status > 599 {
		return inputErrorf("--status: %d is not an HTTP status; give one from 100 to 599", c.Status)
	}
	header := http.Header{}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if value = strings.TrimSpace(value); !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return inputErrorf("--header: %q is not a header; write NAME:VALUE", clip(h, 60))
		}
		header.Add(name, value)
	}
	body := []byte(c.Body)
	if name, isFile := strings.CutPrefix(c.Body, "@"); isFile {
		if body, err = readInput(p.Stdin, name, 1<<20); err != nil {
			return inputErrorf("--body: %w", err)
		}
	}
	job := &jobs.Job{ID: "answers-test", Destination: d.Name, Key: c.Key, Attempt: c.Attempt, Payload: json.RawMessage("{}")}
	got, err := app.TryAnswer(ctx, d, job, c.Status, header, body)
	if err != nil {
		return err
	}
	if !got.Called {
		return inputErrorf("the call cannot be made: %s", got.Error)
	}
	doc := describe(got, d)
	return c.show(p, doc, doc.fill)
}

// outcomeWords has for each outcome its name, its effect on the job, and its effect on the breaker.
var outcomeWords = map[string][3]string{
	publisher.OutcomeSuccess:      {"ok", "completes", "counts a success"},
	publisher.OutcomeAccepted:     {"accepted", "runs until the API reports its result", "counts a success"},
	publisher.OutcomeRateLimited:  {"limited", "is rescheduled, which costs no retry", ""}, // the breaker depends on its settings
	publisher.OutcomeUnauthorized: {"unauthorized", "waits for new credentials, which costs no attempt", "opens at once with cause credentials"},
	publisher.OutcomeRescheduled:  {"reschedule", "is rescheduled, which costs no retry", "counts no refusal"},
	publisher.OutcomePermanent:    {"fail", "fails at once", "counts no refusal"},
	publisher.OutcomeFailure:      {"retry", "fails: no retry policy, unless it has its own", "counts no refusal"},
}

var scopeWords = map[jobs.Scope]string{jobs.ScopeUser: "key", jobs.ScopeGlobal: "destination"}

// describe words what an answer of a destination comes to.
func describe(got app.TriedAnswer, d config.Destination) triedAnswer {
	doc := triedAnswer{
		Destination: d.Name, Rule: got.Rule.By, Error: got.Error, Wait: got.Hint.Seconds(),
		Cost: got.Rule.Cost, Output: got.Output, Failed: []string{}, Budgets: []triedBudget{},
	}
	for _, b := range got.Rule.Budgets {
		tried := triedBudget{Name: b.Name, Left: b.Remaining, Resets: b.Reset.Seconds(), Scope: scopeWords[b.Scope]}
		if b.Limit > 0 {
			tried.Limit = &b.Limit
		}
		doc.Budgets = append(doc.Budgets, tried)
	}
	for _, f := range got.Rule.Failures {
		doc.Failed = append(doc.Failed, f.String())
	}
	if doc.Rule == "" && (strings.HasSuffix(got.Error, httpdest.OutcomeHeader) || strings.HasSuffix(got.WaitsFor, httpdest.OutcomeHeader)) {
		doc.Rule = httpdest.OutcomeHeader
	}
	whose := "of the destination"
	if got.Job.Key != "" && got.Scope != jobs.ScopeGlobal {
		whose = "of the key"
	}
	words, known := outcomeWords[got.Outcome]
	if !known {
		words = outcomeWords[publisher.OutcomeFailure]
	}
	doc.Outcome, doc.Job, doc.Breaker = words[0], words[1], words[2]
	switch got.Outcome {
	case publisher.OutcomeRateLimited:
		doc.Breaker = fmt.Sprintf("counts a refusal and opens after %d in a row", d.Breaker.FailureThreshold)
		if got.Hint > 0 && d.Breaker.TrustHints {
			doc.Breaker = "opens at once for " + shortWait(min(got.Hint, time.Duration(d.Breaker.MaxCooldown)))
		}
		doc.Breaker = "that " + whose + " " + doc.Breaker
		doc.Scope = scopeWords[got.Scope]
	case publisher.OutcomeRescheduled, publisher.OutcomeAccepted:
		doc.Wait = time.Until(got.AvailableAt).Round(time.Second).Seconds()
	case publisher.OutcomeFailure:
		if n := d.Retry.MaxRetries; n > 0 {
			doc.Job = fmt.Sprintf("is retried, up to %d times unless its own policy says otherwise", n)
		}
	}
	if !d.Breaker.Enabled {
		doc.Breaker = "is off (CIRCUIT_BREAKER_ENABLED)"
	}
	return doc
}

// shortWait words a wait, below 2 s in milliseconds unless it is whole seconds.
func shortWait(d time.Duration) string {
	if d = d.Round(time.Millisecond); d < 2*time.Second && d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return explain.Duration(d)
}

func (t triedAnswer) fill(r *rows) {
	rule := cmp.Or(t.Rule, "none; the status decides")
	r.add("rule", rule)
	r.add("outcome", t.Outcome)
	if t.Wait > 0 {
		r.add("wait", shortWait(time.Duration(t.Wait*float64(time.Second))))
	}
	r.addIf("scope", t.Scope)
	if t.Cost != nil {
		r.add("cost", strconv.FormatFloat(*t.Cost, 'f', -1, 64))
	}
	r.addIf("output", string(t.Output))
	for _, b := range t.Budgets {
		text := fmt.Sprintf("%s: %d left", b.Name, b.Left)
		if b.Limit != nil {
			text = fmt.Sprintf("%s: %d of %d left", b.Name, b.Left, *b.Limit)
		}
		text += ", resets in " + shortWait(time.Duration(b.Resets*float64(time.Second)))
		if b.Scope != "" {
			text += ", of the " + b.Scope
		}
		r.add("budget", text)
	}
	r.add("job", t.Job)
	r.addIf("error", t.Error)
	r.add("breaker", t.Breaker)
	for _, f := range t.Failed {
		r.add("failed", f)
	}
}
