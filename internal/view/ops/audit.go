package ops

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
)

// AuditEntry is an act of an operator.
type AuditEntry struct {
	ID     string    `json:"id" doc:"Its id; the order of ids is that of time." example:"1893456000000-0"`
	At     time.Time `json:"at" doc:"When it was done." example:"2030-01-31T14:35:00Z"`
	By     string    `json:"by" doc:"The operator: user@host of a command, token:name of the API and the dashboard, local without tokens." example:"token:ann"`
	Action string    `json:"action" doc:"What was done." example:"cancel jobs"`
	Target string    `json:"target" doc:"To what: a destination, a breaker, a limit, a filter, or the ids of jobs, ten at most." example:"failed jobs of shop"`
	Detail string    `json:"detail" doc:"More about it, such as for how long; may be empty." example:"for 10m0s"`
	Reason string    `json:"reason" doc:"Why; empty: not given." example:"wrong file"`
	Count  int       `json:"count" doc:"How many jobs, findings or tokens it was about; 0: it was not about these." example:"1198"`
}

const (
	// mostAudited bounds the entries that are kept.
	mostAudited = 10_000
	// mostAuditedOfTenant bounds the entries by one tenant: the tokens of one name that are confined to a tenant's
	// jobs. All tenants together have half of the entries.
	mostAuditedOfTenant = 500
	// Bounds of the fields of an entry, in characters.
	mostAuditName, mostAuditText = 200, 500
	// auditPatience bounds the write of an entry, auditPage the entries of one read.
	auditPatience = 2 * time.Second
	auditPage     = 1000
)

// acted records an act, logs it, and makes the cache forget what was read before it. With an error it was not done,
// or only the jobs of the attribute count.
func (s *System) acted(ctx context.Context, act, target string, err error, why Why, attrs ...slog.Attr) {
	s.logActed(ctx, act, target, err, why, attrs...)
	e := AuditEntry{By: why.By, Action: act, Target: target, Reason: why.Reason}
	var details []string
	counted := false
	for _, a := range attrs {
		switch {
		case a.Key == "count":
			e.Count, counted = int(a.Value.Int64()), true
		case a.Value.Kind() == slog.KindString:
			details = append(details, a.Value.String())
		case a.Value.Int64() > 0:
			details = append(details, a.Key+" "+a.Value.String())
		}
	}
	if err != nil {
		details = append(details, "then it failed")
	}
	e.Detail = strings.Join(details, ", ")
	if counted && e.Count > 0 || !counted && err == nil {
		s.Record(ctx, e)
	}
}

// logActed is acted without a record, of an act that changed nothing.
func (s *System) logActed(ctx context.Context, act, target string, err error, why Why, attrs ...slog.Attr) {
	if s.cache != nil {
		s.cache.Forget()
	}
	if s.log == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	attrs = append([]slog.Attr{slog.String("target", target)}, attrs...)
	access.Audit(ctx, s.log, act, append(attrs, slog.String("result", result), slog.String("reason", why.Reason))...)
}

// Record adds an act to the audit, which keeps the last 10,000. If it cannot, it logs the error: the act is done.
func (s *System) Record(ctx context.Context, e AuditEntry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	tenant, most := "", 0
	if id, _ := access.From(ctx); id.Confined() {
		tenant, most = id.Name, mostAuditedOfTenant
	}
	err := s.namespace().RecordAct(ctx, s.rdb, mostAudited, tenant, most,
		"by", cut(e.By, mostAuditName), "action", cut(e.Action, mostAuditName), "target", cut(e.Target, mostAuditText),
		"detail", cut(e.Detail, mostAuditText), "reason", cut(e.Reason, mostAuditText), "count", e.Count)
	if err != nil && s.log != nil {
		s.log.ErrorContext(ctx, "an act was done, but could not be recorded in the audit", "action", e.Action, "target", e.Target, "error", err)
	}
}

func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// AuditQuery selects acts; what is zero selects all.
type AuditQuery struct {
	Since, Until time.Time
	// Who and Action are parts of the texts.
	Who, Action string
	// Limit is how many at most, 1 or more; Cursor the Next of the page before.
	Limit  int
	Cursor string
}

var auditID = regexp.MustCompile(`^(\d{1,15})-(\d{1,18})$`)

// Audit returns a page of the acts of operators, the newest first. The error may be ErrCursor.
func (s *System) Audit(ctx context.Context, q AuditQuery) (page Page[AuditEntry], err error) {
	page.Items = []AuditEntry{}
	from, to := "-", "+"
	if !q.Since.IsZero() {
		from = strconv.FormatInt(max(0, q.Since.UnixMilli()), 10)
	}
	if !q.Until.IsZero() {
		to = strconv.FormatInt(max(0, q.Until.UnixMilli()), 10)
	}
	if q.Cursor != "" {
		if !auditID.MatchString(q.Cursor) {
			return page, ErrCursor
		}
		to = before(q.Cursor)
	}
	for range mostAudited/auditPage + 1 {
		found, err := s.rdb.XRevRangeN(ctx, s.namespace().AuditKey(), to, from, auditPage).Result()
		if err != nil {
			return page, fmt.Errorf("read the audit: %w", err)
		}
		for _, m := range found {
			e := entryOf(m)
			if !strings.Contains(e.By, q.Who) || !strings.Contains(e.Action, q.Action) {
				continue
			}
			if len(page.Items) == q.Limit {
				page.Next = page.Items[q.Limit-1].ID
				return page, nil
			}
			page.Items = append(page.Items, e)
		}
		if len(found) < auditPage {
			break
		}
		to = before(found[len(found)-1].ID)
	}
	return page, nil
}

// before is the largest id below one.
func before(id string) string {
	ms, seq, _ := strings.Cut(id, "-")
	if n, _ := strconv.ParseInt(seq, 10, 64); n > 0 {
		return ms + "-" + strconv.FormatInt(n-1, 10)
	}
	n, _ := strconv.ParseInt(ms, 10, 64)
	return strconv.FormatInt(max(0, n-1), 10)
}

func entryOf(m redis.XMessage) AuditEntry {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	e := AuditEntry{ID: m.ID, By: text("by"), Action: text("action"), Target: text("target"), Detail: text("detail"), Reason: text("reason")}
	e.Count, _ = strconv.Atoi(text("count"))
	ms, _, _ := strings.Cut(m.ID, "-")
	at, _ := strconv.ParseInt(ms, 10, 64)
	e.At = time.UnixMilli(at).UTC()
	return e
}

func (s *System) namespace() store.Namespace { return store.Namespace(s.client.Namespace()) }
