package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/ops"
)

type tokenCmds struct {
	New    tokenNewCmd    `cmd:"" help:"Make a token for the HTTP API and the dashboard."`
	List   tokenListCmd   `cmd:"" help:"List the tokens of a file."`
	Remove tokenRemoveCmd `cmd:"" help:"Remove tokens from a file: they and their sessions end at once."`
}

type tokenNewCmd struct {
	Name    string `required:"" placeholder:"NAME" help:"Whose it is: an app or a person, for the log and the history."`
	Scope   string `required:"" placeholder:"SCOPE,SCOPE" help:"What it allows: enqueue, read, payloads, operate."`
	Expires string `placeholder:"90d" help:"Lifetime: 12h, 90d, 52w. Default: no expiry."`

	Destination []string `sep:"none" placeholder:"'shop*'" help:"Bind it to destinations that match, with * and ?; may be repeated."`
	Key         []string `sep:"none" placeholder:"'acme:*'" help:"Bind it to jobs with keys that match; may be repeated."`
	MaxBacklog  *int     `placeholder:"N" help:"Unfinished jobs that tokens of the name may have; more are refused with 429."`
	Rate        *string  `placeholder:"100/1s" help:"Jobs and permits for a time that the name may enqueue; more are refused with 429."`

	File   string `placeholder:"FILE" help:"Add its entry to this file, which is made if it is not there."`
	Reason reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// newToken is the output of token new in JSON.
type newToken struct {
	Token string       `json:"token"`
	Entry access.Entry `json:"entry"`
	// File that the entry was added to, "" for none.
	File string `json:"file,omitempty"`
}

// auditToken records what was done to tokens if REDIS_URL is set: tokens need no Redis. Without it a warning says so.
func (p *Process) auditToken(ctx context.Context, e ops.AuditEntry) {
	if p.env("REDIS_URL") == "" && p.env("REDIS_URL_FILE") == "" {
		return
	}
	cfg, _, err := config.LoadForAPI(p.Environ) // the secrets of destinations may be elsewhere
	var s *session
	if err == nil {
		s, err = p.connect(ctx, cfg)
	}
	if err != nil {
		p.warn("it was done, but is not in the audit: " + problem(err))
		return
	}
	defer s.close()
	e.By = p.why("").By
	s.Record(ctx, e)
}

// Run makes a token.
func (c *tokenNewCmd) Run(ctx context.Context, p *Process) error {
	scopes, err := access.ParseScopes(c.Scope)
	if err != nil {
		return inputErrorf("--scope: %w", err)
	}
	now := time.Now().UTC()
	token, entry, err := access.NewToken(c.Name, scopes, now)
	if err != nil {
		return inputErrorf("--name: %w", err)
	}
	entry.Bounds = access.Bounds{Destinations: c.Destination, Keys: c.Key}
	if n := c.MaxBacklog; n != nil {
		entry.MaxBacklog = cmp.Or(*n, -1) // 0 would be no bound
	}
	if r := c.Rate; r != nil {
		entry.Rate = cmp.Or(*r, "0") // as would be an empty variable
	}
	if err := entry.Check(c.Name); err != nil {
		return inputErrorf("the bounds: %w", err)
	}
	if c.Expires != "" {
		length, err := config.ParseDuration(c.Expires)
		if err != nil {
			return inputErrorf("--expires: %w", err)
		}
		if length < time.Second {
			return inputErrorf("--expires must be more than 0, such as 90d; leave it out for a token that is good for good")
		}
		at := now.Add(length).Truncate(time.Second)
		entry.ExpiresAt = &at
	}
	if c.File != "" {
		err := access.UpdateFile(c.File, func(all []access.Entry) ([]access.Entry, error) { return append(all, entry), nil })
		if err != nil {
			return tokensFileError("token new", err)
		}
	}
	p.auditToken(ctx, ops.AuditEntry{Action: "new token", Target: entry.Name + " " + entry.ID(), Detail: strings.Join(append([]string{joinNames(entry.Scopes)}, entry.List()...), ", "), Reason: string(c.Reason), Count: 1})
	if c.json() {
		return p.printJSON(newToken{token, entry, c.File})
	}
	return c.print(p, token, entry)
}

func (c *tokenNewCmd) print(p *Process, token string, entry access.Entry) error {
	var b bytes.Buffer
	// What is said of it goes where a script does not take it for a part of the token.
	fmt.Fprintln(&b, "This is the token; it is not shown again.")
	if c.File != "" {
		fmt.Fprintf(&b, "Its entry is in %s, where it is called %s.\n", text.OneLine(c.File), entry.ID())
	} else {
		line, err := json.Marshal(entry)
		if err != nil {
			return fmt.Errorf("token new: %w", err)
		}
		fmt.Fprintf(&b, "Its entry, for the list \"tokens\" of API_TOKENS_FILE (--file does that):\n\n%s\n", line)
	}
	if _, err := p.Stderr.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return p.write([]byte(token + "\n"))
}

// tokensFile is part of the commands that look at a file of tokens.
type tokensFile struct {
	File string `placeholder:"FILE" help:"The file; default API_TOKENS_FILE."`
}

// path is the file's.
func (f tokensFile) path(p *Process) (string, error) {
	if path := cmp.Or(f.File, p.env("API_TOKENS_FILE")); path != "" {
		return path, nil
	}
	return "", inputErrorf("which file? Give --file, or set API_TOKENS_FILE")
}

type tokenListCmd struct {
	tokensFile
	outputFlag
}

// listedToken is a token in JSON.
type listedToken struct {
	ID string `json:"id"`
	access.Entry
	Expired bool `json:"expired"`
}

// Run lists the tokens.
func (c *tokenListCmd) Run(p *Process) error {
	path, err := c.path(p)
	if err != nil {
		return err
	}
	entries, _, err := access.ReadFile(path)
	if err != nil {
		return tokensFileError("token list", fmt.Errorf("file %q: %w", path, err))
	}
	now := time.Now()
	items := make([]listedToken, len(entries))
	for i, e := range entries {
		items[i] = listedToken{e.ID(), e, e.Expired(now)}
	}
	return table[listedToken]{
		none: "there are no tokens; make one with: tidegate token new",
		head: []string{"ID", "NAME", "SCOPES", "CREATED", "EXPIRES", "BOUND TO"},
		row: func(t listedToken) []string {
			expires := day(t.ExpiresAt, "never")
			if t.Expired {
				expires += " (expired)"
			}
			return []string{t.ID, t.Name, strings.ReplaceAll(joinNames(t.Scopes), ", ", ","), day(t.Created, "-"), expires, cmp.Or(strings.Join(t.List(), ","), "-")}
		},
	}.print(p, c.outputFlag, ops.Page[listedToken]{Items: items})
}

// day is a time to the minute, in UTC.
func day(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04Z")
}

type tokenRemoveCmd struct {
	IDs []string `arg:"" optional:"" name:"id" help:"The tokens' ids, as \"tidegate token list\" prints them."`
	tokensFile
	Name    string `placeholder:"NAME" help:"All tokens of this name."`
	Expired bool   `help:"All tokens that have expired."`
	Reason  reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// Run removes tokens.
func (c *tokenRemoveCmd) Run(ctx context.Context, p *Process) error {
	if len(c.IDs) == 0 && c.Name == "" && !c.Expired {
		return inputErrorf("which ones? Give ids, --name or --expired")
	}
	path, err := c.path(p)
	if err != nil {
		return err
	}
	// A file that is not there would be made.
	if _, _, err := access.ReadFile(path); err != nil {
		return tokensFileError("token remove", fmt.Errorf("file %q: %w", path, err))
	}
	var removed, left int
	var names []string
	now := time.Now()
	err = access.UpdateFile(path, func(all []access.Entry) ([]access.Entry, error) {
		for _, id := range c.IDs {
			if !slices.ContainsFunc(all, func(e access.Entry) bool { return e.ID() == id }) {
				return nil, &notFoundError{fmt.Sprintf("no token has the id %q in %q, see tidegate token list; nothing was removed", id, path)}
			}
		}
		kept := slices.DeleteFunc(slices.Clone(all), func(e access.Entry) bool {
			return slices.Contains(c.IDs, e.ID()) || c.Name != "" && e.Name == c.Name || c.Expired && e.Expired(now)
		})
		removed, left, names = len(all)-len(kept), len(kept), nil
		for _, e := range all {
			if !slices.ContainsFunc(kept, func(k access.Entry) bool { return k.Hash == e.Hash }) {
				names = append(names, e.Name+" "+e.ID())
			}
		}
		if removed == 0 && c.Name != "" {
			return nil, &notFoundError{fmt.Sprintf("no token of the name %q is in %q", c.Name, path)}
		}
		return kept, nil
	})
	if err != nil {
		return tokensFileError("token remove", err)
	}
	if removed > 0 {
		p.auditToken(ctx, ops.AuditEntry{Action: "remove tokens", Target: strings.Join(names, ", "), Reason: string(c.Reason), Count: removed})
	}
	return c.say(p, map[string]int{"removed": removed, "left": left}, "%s removed, %d left\n", plural(removed, "token was", "tokens were"), left)
}

// tokensFileError is wrong input where the file is not in order, or cannot be used.
func tokensFileError(command string, err error) error {
	if _, ok := errors.AsType[tokens.Errors](err); ok {
		return inputErrorf("%w", err)
	}
	if _, ok := errors.AsType[*notFoundError](err); ok {
		return err
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return inputErrorf("file %q cannot be written: %w", path.Path, path.Err)
	}
	return fmt.Errorf("%s: %w", command, err)
}
