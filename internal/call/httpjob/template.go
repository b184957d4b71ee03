package httpjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// maxExpressions bounds the expressions of one job: each takes some 10 µs to compile, and 1 µs if it is compiled.
const maxExpressions = 100

var (
	// template matches a text with an expression that looks at a parent, or with {{ as a string.
	// Other texts with {{ are not Tidegate's.
	template = regexp.MustCompile("\\{\\{[^}]*?\\bparents?(\\??\\.[A-Za-z_]|(\\?\\.)?\\[)|\\{\\{\\s*(\"\\{\\{\"|'\\{\\{'|`\\{\\{`)\\s*\\}\\}")

	// callback matches a text with the place of the URL at which the API reports the result of the job.
	callback = regexp.MustCompile(`\{\{\s*callback\s*\}\}`)
	// namesCallback matches {{ '{{' }} callback }}, too: the place as text.
	namesCallback = regexp.MustCompile(`\{\{\s*(?:["']\{\{["']\s*\}\}\s*)?callback\s*\}\}`)

	// Anyone who may enqueue writes expressions.
	templateOptions = expression.Options{Vars: map[string]expression.Type{"parents": expression.Members, "callback": expression.String}, Untrusted: true}

	errNoValue = errors.New("there is no such value")
)

// UsesCallback reports whether a text has the place of the job's callback.
func UsesCallback(s string) bool { return strings.Contains(s, "{{") && callback.MatchString(s) }

// PutCallback puts a URL in the place of the job's callback.
func PutCallback(s, url string) string { return callback.ReplaceAllLiteralString(s, url) }

// isTemplate reports whether a text has expressions. Without parents {{ callback }} is the only one.
func (r *resolver) isTemplate(s string) bool {
	return namesCallback.MatchString(s) || len(r.after) > 0 && strings.Contains(s, "{{") && template.MatchString(s)
}

// Resolve returns a job as an HTTP destination sends it: with the values of {{ expressions }}
// over the outputs of its parents, and {{ callback }}, in the request's path, query and headers and in the payload's
// strings. url returns the job's callback, and is called only for a job that uses it. In path and query they are escaped. A string that is one expression becomes its value;
// in others it is text. Without such expressions the job is returned as it is. Errors
// name the field: a value is missing, or the payload has more than maxPayload bytes. When ctx ends
// no further expression is evaluated, and the error wraps ctx.Err().
func Resolve(ctx context.Context, j *jobs.Job, maxPayload int, url func() (string, error)) (*jobs.Job, error) {
	if len(j.After) == 0 && !usesCallback(j) {
		return j, nil
	}
	r := resolver{after: j.After, ended: ctx.Err, maxPayload: maxPayload, parents: j.Parents, outputs: map[string]any{}, callback: url}
	out := *j
	if out.Request, out.Payload = r.resolve(j.Request, j.Payload); r.err != nil {
		return nil, r.err
	}
	return &out, nil
}

func usesCallback(j *jobs.Job) bool {
	q := j.Request
	names := namesCallback.MatchString
	return namesCallback.Match(j.Payload) || names(q.Path) || names(q.Query) || slices.ContainsFunc(slices.Collect(maps.Values(q.Headers)), names)
}

// resolver replaces expressions by their values.
type resolver struct {
	after   []string
	parents map[string]jobs.Parent
	// ended returns an error when the evaluation must end; nil: the expressions are only compiled.
	ended      func() error
	maxPayload int
	callback   func() (string, error)

	outputs        map[string]any // decoded, by the id of the parent
	count          int
	err            error // the first one: its field and problem
	field, problem string
}

func (r *resolver) fail(field, problem string) {
	if r.err == nil {
		r.field, r.problem, r.err = field, problem, fmt.Errorf("%s: %s", field, problem)
	}
}

func (r *resolver) resolve(q jobs.Request, payload json.RawMessage) (jobs.Request, json.RawMessage) {
	q.Path = r.text("request.path", q.Path, store.MaxPathBytes, func(s string) (string, error) {
		if s == "" {
			return "", errors.New("the value is empty, which a path must not be")
		}
		return url.PathEscape(s), nil
	})
	q.Query = r.text("request.query", q.Query, store.MaxQueryBytes, func(s string) (string, error) { return url.QueryEscape(s), nil })
	cloned := false
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		value := r.text("request.headers", q.Headers[name], store.MaxHeaderBytes, func(s string) (string, error) { return s, nil })
		if value != q.Headers[name] {
			if !cloned {
				q.Headers, cloned = maps.Clone(q.Headers), true
			}
			q.Headers[name] = value
		}
	}
	return q, r.json(payload)
}

// text resolves a text. One that is too long or not valid UTF-8 stays as it is: the validation
// refuses it.
func (r *resolver) text(field, s string, most int, escape func(string) (string, error)) string {
	if len(s) > most || !r.isTemplate(s) || !utf8.ValidString(s) {
		return s
	}
	t := r.compile(field, s)
	if t == nil {
		return ""
	}
	out, err := t.Fill(func(p *expression.Program) (string, error) {
		if r.ended == nil {
			return "x", nil
		}
		v, err := r.value(p)
		if err != nil {
			return "", err
		}
		text, err := expression.Text(v)
		if err == nil && len(text) > most {
			err = fmt.Errorf("the value has more than %d bytes", most)
		}
		if err == nil {
			text, err = escape(text)
		}
		return text, r.about(p, err)
	})
	if err != nil {
		r.fail(field, err.Error())
	}
	return out
}

// json resolves the strings of a JSON text, but not the names of its fields. All else stays byte
// for byte.
func (r *resolver) json(payload json.RawMessage) json.RawMessage {
	if r.err != nil || !bytes.Contains(payload, []byte("{{")) {
		return payload
	}
	var out []byte
	last := 0
	for i := 0; i < len(payload); i++ {
		if payload[i] != '"' {
			continue
		}
		start := i
		for i++; i < len(payload) && payload[i] != '"'; i++ {
			if payload[i] == '\\' {
				i++
			}
		}
		raw := payload[start:min(i+1, len(payload))]
		if !bytes.Contains(raw, []byte("{{")) {
			continue
		}
		rest := bytes.TrimLeft(payload[min(i+1, len(payload)):], " \t\r\n")
		var s string
		if bytes.HasPrefix(rest, []byte(":")) || json.Unmarshal(raw, &s) != nil || !r.isTemplate(s) {
			continue
		}
		value := r.jsonValue(s)
		if r.err != nil {
			return payload
		}
		if r.ended == nil {
			continue
		}
		out = append(append(out, payload[last:start]...), value...)
		if last = start + len(raw); len(out)+len(payload)-last > r.maxPayload {
			r.fail("payload", r.tooLong().Error())
			return payload
		}
	}
	if out == nil {
		return payload
	}
	return append(out, payload[last:]...)
}

func (r *resolver) tooLong() error {
	return fmt.Errorf("has more than %d bytes with the outputs of its parents (MAX_PAYLOAD_BYTES)", r.maxPayload)
}

// jsonValue is the JSON in place of a string.
func (r *resolver) jsonValue(s string) []byte {
	t := r.compile("payload", s)
	if t == nil || r.ended == nil {
		return nil
	}
	var value any
	var err error
	if p := t.Only(); p != nil {
		value, err = r.value(p)
	} else {
		value, err = t.Fill(func(p *expression.Program) (string, error) {
			v, err := r.value(p)
			if err != nil {
				return "", err
			}
			text, err := expression.Text(v)
			return text, r.about(p, err)
		})
	}
	var b bytes.Buffer
	if err == nil && !expression.Fits(value, r.maxPayload) {
		err = r.tooLong()
	}
	if err == nil {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		err = enc.Encode(value)
	}
	if err != nil {
		r.fail("payload", err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// compile compiles a template and checks that the job has the parents that it names; nil after
// a failure.
func (r *resolver) compile(field, s string) *expression.Template {
	if r.err != nil {
		return nil
	}
	if r.count += strings.Count(s, "{{"); r.count > maxExpressions {
		r.fail(field, fmt.Sprintf("a job must not have more than %d expressions in {{ }}", maxExpressions))
		return nil
	}
	t, err := expression.CompileTemplate(s, templateOptions)
	if err != nil {
		r.fail(field, fmt.Sprintf("%q: %v; for {{ as text write {{ '{{' }}", clip(s), err))
		return nil
	}
	for _, name := range t.Members() {
		if _, ok := store.ParentNamed(r.after, name); !ok {
			r.fail(field, fmt.Sprintf("%q: the job has no parent %q; its parents: %s", clip(s), clip(name), text.Cut(strings.Join(r.after, ", "), 300)))
			return nil
		}
	}
	return t
}

// value evaluates an expression.
func (r *resolver) value(p *expression.Program) (v any, err error) {
	if err := r.ended(); err != nil {
		if r.err == nil {
			r.err = fmt.Errorf("put the outputs of parents into the request: %w", err)
		}
		return nil, r.err
	}
	parents := map[string]any{}
	for _, name := range p.Members() {
		if parents[name], err = r.output(name); err != nil {
			return nil, err
		}
	}
	env := map[string]any{"parents": parents}
	if p.Uses("callback") {
		if env["callback"], err = r.callback(); err != nil {
			if r.err == nil {
				r.err = err
			}
			return nil, err
		}
	}
	if v, err = p.Eval(env); err == nil && v == nil {
		err = errNoValue
	}
	return v, r.about(p, err)
}

// about adds the expression to an error, or the cause: a parent that it names has no output.
func (r *resolver) about(p *expression.Program, err error) error {
	if err == nil {
		return nil
	}
	source := strings.TrimSpace(p.Source())
	for _, name := range p.Members() {
		id, ok := store.ParentNamed(r.after, name)
		switch found := r.parents[id]; {
		case !ok || found.Output != nil:
		case found.Problem != "":
			err = fmt.Errorf("the output of parent %s was not kept: %s", id, found.Problem)
		default:
			err = fmt.Errorf("parent %s has no output", id)
		}
	}
	return fmt.Errorf("{{ %s }}: %w", clip(source), err)
}

// output is the output of a parent, by its id or the end of it after a colon; nil without one.
func (r *resolver) output(name string) (any, error) {
	id, _ := store.ParentNamed(r.after, name)
	if v, ok := r.outputs[id]; ok || r.parents[id].Output == nil {
		return v, nil
	}
	v, err := expression.JSON(r.parents[id].Output)
	if err != nil {
		return nil, fmt.Errorf("the output of parent %s %w", id, err)
	}
	r.outputs[id] = v
	return v, nil
}
