package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// fleet is the worker processes of one run.
type fleet struct {
	workers []*process
	stopped bool
}

// process is one worker.
type process struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	answer *bufio.Reader
	errs   bytes.Buffer
	tally  tally
}

func newFleet(ctx context.Context, t task) *fleet {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and numbers
	}
	f := &fleet{}
	for range workers {
		p := &process{}
		// Not killed when ctx ends: stop gives it the time to end by itself.
		p.cmd = exec.CommandContext(context.WithoutCancel(ctx), self())
		p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
		p.cmd.Stderr = &p.errs
		f.workers = append(f.workers, p)
	}
	return f
}

// self is this program's file.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// start returns when all workers are connected.
func (f *fleet) start() error {
	for _, p := range f.workers {
		orders, err := p.cmd.StdinPipe()
		if err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		answers, err := p.cmd.StdoutPipe()
		if err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		if err := p.cmd.Start(); err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		p.orders, p.answer = orders, bufio.NewReader(answers)
	}
	for _, p := range f.workers {
		if _, err := p.answer.ReadString('\n'); err != nil {
			return fmt.Errorf("start worker: %w: %s", err, &p.errs)
		}
	}
	return nil
}

// begin lets all workers publish.
func (f *fleet) begin() error {
	for _, p := range f.workers {
		if _, err := io.WriteString(p.orders, "go\n"); err != nil {
			return fmt.Errorf("begin: %w: %s", err, &p.errs)
		}
	}
	return nil
}

// stop ends all workers in an orderly way and takes their tallies.
func (f *fleet) stop() error {
	if f.stopped {
		return nil
	}
	f.stopped = true
	var errs []error
	for _, p := range f.workers {
		if p.orders != nil {
			_ = p.orders.Close()
		}
	}
	for _, p := range f.workers {
		if p.answer == nil {
			continue
		}
		kill := time.AfterFunc(2*callTimeout, func() { _ = p.cmd.Process.Kill() })
		if err := json.NewDecoder(p.answer).Decode(&p.tally); err != nil && !errors.Is(err, io.EOF) {
			errs = append(errs, fmt.Errorf("worker's tally: %w", err))
		}
		if err := p.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("worker: %w: %s", err, &p.errs))
		}
		kill.Stop()
	}
	return errors.Join(errs...)
}

// tally sums up what the workers have told.
func (f *fleet) tally() (putOff, trips int64) {
	for _, p := range f.workers {
		putOff += p.tally.PutOff
		trips += p.tally.Trips
	}
	return putOff, trips
}
