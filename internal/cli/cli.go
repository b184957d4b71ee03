// Package cli is the command line of tidegate: its grammar, and a body for each
// command.
package cli

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	mangokong "github.com/alecthomas/mango-kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/tidegate/tidegate/jobs"
)

// Process is what a command has of the process that it runs in.
type Process struct {
	// Args are the arguments without the name of the program.
	Args []string
	// Environ are NAME=value entries, as os.Environ returns them.
	Environ []string
	Stdin   io.Reader
	// Stdout gets the data. Terminals are recognised by being an *os.File.
	Stdout io.Writer
	// Stderr gets errors, warnings, logs and the progress bar.
	Stderr io.Writer
	// Version and Commit of the build; what is empty is taken from the build
	// information that Go puts into a binary.
	Version, Commit string

	patience   time.Duration // how long to wait for Redis; 0 is defaultPatience
	jsonErrors bool          // -o json: what goes to Stderr is JSON, one document a line
}

// grammar is the command line. What --help adds to it is in help.txt.
type grammar struct {
	Version versionFlag       `name:"version" help:"Print the version and exit."`
	Man     mangokong.ManFlag `name:"man" hidden:"" help:"Print the manual page and exit."`

	Dev     devCmd        `cmd:"" help:"Develop with one process: worker, API, dashboard and an embedded Redis."`
	Demo    demoCmd       `cmd:"" help:"See it all work in half a minute, with nothing installed."`
	Worker  workerCmd     `cmd:"" help:"Publish jobs until SIGTERM."`
	API     apiCmd        `cmd:"" name:"api" help:"Serve the HTTP API and the dashboard until SIGTERM."`
	Health  healthCmd     `cmd:"" help:"Ask the worker of this machine or container how it is."`
	Enqueue enqueueCmd    `cmd:"" help:"Enqueue a job, or a file of jobs."`
	Get     getCmd        `cmd:"" help:"Show a job, and why it waits."`
	List    listCmd       `cmd:"" help:"List jobs, the newest first."`
	History historyCmd    `cmd:"" help:"Show what happened to a job."`
	Batch   batchCmds     `cmd:"" help:"Look at batches of jobs."`
	Stats   statsCmd      `cmd:"" help:"Count the jobs of each destination."`
	Errors  errorsCmd     `cmd:"" help:"Show the most frequent errors of a destination."`
	Foresee forecastCmd   `cmd:"" name:"forecast" help:"Say when the backlog of a destination is empty, and what expires before it can start."`
	Keys    keysCmd       `cmd:"" help:"Show which keys of a destination have most waiting jobs."`
	Cancel  cancelCmd     `cmd:"" help:"Cancel jobs: they never start, and running calls are cut."`
	Complet completeCmd   `cmd:"" name:"complete" help:"Complete a job that its API has accepted."`
	Fail    failCmd       `cmd:"" help:"Fail a job that its API has accepted; its policy may retry it."`
	Pause   pauseCmd      `cmd:"" help:"Keep jobs from running until they are resumed."`
	Resume  resumeCmd     `cmd:"" help:"Let paused jobs go on."`
	Retry   retryCmd      `cmd:"" help:"Run failed and cancelled jobs again."`
	Expire  expireCmd     `cmd:"" help:"Expire jobs that wait, before their time."`
	Queue   queueCmds     `cmd:"" help:"Pause and resume whole destinations."`
	Dests   destCmds      `cmd:"" name:"destinations" help:"Forget destinations that were removed."`
	Breaker breakerCmds   `cmd:"" help:"Look at circuit breakers, open and close them."`
	Limits  limitsCmds    `cmd:"" help:"Look at the limits of APIs, set them for a time, and forget what was learned."`
	Audit   auditCmd      `cmd:"" help:"Show what operators did: when, who, what and why."`
	Doctor  doctorCmd     `cmd:"" help:"Find what crashes left behind, and repair it."`
	Alerts  alertsCmds    `cmd:"" help:"Try the alerts."`
	FakeAPI fakeAPICmd    `cmd:"" name:"fake-api" help:"Stand in for a rate-limited API in trials, until SIGTERM."`
	Token   tokenCmds     `cmd:"" help:"Make and remove tokens for the HTTP API and the dashboard."`
	Answers answersCmds   `cmd:"" help:"Try answer rules."`
	Presets presetsCmds   `cmd:"" help:"Look at what is known of APIs."`
	Simul   simulateCmd   `cmd:"" name:"simulate" help:"Compare configurations against a model of an API, in virtual time."`
	Config  configCmds    `cmd:"" help:"Look at the configuration."`
	Time    timeCmd       `cmd:"" help:"Print the time of Redis, by which jobs start and expire."`
	Info    versionDetail `cmd:"" name:"version" help:"Print version, commit and Go version."`

	Completion kongcompletion.Completion `cmd:"" help:"Print how to activate completion in bash, zsh or fish."`
}

const description = `Publishes jobs to rate-limited APIs and wastes no call on a limit that is already known.

Apps enqueue jobs, workers send them over HTTP, and a circuit breaker that all
workers share in Redis stops them when the API says 429. First steps:

    tidegate dev --fake 20/10s all in one process, with a fake API; needs nothing
    tidegate demo              see it work
    tidegate config check      what the environment configures
    tidegate worker            publish jobs
    tidegate api               serve the HTTP API and the dashboard
    tidegate enqueue --help    enqueue them

Configuration comes from environment variables such as REDIS_URL,
DESTINATION_0_NAME and DESTINATION_0_URL.

Exit status: 0 ok, 1 failed, 2 wrong input, 4 not found, 78 configuration.`

// Run runs the command that the arguments name and returns the exit status. ctx
// ends when the process is to stop.
func Run(ctx context.Context, p Process) int {
	p.jsonErrors = asksForJSON(p.Args)
	err := p.explainRefusal(ctx, p.run(ctx))
	lines := errorLines(err)
	if p.jsonErrors && len(lines) > 0 {
		lines = []string{strings.Join(lines, "\n")}
	}
	for _, line := range lines {
		p.notify("error", "tidegate: ", line)
	}
	return exitStatus(err)
}

func (p *Process) run(ctx context.Context) error {
	exited := false
	var opened *session // for commands that ask for it
	parser, err := kong.New(&grammar{},
		kong.Name("tidegate"),
		kong.Description(description),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(int) { exited = true }),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
		kong.BindToProvider(func() (s *session, err error) {
			opened, err = p.open(ctx)
			return opened, err
		}),
		kong.Vars{"statuses": joinNames(jobs.Statuses)},
	)
	if err != nil {
		return fmt.Errorf("build the command line: %w", err)
	}
	// A shell that asks for completions sets COMP_LINE: it gets them, and the process exits.
	kongcompletion.Register(parser)
	command, err := parser.Parse(p.Args)
	switch {
	case exited: // --help and --version have said all there is
		return nil
	case err != nil:
		return usageErrorOf(err, p.Args)
	}
	err = command.Run()
	if opened != nil {
		opened.close()
	}
	return err
}

// details is what --help adds for a command: "== ", its name, and the text.
//
//go:embed help.txt
var details string

// printHelp is kong's own help, with the command's details.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() == nil {
		return err
	}
	_, detail, found := strings.Cut("\n"+details, "\n== "+strings.TrimPrefix(commandPath(ctx.Selected()), "tidegate ")+"\n")
	if found {
		detail, _, _ = strings.Cut(detail, "\n== ")
		fmt.Fprintf(ctx.Stdout, "\n%s\n", strings.TrimSpace(detail))
	}
	return nil
}
