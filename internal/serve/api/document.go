package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

//go:generate go test -run ^TestOpenAPI$ -count=1 . -args -update

// securityName names the security scheme in the document.
const securityName = "token"

// The groups of operations.
const (
	tagEnqueue      = "Enqueue"
	tagJobs         = "Jobs"
	tagActions      = "Actions"
	tagBreakers     = "Breakers"
	tagDestinations = "Destinations"
	tagEvents       = "Events"
	tagPermits      = "Permits"
	tagGateway      = "Gateway"
)

const introduction = `Tidegate publishes jobs to rate-limited APIs and holds them while a circuit breaker is open. This API enqueues jobs, shows their status, and operates breakers and destinations.

**Authorization.** Send a token: ` + "`Authorization: Bearer tg_…`" + `. Its scopes say what it allows: ` + "`enqueue`" + ` to enqueue; ` + "`read`" + ` to look at jobs without what they carry; ` + "`payloads`" + ` to see payloads, queries, headers and responses too; ` + "`operate`" + ` to act on jobs, breakers and destinations, which includes ` + "`read`" + ` and ` + "`payloads`" + `. An action is logged, and stands in the history of jobs and breakers, under the name of the token. To a token that is bound to destinations or keys nothing else exists; its ids and batches begin with its name and a colon, which it may leave out.

**Errors** are problems of RFC 9457, application/problem+json: ` + "`detail`" + ` says what is wrong and what to do, ` + "`errors`" + ` names each wrong field at once. 503 comes with Retry-After: Redis is away, or full.

**Times** are RFC 3339 in UTC. **Ids, keys and batches** match ` + "`[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}`" + `, **destinations** ` + "`[a-z0-9][a-z0-9-]{0,62}`" + `.`

func humaConfig() huma.Config {
	config := huma.DefaultConfig("Tidegate", "1")
	config.CreateHooks = nil // no $schema in answers
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[breaker.Budget](), reflect.TypeFor[orNull[Budget]]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[breaker.RateStatus](), reflect.TypeFor[orNull[Rate]]())
	config.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[jobs.UnreachableInfo](), reflect.TypeFor[Unreachable]())
	config.Info.Description = introduction
	config.Info.License = &huma.License{Name: "MIT", Identifier: "MIT"}
	config.Servers = []*huma.Server{{URL: "/", Description: "where this document comes from"}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		securityName: {Type: "http", Scheme: "bearer", Description: "A token of the file API_TOKENS_FILE; make one with: tidegate token new. The names behind it in an operation are the scopes that it needs. Without a tokens file, which is possible on a loopback address only, none is needed."},
	}
	config.Tags = []*huma.Tag{
		{Name: tagEnqueue, Description: "Enqueue jobs."},
		{Name: tagJobs, Description: "Read jobs and batches."},
		{Name: tagActions, Description: "Cancel, pause, resume, retry and complete jobs."},
		{Name: tagBreakers, Description: "The circuit breakers of destinations and keys."},
		{Name: tagDestinations, Description: "Destinations, their workers and figures."},
		{Name: tagEvents, Description: "Stream events as they happen."},
		{Name: tagPermits, Description: "Call an API yourself, under the same breaker and limits."},
		{Name: tagGateway, Description: "Publish requests as they are."},
	}
	return config
}

func init() { //nolint:gochecknoinits // the router has no other place for it
	huma.NewError = problemOfHuma
	huma.DefaultArrayNullable = false // an empty list is []
}

// document is the OpenAPI document, in indented JSON.
func document(h huma.API) []byte {
	doc := h.OpenAPI()
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				explainAnswers(op)
				for _, p := range op.Parameters {
					p.Schema.PatternDescription = "" // only for messages; not a keyword of JSON Schema
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas.Map() {
		if !slices.Contains(strict, name) {
			schema.AdditionalProperties = nil // later versions may add fields
		}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		panic("api: the OpenAPI document cannot be written: " + err.Error()) // it is our own text
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		panic("api: the OpenAPI document is no JSON: " + err.Error())
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// strict are the schemas without additional properties: of bodies, and of responses that would
// otherwise match another schema.
var strict = []string{"Completion", "KnownJob", "Reason", "RetryOptions", "RetrySelection", "Selection", "Trip"}

// errorTexts describe the error responses.
var errorTexts = map[int]string{
	http.StatusBadRequest:            "The body is not valid JSON, or the query is malformed.",
	http.StatusUnauthorized:          "The token is missing, unknown or has expired.",
	http.StatusForbidden:             "The token lacks the scope, or is bound to destinations or keys and this is not of one.",
	http.StatusNotFound:              "There is no such thing, or not within what the token is bound to.",
	http.StatusGone:                  "The token has been used, or its attempt has ended.",
	http.StatusRequestTimeout:        "The body came too slowly.",
	http.StatusConflict:              "The job's status does not allow it, its id is taken by another token's name, or the destination is in use.",
	http.StatusRequestEntityTooLarge: "The body is too large, or the array too long.",
	http.StatusUnsupportedMediaType:  "The Content-Type is missing or not accepted, or the body is encoded; then Accept-Encoding is identity.",
	http.StatusUnprocessableEntity:   "What was sent cannot be accepted; errors names each wrong field.",
	http.StatusTooManyRequests:       "The token's quota is used up, or too many wrong tokens came from this address; Retry-After says when to try again.",
	http.StatusInternalServerError:   "Something went wrong that should not.",
	http.StatusServiceUnavailable:    "Redis is away or full; Retry-After says when to try again.",
}

// explainAnswers sets the descriptions of the responses of an operation.
func explainAnswers(op *huma.Operation) {
	for status, response := range op.Responses {
		code, err := strconv.Atoi(status)
		if err != nil || code < http.StatusBadRequest {
			if response.Description == http.StatusText(code) {
				response.Description = "Success."
			}
			continue
		}
		response.Description = errorTexts[code]
		if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
			response.Headers = map[string]*huma.Param{
				"Retry-After": {Description: "Seconds.", Schema: &huma.Schema{Type: huma.TypeInteger}, Example: retrySoon},
			}
		}
	}
}

// addByHand adds an operation to the document whose handler huma does not call.
func (a *api) addByHand(o operation, body *huma.RequestBody, answers map[int]*huma.Response, params ...*huma.Param) {
	op := a.describe(o)
	op.RequestBody, op.Parameters = body, params
	op.Responses = map[string]*huma.Response{}
	for status, response := range answers {
		op.Responses[strconv.Itoa(status)] = response
	}
	for _, status := range append(op.Errors, http.StatusInternalServerError) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: errorTexts[status],
			Content:     map[string]*huma.MediaType{problemType: {Schema: schemaOf[Problem](a)}},
		}
	}
	a.huma.OpenAPI().AddOperation(&op)
}

func schemaOf[D any](a *api) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[D](), true, "")
}

// named adds a schema to the components.
func (a *api) named(name string, s *huma.Schema) *huma.Schema {
	a.huma.OpenAPI().Components.Schemas.Map()[name] = s
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// enqueueOperations are POST /v1/jobs.
func (a *api) enqueueOperations() {
	one, many := schemaOf[NewJob](a), schemaOf[Enqueued](a)
	sent := a.named("JobsToEnqueue", &huma.Schema{
		Description: "One job, or an array of jobs.", OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MaxItems: new(mostItems)}},
	})
	answered := a.named("EnqueueAnswer", &huma.Schema{
		Description: "Of one job the job, or a KnownJob; of many what became of each.", OneOf: []*huma.Schema{schemaOf[Job](a), many, schemaOf[KnownJob](a)},
	})
	example := map[string]any{"destination": "deviantart", "payload": map[string]any{"title": "Sunset"}, "id": "post-7", "ttl": "24h"}
	answer := func(text string) *huma.Response {
		return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
			jsonType: {Schema: answered},
		}}
	}
	created := answer("It was enqueued. Of many: at least one was, and items says what became of each.")
	created.Headers = map[string]*huma.Param{
		"Location":    {Description: "Of one job: its path.", Schema: &huma.Schema{Type: huma.TypeString}, Example: "/v1/jobs/post-7"},
		warningHeader: {Description: "Destinations of these jobs that no worker serves any more: the jobs wait until one does. Repeated for each, five at most.", Schema: &huma.Schema{Type: huma.TypeString}, Example: "no worker has served deviantart for 3m; its jobs wait until one does"},
	}
	existed := answer("Its id existed: duplicate is true, and nothing was enqueued. Of many: all that are not refused existed.")
	existed.Content[ndjsonType] = &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Description: "With Accept: application/x-ndjson, of lines: each an item of Enqueued, and last the counts.",
		Examples: []any{"{\"index\":0,\"line\":1,\"id\":\"post-7\",\"status\":\"pending\",\"duplicate\":false}\n{\"answered\":1,\"accepted\":1,\"duplicates\":0,\"rejected\":0}\n"},
	}}
	a.addByHand(operation{
		method: http.MethodPost, path: "/v1/jobs", id: "enqueue-jobs", tag: tagEnqueue, scope: access.ScopeEnqueue, conflict: true, missing: true,
		summary: "Enqueue jobs",
		description: "Takes one job as an object, up to 10,000 as an array of up to 32 MiB, or any number as lines (application/x-ndjson), which are enqueued while they come in.\n\n" +
			"One job is answered as it stands: 201, or 200 with `duplicate` true if its id existed, redacted unless the token may see payloads, and no more than a KnownJob unless it may read. An id that another token's name took is refused with 409. " +
			"Of many each is judged by itself; the answer is 201 if any was enqueued, 200 if all of them existed, 422 if all were refused. An array that is no JSON or too long enqueues nothing.\n\n" +
			"With `Accept: application/x-ndjson` the answer to lines is lines too, always 200: what became of each job, as items of the schema Enqueued, while more come in, and last the counts, or a problem if it ended early (one without `index`). Read while you send: a caller that takes no answers for 30 s is cut off.\n\n" +
			"Fields that Tidegate sets, such as status, are passed over, so that a job that was got can be enqueued again; others are refused. " +
			"After a 503 or a broken connection jobs with an id can be sent again safely.",
	}, &huma.RequestBody{
		Required: true, Description: "Jobs.",
		Content: map[string]*huma.MediaType{
			jsonType: {
				Schema: sent,
				Examples: map[string]*huma.Example{
					"a-job":    {Summary: "One job", Value: example},
					"an-array": {Summary: "An array", Value: []any{example, map[string]any{"destination": "deviantart", "payload": 7, "key": "alice"}}},
				},
			},
			ndjsonType: {Schema: &huma.Schema{
				Type: huma.TypeString, Description: "Lines, each a job. Empty lines are passed over; a bad line stops no other.",
				Examples: []any{"{\"destination\":\"deviantart\",\"payload\":1}\n{\"destination\":\"deviantart\",\"payload\":2}\n"},
			}},
		},
	}, map[int]*huma.Response{
		http.StatusCreated: created,
		http.StatusOK:      existed,
	})
	a.mux.HandleFunc("POST /v1/jobs", a.enqueue)
}

// eventOperations are GET /v1/events.
func (a *api) eventOperations() {
	text := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }
	a.addByHand(operation{
		method: http.MethodGet, path: "/v1/events", id: "stream-events", tag: tagEvents, scope: access.ScopeRead, missing: true,
		summary: "Stream events",
		description: "Server-sent events of jobs that end, breakers that change, and destinations that are paused or resumed. Each has its type in `event`, an `id`, and JSON in `data`: of a job id, destination, key, batch, status, at, attempt, reschedule_count, response_status and last_error; of a breaker as in its history.\n\n" +
			"A comment comes every 15 s while nothing happens. Who comes back with Last-Event-ID, as browsers do by themselves, hears what was missed; an event may be heard twice, with the same id. " +
			"`event: gap` says that events may be missing before the next. Too slow a reader is cut off, and can come back in the same way.",
	}, nil, map[int]*huma.Response{
		http.StatusOK: {Description: "Events, without an end.", Content: map[string]*huma.MediaType{"text/event-stream": {
			Schema:  text(),
			Example: "event: job.completed\nid: 1896186900000-0:deviantart:default\ndata: {\"id\":\"post-7\",\"destination\":\"deviantart\",\"status\":\"completed\"}\n\n",
		}}},
	},
		&huma.Param{Name: "type", In: "query", Description: "Only events of this type: job, job.completed, job.failed, job.cancelled, job.expired, breaker, destination. Several may be given, each by itself or separated by commas.", Explode: new(true), Schema: &huma.Schema{Type: huma.TypeArray, Items: text()}, Example: []string{"job", "breaker"}},
		&huma.Param{Name: "destination", In: "query", Description: "Only of this destination.", Schema: text(), Example: "deviantart"},
		&huma.Param{Name: "responses", In: "query", Description: "true: events of jobs have the response, too, as lists show it. The token needs the scope payloads or operate.", Schema: &huma.Schema{Type: huma.TypeBoolean}, Example: true},
		&huma.Param{Name: "after", In: "query", Description: "As Last-Event-ID, for clients that cannot set a header.", Schema: text(), Example: "1896186900000-0:deviantart:default"},
		&huma.Param{Name: "Last-Event-ID", In: "header", Description: "The id of the last event that was received; without it the stream begins now.", Schema: text(), Example: "1896186900000-0:deviantart:default"},
	)
	a.mux.HandleFunc("GET /v1/events", a.streamEvents)
}

// serveDocument is GET /openapi.json.
func (a *api) serveDocument(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(a.document)))
	_, _ = w.Write(a.document)
}
