package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type doctorCmd struct {
	DryRun bool   `help:"Print what is wrong, and repair nothing."`
	Reason reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// Run looks for damage and repairs it.
func (c *doctorCmd) Run(ctx context.Context, p *Process, s *session) error {
	report, err := doctor.Run(ctx, s.rdb, doctor.Options{
		Namespace: store.Namespace(s.cfg.RedisNamespace), DryRun: c.DryRun, By: "doctor, " + p.why("").By, Retention: s.cfg.JobRetention,
		Family: store.AskParents(s.rdb),
	})
	if report == nil || err != nil && len(report.Findings) == 0 {
		return fmt.Errorf("doctor: %w", err)
	}
	stats, statsErr := s.Stats(ctx, "")
	err = errors.Join(err, statsErr)
	for _, d := range stats {
		if waiting := d.Backlog - d.Counts[jobs.Running] - d.Counts[jobs.Paused] - d.Counts[jobs.Waiting]; waiting > 0 && d.HeldBy != "" && !d.Paused {
			report.Findings = append(report.Findings, doctor.Finding{
				Kind: doctor.KindHeld, Queue: store.Namespace(s.cfg.RedisNamespace).Queue(d.Destination, store.Default), Count: waiting, Detail: "jobs wait: " + d.HeldBy,
			})
		}
	}
	repairs := ops.AuditEntry{By: p.why("").By, Action: "doctor repair", Reason: string(c.Reason)}
	var kinds []string
	for _, f := range report.Findings {
		if f.Repaired {
			repairs.Count += f.Count
			if !slices.Contains(kinds, f.Kind) {
				kinds = append(kinds, f.Kind)
			}
		}
	}
	if repairs.Target = strings.Join(kinds, ","); repairs.Count > 0 {
		s.Record(ctx, repairs)
	}
	if printErr := c.print(p, report); printErr != nil {
		return errors.Join(err, printErr)
	}
	left, repairable := 0, 0
	for _, f := range report.Findings {
		if repaired(f) == "no" {
			left++
		}
		if f.Repairable() {
			repairable++
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("doctor: %w", err)
	case left == 0:
		return nil
	case c.DryRun && repairable == left:
		return errors.New("nothing was repaired; run it without --dry-run")
	case c.DryRun && repairable > 0:
		return fmt.Errorf("nothing was repaired; without --dry-run, %d of %s would be: see to the rest", repairable, plural(left, "finding", "findings"))
	case c.DryRun:
		return errors.New("no run repairs what was found: see to it")
	}
	return fmt.Errorf("%s not repaired: see to it", plural(left, "finding was", "findings were"))
}

// repaired reports whether a finding was repaired: "-" where there is nothing to
// repair.
func repaired(f doctor.Finding) string {
	switch {
	case f.Repaired:
		return "yes"
	case f.Kind == doctor.KindPaused, f.Kind == doctor.KindOverride, f.Kind == doctor.KindEvicted, f.Kind == doctor.KindHeld:
		return "-"
	}
	return "no"
}

func (c *doctorCmd) print(p *Process, report *doctor.Report) error {
	return c.show(p, report, func(r *rows) {
		if len(report.Findings) > 0 {
			r.add("FOUND", "QUEUE", "COUNT", "REPAIRED", "EXAMPLE", "DETAIL")
		}
		for _, f := range report.Findings {
			example := f.ID
			if example == "" && len(f.Examples) > 0 {
				example = f.Examples[0]
			}
			r.add(f.Kind, dash(f.Queue), strconv.Itoa(f.Count), repaired(f), dash(example), f.Detail)
		}
		found := "no problems found"
		if n := len(report.Findings); n > 0 {
			found = plural(n, "finding", "findings")
		}
		r.add("checked " + plural(report.Checked, "job", "jobs") + ": " + found)
	})
}
