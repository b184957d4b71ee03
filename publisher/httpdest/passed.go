package httpdest

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/jobs"
)

// maxPassedHeaders bounds the headers of a response that are kept for the caller of the gateway, in bytes.
const maxPassedHeaders = 8 << 10

// passedPattern matches the headers, in lower case, that the gateway passes to its caller.
var passedPattern = regexp.MustCompile(`^(link|etag|last-modified|location|retry-after|content-disposition|cf-ray` +
	`|x-(total|page|per-page|next-page|prev-page)(-.*)?|(.*-)?(request-?id|correlation-id|trace-id|req-id)|(.*-)?rate-?limit(-.*)?)$`)

// linkTarget matches the target of a link (RFC 8288).
var linkTarget = regexp.MustCompile(`<[^<>]*>`)

// passedHeaders returns the headers of a response for the caller of the gateway, as lines "Name: value". URLs below
// the destination's are paths of the gateway, which the API process completes. A header for which there is no room
// is left out.
func (h *Destination) passedHeaders(job *jobs.Job, resp *http.Response, r *secret.Redactor) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if !passedPattern.MatchString(strings.ToLower(name)) && !slices.ContainsFunc(h.o.GatewayHeaders, func(listed string) bool { return strings.EqualFold(listed, name) }) {
			continue
		}
		value := strings.Join(resp.Header[name], ", ")
		switch name {
		case "Link":
			value = linkTarget.ReplaceAllStringFunc(value, func(target string) string {
				return "<" + h.throughGateway(job, resp, strings.Trim(target, "<>")) + ">"
			})
		case hiddenLocation:
			name, value = "Location", h.throughGateway(job, resp, value)
			if resp.StatusCode/100 == 3 && !strings.HasPrefix(value, "/to/") {
				continue // the caller would send its token there
			}
		}
		if value = r.Redact(value); httpguts.ValidHeaderFieldValue(value) && out.Len()+len(name)+len(value)+3 <= maxPassedHeaders {
			out.WriteString(name + ": " + value + "\n")
		}
	}
	return out.String()
}

// throughGateway returns the path by which the gateway reaches a URL below the destination's, without the parameters
// that the destination sets; another URL as it is, but absolute.
func (h *Destination) throughGateway(job *jobs.Job, resp *http.Response, target string) string {
	base, err := h.base.With(job.Key)
	if err != nil || resp.Request == nil {
		return target
	}
	u, err := resp.Request.URL.Parse(target)
	if err != nil {
		return target
	}
	path, below := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/"))
	if !strings.EqualFold(u.Host, base.Host) || u.Scheme != base.Scheme || !below || path != "" && path[0] != '/' {
		return u.String()
	}
	var query []string
	for parameter := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(parameter, "=")
		if name, _ = url.QueryUnescape(name); parameter != "" && name != h.o.AuthQuery && !base.Query().Has(name) {
			query = append(query, parameter)
		}
	}
	out := "/to/" + job.Destination + path
	if len(query) > 0 {
		out += "?" + strings.Join(query, "&")
	}
	return out
}
