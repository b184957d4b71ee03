package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

type enqueueCmd struct {
	Destination    string         `short:"d" placeholder:"NAME" help:"Destination that the job is published to. With --file: of lines that name none."`
	Key            string         `placeholder:"KEY" help:"Owner of the budget inside the destination, such as a user; a name, never a token."`
	Payload        string         `default:"{}" placeholder:"JSON" help:"Body of the call: JSON, @FILE, or @- for stdin. Sent byte for byte, or as --encoding says. Default: ${default}."`
	Encoding       string         `placeholder:"form" help:"How the payload becomes the body: json (default), form, multipart or raw. See docs/requests.md."`
	Form           []string       `sep:"none" placeholder:"NAME=VALUE" help:"Field of a form, in place of --payload; may be repeated."`
	FilePart       []string       `sep:"none" placeholder:"NAME=@PATH" help:"File of a multipart form, in place of --payload; may be repeated."`
	Method         string         `placeholder:"PUT" help:"HTTP method of the call; the destination's unless given."`
	CallTimeout    string         `placeholder:"10s" help:"Longest time of the call, in whole seconds, where the destination's timeout is longer."`
	Path           string         `placeholder:"/PATH" help:"Appended to the destination's URL."`
	Query          string         `placeholder:"A=B" help:"Appended to the destination's query, without a question mark."`
	Header         []string       `sep:"none" placeholder:"NAME:VALUE" help:"Header of the call; may be repeated."`
	ID             string         `name:"id" placeholder:"ID" help:"Id of the job; a new UUIDv7 unless given. If it exists, nothing is enqueued and the existing job is printed."`
	At             string         `placeholder:"TIME" help:"Not before this instant: RFC 3339, such as 2026-01-31T14:35:00Z."`
	Delay          string         `placeholder:"5m" help:"Not before this time from now: 30s, 5m, 2h, 7d."`
	TTL            string         `name:"ttl" placeholder:"1h" help:"Expire the job if it has not started within this time: 30s, 1h, 7d; 0 expires it at once."`
	IfLate         string         `placeholder:"reject" help:"What becomes of the job if it would expire before it can start: enqueue (default), or reject: nothing is enqueued, and the exit status is 1."`
	ExpiresAt      string         `placeholder:"TIME" help:"Expire the job if it has not started by this instant: RFC 3339."`
	Batch          string         `placeholder:"NAME" help:"Batch that the job belongs to. With --file: of lines that name none."`
	Label          labels         `placeholder:"KEY=VALUE" help:"Free label to find the job by, such as team=web; up to 4, no secrets."`
	After          []string       `placeholder:"ID,ID" help:"Start the job when these have completed; if one ends otherwise it is cancelled."`
	OnSuccess      string         `placeholder:"URL" help:"Signed callback when the job has completed, to a host in CALLBACK_HOSTS."`
	OnFailure      string         `placeholder:"URL" help:"Signed callback when the job has ended otherwise."`
	MaxReschedules *int           `placeholder:"N" help:"Fail the job rather than reschedule it more often than this."`
	Cost           *int           `placeholder:"N" help:"What a call takes of each window of the destination's declared limits (RATE, KEY_RATE); 1 unless given."`
	Costs          map[string]int `placeholder:"tokens=1200" help:"What a call takes of named limits, by their units; may be repeated."`
	Priority       string         `placeholder:"high" help:"high, default or low: order among the jobs of the destination."`
	Order          string         `placeholder:"key" help:"Order among the jobs of its key: key (one at a time, as they become due) or none; the destination's unless given."`
	Replace        string         `placeholder:"KEY" help:"Newest wins: a job enqueued before with this replace-key that has not started ends as cancelled, and this one takes its place. With --delay each new job begins the wait anew."`
	ReplaceMax     string         `placeholder:"10m" help:"With --replace and --delay: start the last job at the latest this time after the first was enqueued."`
	Retry          string         `placeholder:"max=3" help:"Call again after failures: max=3,initial=10s,multiplier=2,max-delay=120s,on=timeout+failure. Only max is required."`
	Wait           bool           `help:"Wait until the job has ended and print it as it is then. The exit status is 1 unless it completed."`
	Timeout        string         `placeholder:"5m" help:"With --wait: how long at most; for ever unless given."`
	File           string         `short:"f" placeholder:"JOBS.jsonl" help:"Enqueue a file, one job a line; - for stdin."`
	outputFlag

	patience time.Duration // of --timeout; 0: for ever
}

// Run enqueues.
func (c *enqueueCmd) Run(ctx context.Context, p *Process) error {
	if c.File != "" {
		return c.file(ctx, p)
	}
	cfg, err := p.loadConfig()
	if err != nil {
		return err
	}
	spec, err := c.spec(p, cfg)
	if err != nil {
		return err
	}
	s, err := p.connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	job, err := s.client.Enqueue(ctx, spec)
	if late, ok := errors.AsType[*jobs.LateError](err); ok {
		return fmt.Errorf("enqueue: %s", late.Error()) // the input is not wrong
	}
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	s.warnUnserved(ctx, p, job.Destination)
	if c.Wait {
		return c.await(ctx, p, s, job)
	}
	doc := s.Enqueued(ctx, job)
	return c.show(p, doc, func(r *rows) {
		r.add("id", job.ID)
		r.add("destination", job.Destination)
		r.add("status", string(job.Status))
		if job.Status == jobs.Pending {
			r.addComing("starts", &job.AvailableAt)
		}
		if doc.ETA != nil && doc.ETA.At != nil && !job.AvailableAt.After(time.Now()) {
			r.add("starts", etaText(*doc.ETA, time.Now()))
		}
		if !job.Status.Final() {
			r.addComing("expires", job.ExpiresAt)
		}
		r.addIf("why", job.LastError)
		r.addIf("replaced", job.Replaced)
		if job.Duplicate {
			r.add("duplicate", "this id exists already; nothing was enqueued")
		}
	})
}

// addComing adds an instant if it is in the future.
func (r *rows) addComing(name string, at *time.Time) {
	if now := time.Now(); at != nil && at.After(now) {
		r.add(name, "in "+explain.Duration(at.Sub(now))+", at "+explain.At(*at, now))
	}
}

// spec makes a checked job of the flags. The error names all that is wrong.
func (c *enqueueCmd) spec(p *Process, cfg *config.Config) (*jobs.Spec, error) {
	var wrong []jobs.FieldError
	bad := func(flag string, err error) {
		if err != nil {
			wrong = append(wrong, jobs.FieldError{Field: flag, Message: err.Error()})
		}
	}
	spec := &jobs.Spec{
		Destination: c.Destination, ID: c.ID, Key: c.Key, Priority: jobs.Priority(c.Priority), Order: jobs.Ordering(c.Order), Replace: c.Replace,
		Request: jobs.Request{Method: strings.ToUpper(c.Method), Path: c.Path, Query: c.Query}, MaxReschedules: c.MaxReschedules,
		IfLate: jobs.LatePolicy(c.IfLate), Payload: json.RawMessage("{}"), Batch: c.Batch, Labels: c.Label, After: c.After, Cost: c.Cost, Costs: c.Costs, OnSuccess: c.OnSuccess, OnFailure: c.OnFailure,
	}
	form, encoding := c.form(p.Stdin, cfg.MaxPayloadBytes, bad)
	spec.Request.Encoding = encoding
	payload, err := readPayload(p.Stdin, c.Payload, cfg.MaxPayloadBytes)
	switch {
	case form != nil:
		spec.Payload = form
	case err != nil:
		bad("--payload", err)
	default:
		spec.Payload = c.rawPayload(payload)
	}
	if c.CallTimeout != "" {
		spec.Request.TimeoutSecs, err = config.WholeSeconds(c.CallTimeout)
		if err == nil && spec.Request.TimeoutSecs == 0 {
			err = errors.New("must be 1s or more")
		}
		bad("--call-timeout", err)
	}
	for _, h := range c.Header {
		name, value, found := strings.Cut(h, ":")
		if !found {
			// It is not repeated: it may be a value that belongs to a name.
			bad("--header", errors.New("is not of the form NAME:VALUE"))
			continue
		}
		name = strings.TrimSpace(name)
		if _, again := spec.Request.Headers[name]; again {
			bad("--header", fmt.Errorf("%s is given twice", clip(name, 40)))
			continue
		}
		jobs.Header(name, strings.TrimSpace(value)).Apply(spec)
	}
	if c.At != "" {
		spec.At, err = jobjson.ParseTime(c.At)
		bad("--at", err)
	}
	if c.Delay != "" {
		spec.Delay, err = config.ParseDuration(c.Delay)
		bad("--delay", err)
	}
	if c.ReplaceMax != "" {
		spec.ReplaceMax, err = config.ParseDuration(c.ReplaceMax)
		bad("--replace-max", err)
	}
	if c.TTL != "" {
		ttl, err := config.ParseDuration(c.TTL)
		spec.TTL = &ttl
		bad("--ttl", err)
	}
	if c.ExpiresAt != "" {
		spec.ExpiresAt, err = jobjson.ParseTime(c.ExpiresAt)
		bad("--expires-at", err)
	}
	if c.Retry != "" {
		spec.Retry, err = config.ParseRetry(c.Retry)
		bad("--retry", err)
	}
	var invalid *jobs.ValidationError
	if err := spec.Validate(app.Limits(cfg), app.CheckOf(cfg)); errors.As(err, &invalid) {
		wrong = append(wrong, invalid.Fields...)
	} else if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(wrong) > 0 {
		return nil, &jobs.ValidationError{Fields: wrong}
	}
	return spec, nil
}

// readPayload reads a payload: JSON, @FILE, or - or @- for stdin.
func readPayload(stdin io.Reader, payload string, limit int) ([]byte, error) {
	path, isFile := strings.CutPrefix(payload, "@")
	if !isFile && payload != "-" {
		return []byte(payload), nil
	}
	b, err := readInput(stdin, path, limit+1)
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("has more than %d bytes, which is the most that is accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference", limit)
	}
	return b, nil
}

// readInput reads the first bytes of a file, or of stdin for -.
func readInput(stdin io.Reader, path string, most int) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, _, err := openFile(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, int64(most)))
	if err != nil {
		return nil, fileError(err)
	}
	return b, nil
}

// openFile opens a file or a pipe, and returns its size. A device may never end.
func openFile(path string) (f *os.File, size int64, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, 0, fileError(err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fileError(err)
	case info.IsDir():
		err = fmt.Errorf("%s is a directory", path)
	case info.Mode()&fs.ModeDevice != 0:
		err = fmt.Errorf("%s is a device, not a file; write - for standard input", path)
	default:
		return f, info.Size(), nil
	}
	_ = f.Close()
	return nil, 0, err
}

// fileError returns what the system says of a file, without "open".
func fileError(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("cannot read %s: %w", path.Path, path.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// Validate checks flags that do not go together.
func (c *enqueueCmd) Validate() (err error) {
	if c.patience, err = longestWait(c.Timeout, c.Wait); err != nil || c.File == "" {
		return err
	}
	alone := enqueueCmd{File: c.File, Destination: c.Destination, Batch: c.Batch, Retry: c.Retry, Payload: "{}", outputFlag: c.outputFlag}
	if !reflect.DeepEqual(*c, alone) {
		return inputErrorf("with --file only --destination, --batch and --retry may be given, as the defaults of lines that name none; put the rest into the lines")
	}
	if c.Batch != "" {
		if err := batchName(c.Batch).Validate(); err != nil {
			return inputErrorf("--batch: %w", err)
		}
	}
	return nil
}

// file enqueues the jobs of a file.
func (c *enqueueCmd) file(ctx context.Context, p *Process) error {
	cfg, err := p.loadConfig()
	if err != nil {
		return err
	}
	var policy *jobs.RetryPolicy
	if c.Retry != "" {
		if policy, err = config.ParseRetry(c.Retry); err != nil {
			return inputErrorf("--retry: %w", err)
		}
	}
	in, size := p.Stdin, int64(0)
	if c.File != "-" {
		f, bytes, err := openFile(c.File)
		if err != nil {
			return inputErrorf("--file: %w", err)
		}
		defer func() { _ = f.Close() }()
		in, size = f, bytes
	}
	s, err := p.connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()

	started := time.Now()
	b := &bulk{client: s.client, maxPayload: cfg.MaxPayloadBytes, destination: c.Destination, batch: c.Batch, retry: policy, size: size, progress: p.newBar("enqueueing")}
	err = b.run(ctx, in)
	b.progress.end()
	for _, destination := range slices.Sorted(maps.Keys(b.destinations)) {
		s.warnUnserved(ctx, p, destination)
	}
	if printErr := c.printResult(p, &b.result, time.Since(started)); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch n := len(b.result.Rejected); {
	case err != nil:
		return err
	case n > 0:
		return inputErrorf("%s rejected; correct and enqueue those again", plural(n, "line was", "lines were"))
	}
	return nil
}

func (c *enqueueCmd) printResult(p *Process, r *bulkResult, took time.Duration) error {
	if c.json() {
		return p.printJSON(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "accepted %s", plural(r.Accepted, "job", "jobs"))
	if r.Duplicates > 0 {
		fmt.Fprintf(&b, ", %d whose id existed already", r.Duplicates)
	}
	fmt.Fprintf(&b, ", rejected %s, in %s\n", plural(len(r.Rejected), "line", "lines"), took.Round(time.Millisecond))
	lines := make([]string, len(r.Rejected))
	for i, bad := range r.Rejected {
		lines[i] = fmt.Sprintf("line %d: %s", bad.Line, bad.Error)
	}
	for _, line := range firstLines(lines) {
		b.WriteString(line + "\n")
	}
	return p.write([]byte(b.String()))
}
