package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// The exit statuses.
const (
	exitOK       = 0
	exitFailed   = 1
	exitInput    = 2
	exitNotFound = 4
	exitConfig   = config.ExitCode
)

// inputError is about what was given on the command line or in a file.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

func inputErrorf(format string, args ...any) error {
	return &inputError{fmt.Errorf(format, args...)}
}

// notFoundError is about something that is not there.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// refusedError lists the jobs that nothing was done to, and why.
type refusedError struct{ lines []string }

func (e *refusedError) Error() string { return strings.Join(e.lines, "; ") }

// shown are the lines to print: the first ones if there are many.
func (e *refusedError) shown() []string {
	if len(e.lines) <= mostRejections {
		return e.lines
	}
	more := fmt.Sprintf("… and %d more; -o json shows all", len(e.lines)-mostRejections)
	return append(slices.Clone(e.lines[:mostRejections]), more)
}

// exitStatus translates what a command returned.
func exitStatus(err error) int {
	var (
		input    *inputError
		notFound *notFoundError
		wrong    config.Errors
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		return exitConfig
	case errors.As(err, &notFound), errors.Is(err, jobs.ErrNotFound):
		return exitNotFound
	case errors.As(err, &input), jobs.Refused(err):
		return exitInput
	}
	return exitFailed
}

// errorLines returns what went wrong: one line, or one per mistake in the
// configuration and per job that was refused.
func errorLines(err error) []string {
	var (
		wrong   config.Errors
		refused *refusedError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		lines := make([]string, len(wrong))
		for i, e := range wrong {
			lines[i] = text.OneLine(e.Error())
		}
		return lines
	case errors.As(err, &refused):
		return refused.shown()
	}
	shown := problem(err)
	if exitStatus(err) == exitFailed {
		var early *bulkError
		switch {
		case errors.Is(err, context.Canceled) && !errors.As(err, &early):
			shown = "interrupted"
		case strings.Contains(shown, "OOM command not allowed"):
			shown += "; Redis is full: raise its maxmemory, or let workers drain the queues, then try again"
		case redisTrouble(err) && !strings.Contains(shown, "REDIS_URL"):
			shown += "; check that Redis is up and that REDIS_URL is right, then try again"
		}
	}
	return []string{text.OneLine(shown)}
}

// problem is the text of an error without the names of our packages, as far as
// people can do without them.
func problem(err error) string {
	var (
		invalid *jobs.ValidationError
		unknown *jobs.UnknownDestinationError
	)
	switch {
	case errors.As(err, &unknown): // before invalid, which it wraps
		return unknown.Error()
	case errors.As(err, &invalid):
		return invalid.Error()
	}
	text := err.Error()
	for _, prefix := range []string{"redisconn: ", "jobs: ", "breaker: ", "explain: ", "publisher: ", "app: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// redisTrouble reports whether an error comes from talking to Redis.
func redisTrouble(err error) bool {
	var (
		network net.Error
		reply   redis.Error
		file    *fs.PathError
	)
	if errors.As(err, &file) { // what the system says of a file is a net.Error too
		return false
	}
	return errors.As(err, &network) || errors.As(err, &reply) || errors.Is(err, io.EOF) ||
		errors.Is(err, breaker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// usageErrorOf makes one line of kong's error, with the command whose help to
// read.
func usageErrorOf(err error, args []string) error {
	path, text := "tidegate", err.Error()
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		node := parse.Context.Selected()
		if node != nil {
			path = commandPath(node)
		} else {
			node = parse.Context.Model.Node
		}
		if len(node.Children) > 0 {
			text = commandError(text, node, args)
		} else if argument, missing := strings.CutPrefix(text, "expected \"<"); missing {
			text = strings.ToUpper(strings.TrimSuffix(argument, ">\"")) + " is missing"
		}
	}
	return inputErrorf("%s; run %q", text, path+" --help")
}

// commandError returns what is wrong where a command should have been named.
func commandError(text string, node *kong.Node, args []string) string {
	var names []string
	for _, child := range node.Children {
		names = append(names, child.Name)
	}
	switch name, unexpected := strings.CutPrefix(text, "unexpected argument "); {
	case unexpected:
		return "unknown command " + name
	case len(args) == 0 || strings.HasPrefix(text, "expected "):
		return "no command given; there are " + strings.Join(names, ", ")
	}
	return text
}

// commandPath is the command as it is typed, without its flags and arguments.
func commandPath(node *kong.Node) string {
	var names []string
	for n := node; n != nil; n = n.Parent {
		names = append(names, n.Name)
	}
	slices.Reverse(names)
	return strings.Join(names, " ")
}
