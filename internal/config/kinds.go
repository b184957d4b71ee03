package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/base/seal"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/keyurl"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/internal/dest/presets"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// kind is how values are read, checked, described and printed.
type kind struct {
	// read makes a value of text; nil leaves that to the env package.
	read func(string) (any, error)
	// check returns what is wrong with a value, and what to do; without it that is takes.
	check func(v variable, value string) (problem, fix string)
	// takes says what is allowed, with the bounds in the place of %s.
	takes string
	// print writes a value as in the environment, secrets masked; nil is fmt.Sprint.
	print func(reflect.Value) string
	// hidden values are in no error: URLs, because people put credentials into them, and long lists.
	hidden bool
}

const durations = ", such as 30s, 5m, 24h or 7d"

// byType are the kinds of values by their type. They replace the readers of the env
// package, because its own put the value into their errors.
var byType = map[reflect.Type]kind{
	reflect.TypeFor[string]():  {read: func(s string) (any, error) { return strings.TrimSpace(s), nil }},
	reflect.TypeFor[bool]():    {read: readBool, takes: "use true or false"},
	reflect.TypeFor[int]():     {read: readInt, takes: "use a whole number%s", print: unlessZero(func(v reflect.Value) string { return strconv.FormatInt(v.Int(), 10) })},
	reflect.TypeFor[float64](): {read: readFloat, takes: "use a number%s", print: func(v reflect.Value) string { return strconv.FormatFloat(v.Float(), 'g', -1, 64) }},
	reflect.TypeFor[time.Duration](): {
		read: readDuration, takes: "use a duration%s" + durations,
		print: func(v reflect.Value) string { return FormatDuration(time.Duration(v.Int())) },
	},
	reflect.TypeFor[OffDuration](): {read: readOffDuration, takes: "use off or a duration%s" + durations, print: func(v reflect.Value) string {
		if v.Int() == 0 {
			return off
		}
		return FormatDuration(time.Duration(v.Int()))
	}},
	reflect.TypeFor[Millis](): {
		read: func(s string) (any, error) {
			d, err := readUnits(s, time.Millisecond, "milliseconds")
			return Millis(d), err
		},
		takes: "use a whole number of milliseconds%s",
		print: unlessZero(func(v reflect.Value) string { return strconv.FormatInt(Millis(v.Int()).count(), 10) }),
	},
	reflect.TypeFor[Secs](): {
		read:  func(s string) (any, error) { d, err := readUnits(s, time.Second, "seconds"); return Secs(d), err },
		takes: "use a whole number of seconds%s",
		print: func(v reflect.Value) string { return strconv.FormatInt(v.Int()/int64(time.Second), 10) },
	},
	reflect.TypeFor[[]int](): {
		read: readStatuses, takes: "use HTTP statuses from 100 to 599 separated by commas, such as 429,503",
		print: func(v reflect.Value) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", ",") },
	},
	reflect.TypeFor[http.Header](): {read: readHeaders, takes: "use Name:Value pairs separated by commas", print: func(v reflect.Value) string {
		var parts []string
		headers := v.Interface().(http.Header)
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			for _, value := range headers[name] {
				parts = append(parts, name+":"+secret.MaskHeader(name, value))
			}
		}
		return strings.Join(parts, ",")
	}},
	reflect.TypeFor[[]string](): {
		read: readHints, takes: "use " + strings.Join(hintNames(), ", ") + ", separated by commas, or " + noHints,
		print: func(v reflect.Value) string { return cmp.Or(strings.Join(v.Interface().([]string), ","), noHints) },
	},
	reflect.TypeFor[Hosts](): {
		read: readHosts, takes: "use hosts, with the port if their URLs have one, separated by commas",
		print: func(v reflect.Value) string { return strings.Join(v.Interface().(Hosts), ",") },
	},
	reflect.TypeFor[HeaderNames](): {
		read: readHeaderNames, takes: "use names of headers, separated by commas, without Set-Cookie and those of the connection or the body",
		print: func(v reflect.Value) string { return strings.Join(v.Interface().(HeaderNames), ",") },
	},
	reflect.TypeFor[jobs.RetryPolicy](): {read: readRetry, takes: "use max=3,initial=5s and the like, or none", print: printRetry},
	reflect.TypeFor[Weights]():          {read: readWeights, takes: "use acme=3,guest=0.5", print: printWeights},
	reflect.TypeFor[breaker.Rates]():    {read: readRates, takes: "use calls per time, such as 60/1h, 10/s:5 or 100/15m,5000/1d@UTC"},
	reflect.TypeFor[Reserve]():          {read: readReserve, takes: "use parts of less than 100% together, such as high=20%,default=10%", print: printReserve},
	reflect.TypeFor[LimitUses](): {hidden: true, read: readLimitUses, takes: "use a list such as [requests, {name: tokens, estimate: payload.max_tokens}]", print: func(v reflect.Value) string {
		if v.Len() == 0 {
			return ""
		}
		return fmt.Sprint(v.Interface())
	}},
	reflect.TypeFor[slog.Level](): {print: func(v reflect.Value) string { return strings.ToLower(fmt.Sprint(v)) }},
	reflect.TypeFor[Secret]():     {},
}

// byForm are the kinds of texts that the tag form names.
var byForm = map[string]kind{
	"redis": {check: checkRedis, print: func(v reflect.Value) string { return redisconn.Redact(v.Interface().(Secret).Reveal()) }},
	"url": {hidden: true, print: maskURL, check: func(v variable, value string) (problem, fix string) {
		return checkURL(value, v.example)
	}},
	"target": {
		hidden: true,
		print:  func(v reflect.Value) string { return keyurl.Show(secret.MaskURL(keyurl.Hide(v.String()))) },
		check: func(v variable, value string) (problem, fix string) {
			if _, err := keyurl.Parse(value); err != nil && strings.Contains(value, keyurl.Place) {
				return err.Error(), "write it like https://{key}.example.com/v1"
			}
			problem, fix = checkURL(keyurl.Hide(value), v.example)
			if problem == holdsUser {
				fix = "take it out and set the AUTH_TOKEN of this destination"
			}
			return problem, fix
		},
	},
	"receiver": {hidden: true, print: maskURL, check: func(v variable, value string) (problem, fix string) {
		return checkAddress(value, strings.Replace(cmp.Or(v.example, v.def), "replace/me", "…", 1))
	}},
	"credentials key": {check: func(_ variable, value string) (problem, fix string) {
		_, err := seal.New(value)
		if err == nil {
			return "", ""
		}
		return err.Error(), "set it to what `openssl rand -base64 32` prints"
	}},
	"token":          {check: func(_ variable, value string) (problem, fix string) { return tokens.Check(value) }},
	"namespace":      {check: checkNamespace},
	"destination":    {check: checkName},
	"preset":         {takes: "use one of " + strings.Join(presets.Names(), ", ")},
	"method":         {check: checkMethod},
	"pattern":        {check: checkPattern},
	"key expression": {check: checkKeyBy},
	"header":         {check: checkHeader},
	"scheme":         {check: checkScheme},
	"address":        {check: checkListen("")},
	"address or off": {check: checkListen(", or off")},
	"channel":        {check: checkChannel, takes: "use the name or the id of a channel, such as #publishing or C0123ABCD"},
	"mention":        {check: checkMention, takes: "use a mention, such as @oncall, @here, <!subteam^S0123ABCD> or the id of a person or user group"},
}

// kindOf returns the kind of a field.
func kindOf(f reflect.StructField) kind {
	k, ok := byType[f.Type]
	if form, named := f.Tag.Lookup("form"); named {
		k, ok = byForm[form]
	}
	if !ok {
		panic("config: no kind for field " + f.Name)
	}
	return k
}

// parsers are the readers of byType, for the env package.
func parsers() map[reflect.Type]env.ParserFunc {
	out := map[reflect.Type]env.ParserFunc{}
	for t, k := range byType {
		if k.read != nil {
			out[t] = k.read
		}
	}
	return out
}

// printed writes a value as it is written in the environment, secrets masked.
func (v variable) printed(value reflect.Value) string {
	if v.kind.print != nil {
		return v.kind.print(value)
	}
	return fmt.Sprint(value.Interface())
}

func maskURL(v reflect.Value) string {
	if s, ok := reflect.TypeAssert[Secret](v); ok {
		return s.String()
	}
	return secret.MaskURL(v.String())
}

// unlessZero prints nothing for 0, which is not set.
func unlessZero(format func(reflect.Value) string) func(reflect.Value) string {
	return func(v reflect.Value) string {
		if v.IsZero() {
			return ""
		}
		return format(v)
	}
}

// allowed says in words what the variable takes.
func (v variable) allowed() string {
	if len(v.oneOf) > 0 {
		return "use " + strings.Join(v.oneOf[:len(v.oneOf)-1], ", ") + " or " + v.oneOf[len(v.oneOf)-1]
	}
	bounds := ""
	switch {
	case v.max != "":
		bounds = fmt.Sprintf(" from %s to %s", v.min, v.max)
	case v.min != "":
		bounds = fmt.Sprintf(", %s or more", v.min)
	}
	return strings.Replace(v.kind.takes, "%s", bounds, 1)
}

// check compares a value with the variable's bounds and form. The problem is
// empty if it is in order.
func (v variable) check(field reflect.Value) (problem, fix string) {
	switch {
	case v.kind.check != nil:
		return v.kind.check(v, field.String())
	case v.typ == reflect.TypeFor[OffDuration]() && field.IsZero():
	case v.min != "" && v.number(field) < v.bound(v.min):
		return "is too small", ""
	case v.max != "" && v.number(field) > v.bound(v.max):
		return "is too large", ""
	}
	return "", ""
}

// number is a value in the unit of its bounds, but durations are in ns.
func (v variable) number(field reflect.Value) float64 {
	switch v.typ {
	case reflect.TypeFor[float64]():
		return field.Float()
	case reflect.TypeFor[Millis]():
		return float64(Millis(field.Int()).count())
	case reflect.TypeFor[Secs]():
		return float64(field.Int()) / float64(time.Second)
	}
	return float64(field.Int())
}

func (v variable) bound(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		var d time.Duration
		if d, err = ParseDuration(text); err != nil {
			panic("config: bad bound in a tag: " + text)
		}
		n = float64(d)
	}
	return n
}

// unreadable is a value that could not be read. Its texts never hold the value:
// whether that may be shown is decided by the variable.
type unreadable struct{ problem, fix string }

func (u *unreadable) Error() string { return u.problem }

func readBool(s string) (any, error) {
	b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(s)))
	if err != nil {
		return nil, &unreadable{problem: "is neither true nor false"}
	}
	return b, nil
}

func readWhole(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, &unreadable{problem: "is too large to be read"}
	case err != nil:
		return 0, &unreadable{problem: "is not a whole number"}
	}
	return n, nil
}

func readInt(s string) (any, error) {
	n, err := readWhole(s)
	if err == nil && (n > math.MaxInt32 || n < math.MinInt32) {
		err = &unreadable{problem: "is too large to be read"}
	}
	return int(n), err
}

func readFloat(s string) (any, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, &unreadable{problem: "is not a finite number"}
	}
	return f, nil
}

func readDuration(s string) (any, error) {
	d, err := ParseDuration(strings.TrimSpace(s))
	if err != nil {
		problem := "is not a duration"
		if _, bare := strconv.ParseFloat(strings.TrimSpace(s), 64); bare == nil {
			problem = "has no unit"
		}
		return nil, &unreadable{problem: problem}
	}
	return d, nil
}

// off is how an alert is switched off.
const off = "off"

func isOff(s string) bool { return strings.EqualFold(strings.TrimSpace(s), off) }

func readOffDuration(s string) (any, error) {
	if isOff(s) {
		return OffDuration(0), nil
	}
	d, err := readDuration(s)
	if err != nil {
		return nil, err
	}
	return OffDuration(d.(time.Duration)), nil
}

// readUnits reads a whole number of units, and understands a duration well
// enough to say which number it would be.
func readUnits(s string, unit time.Duration, units string) (time.Duration, error) {
	n, err := readWhole(s)
	if err == nil {
		if n > math.MaxInt64/int64(unit) {
			return 0, &unreadable{problem: "is too large to be read"}
		}
		return time.Duration(max(n, -1)) * unit, nil // -1 is too small, as all below it
	}
	if d, derr := ParseDuration(strings.TrimSpace(s)); derr == nil && d > 0 && d%unit == 0 {
		return 0, &unreadable{problem: "has a unit", fix: fmt.Sprintf("write it in %s: %d", units, d/unit)}
	}
	return 0, err
}

func readStatuses(s string) (any, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, &unreadable{problem: "is not a list of HTTP statuses"}
		case n < 100 || n > 599:
			return nil, &unreadable{problem: fmt.Sprintf("holds %d, which is not an HTTP status", n)}
		case n >= 200 && n <= 299:
			return nil, &unreadable{problem: fmt.Sprintf("holds %d, which means success", n), fix: "take it out"}
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

const ofConnection = "it belongs to one connection; take it out"

// refusedHeaders are headers that Tidegate or the HTTP client sets itself, and headers
// of one connection (RFC 9110, section 7.6.1).
var refusedHeaders = map[string]string{
	"Authorization":       "set the AUTH_TOKEN of this destination instead",
	"Host":                "put the host into the URL of this destination",
	"Content-Length":      "it is set from the payload",
	"Idempotency-Key":     "it is set from the job",
	"Transfer-Encoding":   ofConnection,
	"Connection":          ofConnection,
	"Proxy-Connection":    ofConnection,
	"Keep-Alive":          ofConnection,
	"Te":                  ofConnection,
	"Trailer":             ofConnection,
	"Upgrade":             ofConnection,
	"Proxy-Authenticate":  ofConnection,
	"Proxy-Authorization": ofConnection,
}

// readHeaders never names more of the value than the name of a header: values
// may be credentials.
func readHeaders(s string) (any, error) {
	headers := http.Header{}
	for i, pair := range strings.Split(s, ",") {
		name, value, found := strings.Cut(pair, ":")
		name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
		canonical := http.CanonicalHeaderKey(name)
		var problem, fix string
		switch {
		case !found:
			problem, fix = fmt.Sprintf("item %d has no colon", i+1), "write Name:Value pairs separated by commas; a value cannot hold a comma"
		case !validToken(name):
			problem, fix = fmt.Sprintf("item %d does not start with the name of a header", i+1), "use letters, digits and hyphens before the colon"
		case !httpguts.ValidHeaderFieldValue(value):
			problem, fix = fmt.Sprintf("the value of header %s holds a line break or another control character", canonical), "take it out"
		case refusedHeaders[canonical] != "":
			problem, fix = fmt.Sprintf("header %s cannot be set here", canonical), refusedHeaders[canonical]
		}
		if problem != "" {
			return nil, &unreadable{problem, fix}
		}
		headers.Add(canonical, value)
	}
	return headers, nil
}

// noHints is how a list without hints is written.
const noHints = "none"

// hintNames are the dialects that a destination can trust.
func hintNames() []string {
	names := make([]string, len(hint.Default))
	for i, d := range hint.Default {
		names[i] = d.Name
	}
	return names
}

func readHints(s string) (any, error) {
	list := []string{}
	if strings.EqualFold(strings.TrimSpace(s), noHints) {
		return list, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name := strings.ToLower(strings.TrimSpace(part))
		switch {
		case name == noHints:
			return nil, &unreadable{problem: "holds none and something else", fix: "write none alone, or leave it out"}
		case !slices.Contains(hintNames(), name):
			fix := ""
			if near := Nearest(name, hintNames(), 3); near != "" {
				fix = "did you mean " + near + "?"
			}
			return nil, &unreadable{problem: "holds " + quote(name) + ", which is not known", fix: fix}
		case !slices.Contains(list, name):
			list = append(list, name)
		}
	}
	return list, nil
}

// readHeaderNames reads names of headers of responses.
func readHeaderNames(s string) (any, error) {
	var list HeaderNames
	for name := range strings.SplitSeq(s, ",") {
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		switch {
		case name == "":
			continue
		case !httpguts.ValidHeaderFieldName(name):
			return nil, &unreadable{problem: "holds " + quote(name) + ", which is not the name of a header"}
		case slices.Contains(ownHeaders, name), strings.HasPrefix(name, "Tidegate-"), strings.HasPrefix(name, "Access-Control-"):
			return nil, &unreadable{problem: "holds " + quote(name) + ", which cannot be passed on"}
		}
		list = append(list, name)
	}
	return list, nil
}

// ownHeaders are the headers that the gateway itself sets in a response.
var ownHeaders = []string{
	"Connection", "Content-Encoding", "Content-Length", "Content-Security-Policy", "Content-Type", "Keep-Alive", "Proxy-Authenticate",
	"Set-Cookie", "Strict-Transport-Security", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate", "X-Content-Type-Options",
}

// readHosts reads hosts such as app.example.com:8443.
func readHosts(s string) (any, error) {
	var list Hosts
	for host := range strings.SplitSeq(s, ",") {
		if host = strings.ToLower(strings.TrimSpace(host)); host == "" {
			continue
		}
		if jobs.CallbackHost("https://"+host) != host {
			return nil, &unreadable{problem: "holds " + quote(host) + ", which is not a host"}
		}
		list = append(list, host)
	}
	return list, nil
}

func readRates(s string) (any, error) {
	if isOff(s) {
		return breaker.Rates(nil), nil
	}
	r, err := breaker.ParseRates(s)
	if why := errors.Unwrap(err); why != nil {
		return nil, &unreadable{problem: "is not a rate: " + strings.ReplaceAll(why.Error(), "\n", ", ")}
	}
	if err != nil {
		return nil, &unreadable{problem: "is not a rate"}
	}
	return r, nil
}

func checkRedis(_ variable, value string) (problem, fix string) {
	_, err := redisconn.Parse(value)
	if bad, ok := errors.AsType[*redisconn.URLError](err); ok {
		return bad.Problem, bad.Fix
	}
	return "", ""
}

var destinationName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkNamespace(_ variable, name string) (problem, fix string) {
	if store.Namespace(name).Validate() != nil {
		return "is not a namespace", "use 1 to 31 lower-case letters, digits and hyphens: [a-z0-9][a-z0-9-]{0,30}"
	}
	return "", ""
}

func checkName(_ variable, name string) (problem, fix string) {
	lower := strings.ToLower(name)
	switch {
	case store.System(name):
		return "is reserved for Tidegate itself", "give this destination another name"
	case destinationName.MatchString(name):
		return "", ""
	case destinationName.MatchString(lower):
		return "is not a name for a destination", "write it in lower case: " + lower
	}
	return "is not a name for a destination", "use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen"
}

func checkMethod(_ variable, method string) (problem, fix string) {
	if !validToken(method) {
		return "is not an HTTP method", "use one such as POST, PUT or PATCH"
	}
	return "", ""
}

func checkPattern(_ variable, expr string) (problem, fix string) {
	if _, err := keyurl.Pattern(expr); err != nil {
		return err.Error(), "use one of RE2, such as [a-z0-9-]{1,40}"
	}
	return "", ""
}

func checkKeyBy(_ variable, source string) (problem, fix string) {
	if source == keyByPool {
		return "", ""
	}
	if _, err := answers.KeyBy(source); err != nil {
		return "is not a valid expression: " + err.Error(), "use one over key, request, payload and priority, such as request.path or key + \":\" + payload.model; or pool, with AUTH_POOL_FILE"
	}
	return "", ""
}

// checkHeader checks the name of a header that Tidegate sets.
func checkHeader(_ variable, name string) (problem, fix string) {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !validToken(name):
		return "is not the name of a header", "use letters, digits and hyphens, such as X-Api-Key"
	case canonical == "Content-Type", refusedHeaders[canonical] != "" && canonical != "Authorization":
		return "is a header with another meaning", "use one such as X-Api-Key"
	}
	return "", ""
}

func checkScheme(_ variable, scheme string) (problem, fix string) {
	if !validToken(scheme) {
		return "is not a scheme", "use one word, such as Bearer, Basic or none"
	}
	return "", ""
}

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// checkListen checks host:port with a port in figures. orOff is what is allowed besides.
func checkListen(orOff string) func(variable, string) (problem, fix string) {
	return func(v variable, addr string) (problem, fix string) {
		_, port, err := net.SplitHostPort(addr)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err == nil || orOff != "" && isOff(addr) {
			return "", ""
		}
		_, port, _ = net.SplitHostPort(v.def)
		return "is not an address to listen on", "write it like " + v.def + " or :" + port + ", with a port from 0 (a free one) to 65535" + orOff
	}
}

var (
	// Letters without a lower case are in the names of channels too.
	channelName = regexp.MustCompile(`^#?[\p{Ll}\p{Lm}\p{Lo}\p{M}\p{N}_-]{1,80}$`)
	channelID   = regexp.MustCompile(`^[CGD][A-Z0-9]+$`)
	personID    = regexp.MustCompile(`^[UWS][A-Z0-9]+$`)
	personName  = regexp.MustCompile(`^@[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}._-]{0,79}$`)
	// slackMention is what Slack itself writes for a mention.
	slackMention = regexp.MustCompile(`^<(@[UW][A-Z0-9]+|!subteam\^S[A-Z0-9]+|!here|!channel|!everyone)>$`)
)

func checkChannel(_ variable, s string) (problem, fix string) {
	lower := strings.ToLower(s)
	switch {
	case channelName.MatchString(s), channelID.MatchString(s) && likeID(s):
		return "", ""
	case channelName.MatchString(lower):
		fix = "write its name in lower case: " + lower
	}
	return "is not the name or id of a channel", fix
}

func checkMention(_ variable, s string) (problem, fix string) {
	switch {
	case personName.MatchString(s), slackMention.MatchString(s), personID.MatchString(s) && likeID(s):
		return "", ""
	case personName.MatchString("@" + s):
		fix = "write @" + s + ", or the id of a person or user group"
	}
	return "is not a mention", fix
}

// likeID distinguishes an id of Slack from a word in capitals: ids are long or hold a
// digit.
func likeID(s string) bool { return len(s) >= 9 || strings.ContainsAny(s, "0123456789") }

// quote shows a value in an error.
func quote(s string) string { return text.Quote(s, 41) }
