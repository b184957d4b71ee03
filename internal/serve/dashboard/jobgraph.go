package dashboard

import (
	"context"
	"fmt"

	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// dependencies draws the parents and children of the job.
func (d *Dashboard) dependencies(ctx context.Context, p *jobPage) error {
	family, err := d.ops.GraphOf(ctx, p.Job)
	if err != nil {
		return fmt.Errorf("read the dependencies of %s: %w", p.ID, err)
	}
	if len(family.Jobs) == 1 {
		return nil
	}
	g := chart.Graph{Title: "Dependencies of this job"}
	first := 0
	for _, j := range family.Jobs {
		first = min(first, j.Generation)
	}
	for _, j := range family.Jobs {
		n := chart.Node{ID: j.ID, Layer: j.Generation - first, Text: j.ID, Detail: "no longer kept", Class: "gone", Here: j.ID == p.ID}
		if j.Status != "" {
			b := ops.StatusWords(j.Status)
			n.Detail, n.Class = b.Text+" · "+j.Destination, b.Class
			switch {
			case j.NextRetryAt != nil:
				n.Detail = fmt.Sprintf("Retry %d, %s", j.Attempt, shortTime(*j.NextRetryAt, d.now()))
			case j.Attempt > 0:
				n.Detail = fmt.Sprintf("%s · %s", b.Text, plural(j.Attempt, "retry", "retries"))
			}
			if !n.Here {
				n.Link = "/jobs/" + j.ID
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	for _, e := range family.Edges {
		g.Edges = append(g.Edges, [2]string{e.Parent, e.Child})
	}
	if p.Graph, err = g.SVG(); err != nil {
		return &broken{err}
	}
	return nil
}
