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
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
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
type inputError struct{ error }

func (e *inputError) Unwrap() error { return e.error }

func inputErrorf(format string, args ...any) error {
	return &inputError{fmt.Errorf(format, args...)}
}

// notFoundError is about something that does not exist.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// noJob is the error of an id without a job; other errors stay.
func noJob(id string, err error) error {
	if errors.Is(err, jobs.ErrNotFound) {
		return &notFoundError{fmt.Sprintf("no job has the id %q; it never existed, or its retention has ended", clip(id, 140))}
	}
	return err
}

// noDestination is the error of a named destination that is not known; other errors stay.
func noDestination(err error) error {
	unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err)
	switch {
	case !ok:
		return err
	case len(unknown.Known) == 0:
		return &notFoundError{fmt.Sprintf("destination %q is not known, and no other is: start a worker that serves it, or set its DESTINATION_ variables here too", unknown.Name)}
	}
	return &notFoundError{unknown.Error()}
}

// checkDestination refuses names that a destination cannot have.
func checkDestination(name string) error {
	if !jobs.ValidDestination(name) {
		return inputErrorf("%q cannot be the name of a destination: 1 to 63 of a-z, 0-9 and -, starting with a letter or digit", clip(name, 80))
	}
	return nil
}

// refusedError lists the jobs that nothing was done to, and why.
type refusedError struct{ lines []string }

func (e *refusedError) Error() string { return strings.Join(e.lines, "; ") }

// mostShownLines is how many lines about jobs the text output shows.
const mostShownLines = 20

// firstLines returns the first of many lines, and how many more there are.
func firstLines(lines []string) []string {
	if len(lines) <= mostShownLines {
		return lines
	}
	return append(slices.Clone(lines[:mostShownLines]), fmt.Sprintf("… and %d more; -o json shows all", len(lines)-mostShownLines))
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
		return firstLines(refused.lines)
	}
	shown := problem(err)
	if exitStatus(err) == exitFailed {
		var early *bulkError
		switch {
		case errors.Is(err, context.Canceled) && !errors.As(err, &early):
			shown = "interrupted"
		case strings.Contains(shown, "OOM command not allowed"):
			shown = "Redis is out of memory: raise its maxmemory, then try again"
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
	for _, prefix := range []string{"redisconn: ", "jobs: ", "breaker: ", "explain: ", "publisher: ", "app: ", "embedded: "} {
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
	if input, ok := errors.AsType[*inputError](err); ok { // of a command's Validate
		return input
	}
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
		return "no command given; commands: " + strings.Join(names, ", ")
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
