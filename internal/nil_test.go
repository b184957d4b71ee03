package internal_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/metrics"
	"github.com/tidegate/tidegate/publisher/publishertest"
	"github.com/tidegate/tidegate/publisher/tracing"
)

// libraries are the folders of what programs import.
var libraries = []string{"jobs", "breaker", "publisher", "alerts"}

// takesNil reports whether an argument of the type can be nil, and is not a context: that a nil context panics is said
// once, in the package's comment, and linters find it.
func takesNil(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Map, reflect.Slice:
		return t != reflect.TypeFor[context.Context]()
	}
	return false
}

// mayTakeNil is takesNil for source: of a type that is declared elsewhere it does not know.
func mayTakeNil(parameter *ast.Field) bool {
	switch kind := parameter.Type.(type) {
	case *ast.Ident:
		return types.Universe.Lookup(kind.Name) == nil || kind.Name == "any" || kind.Name == "error"
	case *ast.SelectorExpr:
		in, _ := kind.X.(*ast.Ident)
		return in == nil || in.Name != "time" && (in.Name != "context" || kind.Sel.Name != "Context")
	}
	return true
}

// declared returns the comments of the libraries' packages, and of their exported functions and methods. nilable names
// the functions with an argument that can be nil.
func declared(t *testing.T) (packages, functions map[string]string, nilable map[string]bool) {
	t.Helper()
	packages, functions, nilable = map[string]string{}, map[string]string{}, map[string]bool{}
	for _, library := range libraries {
		err := filepath.WalkDir("../"+library, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "internal" {
				return fs.SkipDir
			}
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			in := module + path.Dir(strings.TrimPrefix(filepath.ToSlash(name), "../"))
			packages[in] += file.Doc.Text()
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || !f.Name.IsExported() {
					continue
				}
				called := in + "." + f.Name.Name
				if f.Recv != nil {
					kind := f.Recv.List[0].Type
					if star, ok := kind.(*ast.StarExpr); ok {
						kind = star.X
					}
					id, ok := kind.(*ast.Ident)
					if !ok || !id.IsExported() {
						continue
					}
					called = in + "." + id.Name + "." + f.Name.Name
				}
				functions[called] = f.Doc.Text()
				nilable[called] = slices.ContainsFunc(f.Type.Params.List, mayTakeNil)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return packages, functions, nilable
}

// A nil argument is an error that says what is nil, or means what the comment of the function says: that there is none,
// or, as in the standard library, a panic with words. No exported function is left out.
func TestNilArguments(t *testing.T) {
	t.Parallel()
	packages, comments, nilable := declared(t)
	rdb := redistest.Embedded(t)
	quiet := slog.New(slog.DiscardHandler)
	client := must(jobs.NewClient(rdb, jobs.WithDestinations("shop")))(t)
	b := must(breaker.New(t.Context(), rdb, breaker.Options{Destination: "shop", Logger: quiet}))(t)
	t.Cleanup(func() { _ = b.Close() })
	handler := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	api := must(httpdest.New(httpdest.Options{URL: "http://127.0.0.1:1", Logger: quiet}))(t)
	file := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := must(httpdest.OpenTokens(file, httpdest.TokensFileOptions{Logger: quiet}))(t)
	measured := must(metrics.New(prometheus.NewRegistry(), metrics.Options{}))(t)
	permit := must(b.Allow(t.Context()))(t)
	slacking := must(slack.New(slack.Options{Webhook: "http://127.0.0.1:1/"}))(t)
	paging := must(pagerduty.New(pagerduty.Options{Key: strings.Repeat("a", 32), API: "http://127.0.0.1:1/"}))(t)
	alerting := must(alerts.New(rdb, alerts.Options{Logger: quiet, Notifiers: []notice.Notifier{slacking}}))(t)
	worker := must(publisher.New(rdb, publisher.Options{Logger: quiet}))(t)

	// What is not nil where another argument is.
	good := map[reflect.Type]any{
		reflect.TypeFor[context.Context](): t.Context(), reflect.TypeFor[redis.UniversalClient](): rdb, reflect.TypeFor[string](): "shop", reflect.TypeFor[time.Time](): time.Now(),
		reflect.TypeFor[*jobs.Spec](): jobs.New("shop", 1), reflect.TypeFor[*jobs.Job](): publishertest.NewJob(jobs.New("shop", 1)), reflect.TypeFor[jobs.Action](): jobs.ActionCancel, reflect.TypeFor[jobs.Filter](): jobs.Filter{Destination: "none"},
		reflect.TypeFor[alerts.Options](): alerts.Options{Logger: quiet, Notifiers: []notice.Notifier{slacking}}, reflect.TypeFor[*jobs.Client](): client,
		reflect.TypeFor[publisher.Handler](): handler, reflect.TypeFor[*breaker.Breaker](): b, reflect.TypeFor[int](): 1, reflect.TypeFor[breaker.Options](): breaker.Options{Destination: "shop", Logger: quiet},
		reflect.TypeFor[httpdest.Options](): httpdest.Options{URL: "http://127.0.0.1:1", Logger: quiet}, reflect.TypeFor[publisher.Options](): publisher.Options{Logger: quiet}, reflect.TypeFor[time.Duration](): time.Second,
		reflect.TypeFor[func(context.Context) error](): func(context.Context) error { return nil },
	}
	// What is made with a nil argument is used.
	use := map[reflect.Type]func(v any) error{
		reflect.TypeFor[jobs.Option](): func(v any) error { return jobs.New("shop", 1, v.(jobs.Option)).Validate(jobs.Limits{}) },
		reflect.TypeFor[jobs.ClientOption](): func(v any) error {
			c, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"), v.(jobs.ClientOption))
			if err == nil {
				_, err = c.Enqueue(t.Context(), jobs.New("shop", 1))
			}
			return err
		},
		reflect.TypeFor[publisher.HandleOption](): func(v any) error {
			_, err := publisher.Attempt(t.Context(), handler, good[reflect.TypeFor[*jobs.Job]()].(*jobs.Job), time.Now(), v.(publisher.HandleOption))
			return err
		},
		reflect.TypeFor[publisher.Handler](): func(v any) error {
			_, err := publisher.Attempt(t.Context(), v.(publisher.Handler), good[reflect.TypeFor[*jobs.Job]()].(*jobs.Job), time.Now())
			return err
		},
		reflect.TypeFor[breakerhttp.Option](): func(v any) error {
			_ = breakerhttp.Judge(&http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, time.Now(), v.(breakerhttp.Option))
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/", nil)
			_, err := breakerhttp.New(b, nil, v.(breakerhttp.Option)).RoundTrip(r) //nolint:bodyclose // there is no response
			if err != nil && strings.Contains(err.Error(), "connection refused") {
				err = nil
			}
			return err
		},
		reflect.TypeFor[publishertest.JobOption](): func(v any) error {
			publishertest.NewJob(jobs.New("shop", 1), v.(publishertest.JobOption))
			return nil
		},
		reflect.TypeFor[*alerts.Alerts](): func(v any) error {
			return errors.Join(v.(*alerts.Alerts).Run(t.Context()), v.(*alerts.Alerts).Publish(t.Context(), good[reflect.TypeFor[*jobs.Job]()].(*jobs.Job)))
		},
		reflect.TypeFor[*publishertest.Client](): func(v any) error { v.(*publishertest.Client).Close(); return nil },
		reflect.TypeFor[http.RoundTripper](): func(v any) error {
			_, err := v.(http.RoundTripper).RoundTrip(nil) //nolint:bodyclose // likewise
			return err
		},
		reflect.TypeFor[[]jobs.Result](): func(v any) error {
			for _, r := range v.([]jobs.Result) {
				if r.Err == nil || !saysNil.MatchString(r.Err.Error()) {
					return fmt.Errorf("enqueued: %w", r.Err)
				}
			}
			return nil
		},
		reflect.TypeFor[error](): func(v any) error { return errors.New(v.(error).Error() + " nil") },
	}

	played := publishertest.NewClient()
	t.Cleanup(played.Close)
	for _, c := range []*jobs.Client{client, played.Client} {
		must(c.Enqueue(t.Context(), jobs.New("shop", nil, jobs.Batch("shop"), jobs.TTL(0))))(t)
	}

	seen := map[string]bool{}
	call := func(called string, f reflect.Value, receiver any) {
		kind := f.Type()
		seen[called] = true
		args := make([]reflect.Value, 0, kind.NumIn())
		for i := range kind.NumIn() {
			if in := kind.In(i); kind.IsVariadic() && i == kind.NumIn()-1 {
				break
			} else if good[in] != nil {
				args = append(args, reflect.ValueOf(good[in]))
			} else {
				args = append(args, reflect.Zero(in))
			}
		}
		try := func(where string, args []reflect.Value) {
			panicked, err := used(use, f, args, receiver != nil)
			where = strings.TrimPrefix(called, module) + ", " + where
			text, worded := panicked.(string)
			switch {
			case panicked != nil && (!worded || !strings.Contains(text, "nil")):
				t.Errorf("%s: panics with %v", where, panicked)
			case panicked != nil && !strings.Contains(comments[called], "panics"):
				t.Errorf("%s: panics with %q, of which its comment does not speak", where, text)
			case err != nil && !saysNil.MatchString(err.Error()):
				t.Errorf("%s: %v, which does not say what is nil", where, err)
			}
		}
		if v := reflect.ValueOf(receiver); receiver != nil && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
			try("receiver", args)
			return
		}
		for i := range kind.NumIn() {
			in := kind.In(i)
			if kind.IsVariadic() && i == kind.NumIn()-1 {
				in = in.Elem()
			}
			where := fmt.Sprintf("argument %d (%s)", i+1, in)
			if takesNil(in) {
				try(where, append(slices.Clone(args[:i]), append([]reflect.Value{reflect.Zero(in)}, args[min(i+1, len(args)):]...)...))
			}
			if in.Kind() == reflect.Slice && takesNil(in.Elem()) {
				try(where+" of nil", append(slices.Clone(args[:i]), append([]reflect.Value{reflect.MakeSlice(in, 1, 1)}, args[min(i+1, len(args)):]...)...))
			}
		}
	}
	for _, f := range []any{
		jobs.NewClient, jobs.WithLogger, jobs.WithCheck, jobs.WithTrace, jobs.WithDestinations, jobs.New, jobs.After, jobs.Costs, jobs.ParseLabels, jobs.FormatLabels, jobs.Refused, jobs.Reschedule, jobs.RateLimited,
		jobs.Unreachable, jobs.Unauthorized, jobs.Fail, jobs.Discard, jobs.Encode, jobs.IfLate, jobs.Set, jobs.Prioritize, jobs.Order, jobs.Retry, jobs.WithLimits,
		breaker.New, breaker.Judge, breaker.NewVirtual,
		hint.Join, hint.Parse, hint.LimitReached, hint.RetryLater,
		breakerhttp.New, breakerhttp.Judge, breakerhttp.Key, breakerhttp.Cost, breakerhttp.Outcome, breakerhttp.RateLimitedIf, breakerhttp.RateLimitedStatus, breakerhttp.Hints, breakerhttp.Logger,
		publisher.New, httpdest.New, httpdest.OpenTokens, httpdest.OpenPool, publisher.Attempt, httpdest.CheckRequest, publisher.Client, publisher.WithClient, publisher.Member, publisher.WithMember, publisher.Typed[int],
		publisher.Limits, publisher.KeyBy, publisher.Pool, publisher.Reserve, publisher.Turns, publisher.Order, publisher.Breaker, publisher.Retry,
		metrics.New, tracing.New, publishertest.NewClient, publishertest.NewJob, publishertest.Parent, publishertest.Play, publishertest.Publish, alerts.New, slack.New, pagerduty.New,
	} {
		v := reflect.ValueOf(f)
		name, _, _ := strings.Cut(runtime.FuncForPC(v.Pointer()).Name(), "[")
		call(name, v, nil)
	}
	for _, receiver := range []any{
		client, jobs.Key("alice"), jobs.New("shop", 1), &jobs.RetryPolicy{}, &jobs.Job{After: []string{"shop"}, Parents: map[string]jobs.Parent{"shop": {Output: []byte("1")}}}, b, permit, breaker.DefaultNamespace,
		breaker.Rates{},
		handler, publisher.Func(nil),
		httpdest.TokensFunc(nil), tokens, api, worker, &publisher.Options{}, (*publisher.Options)(nil), alerting, measured, tracing.New(tracing.Options{}), &jobs.StatusError{}, &jobs.UnknownDestinationError{}, &jobs.ValidationError{},
		&breaker.LearnedLimit{}, &breaker.LimitWindow{}, &breaker.RateStatus{}, new(breaker.State), &breaker.Status{},
		breaker.Outcome{},
		publisher.NamedLimit{},
		(*jobs.Spec)(nil), breakerhttp.New(b, nil), slacking, paging, notice.Observer(nil), played,
	} {
		v := reflect.ValueOf(receiver)
		kind := v.Type()
		for i := range kind.NumMethod() {
			named := kind
			if named.Kind() == reflect.Pointer {
				named = named.Elem()
			}
			call(named.PkgPath()+"."+named.Name()+"."+kind.Method(i).Name, v.Method(i), receiver)
		}
	}
	if _, err := httpdest.New(httpdest.Options{URL: "http://127.0.0.1:1", Tokens: httpdest.TokensFunc(nil)}); err == nil || !saysNil.MatchString(err.Error()) {
		t.Errorf("httpdest.New with a nil TokensFunc: %v", err)
	}
	for _, called := range slices.Sorted(maps.Keys(nilable)) {
		if nilable[called] && !seen[called] {
			t.Errorf("%s is in none of the lists", strings.TrimPrefix(called, module))
		}
	}
	for _, in := range libraries {
		if !strings.Contains(strings.Join(strings.Fields(packages[module+in]), " "), "nil context panics") {
			t.Errorf("the comment of package %s does not say that a nil context panics", in)
		}
	}
}

// saysNil matches errors about a nil argument; nil bytes are an empty text.
var saysNil = regexp.MustCompile(`nil|missing|unexpected end|EOF|state ""`)

// used calls a function, and uses what it returned. A function that returns nothing but an error makes one; a method
// fails with it.
func used(use map[reflect.Type]func(any) error, f reflect.Value, args []reflect.Value, method bool) (panicked any, err error) {
	defer func() {
		if panicked = recover(); panicked != nil {
			if _, ok := panicked.(string); !ok {
				panicked = fmt.Sprint("", panicked, "\n", stack())
				panicked = errors.New(panicked.(string))
			}
		}
	}()
	for _, result := range f.Call(args) {
		if k := result.Kind(); (k == reflect.Interface || k == reflect.Pointer || k == reflect.Func) && result.IsNil() {
			continue
		}
		if failed, ok := reflect.TypeAssert[error](result); ok && result.Type() == reflect.TypeFor[error]() && (method || f.Type().NumOut() > 1) {
			err = errors.Join(err, failed)
		} else if then := use[result.Type()]; then != nil {
			err = errors.Join(err, then(result.Interface()))
		}
	}
	return nil, err
}

func stack() string {
	buf := make([]byte, 4096)
	return string(buf[:runtime.Stack(buf, false)])
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
