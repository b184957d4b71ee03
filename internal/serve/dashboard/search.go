package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// searchPage is the data of a search without a result.
type searchPage struct{ Query string }

// search redirects to the job, destination, breaker, incident or batch of that name.
func (d *Dashboard) search(w http.ResponseWriter, r *http.Request) error {
	q := strings.TrimSpace(r.FormValue("q"))
	if q == "" {
		redirect(w, r, "/jobs")
		return nil
	}
	to, err := d.resolve(r, q)
	if err != nil {
		return err
	}
	if to != "" {
		redirect(w, r, to)
		return nil
	}
	d.render(w, r, "search", show{title: "Nothing found", status: http.StatusNotFound, data: searchPage{Query: q}})
	return nil
}

// resolve returns the path for the name, "" if there is none.
func (d *Dashboard) resolve(r *http.Request, q string) (string, error) {
	ctx := r.Context()
	if jobs.ValidName(q) {
		_, err := d.client.Get(ctx, q)
		if err == nil {
			return "/jobs/" + q, nil
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return "", fmt.Errorf("search job %s: %w", q, err)
		}
	}
	if _, _, err := breaker.ParseName(q); err == nil {
		destination, _, keyed := strings.Cut(q, "/")
		_, err := d.find(ctx, destination)
		if err == nil && keyed {
			return "/breakers/" + q, nil
		}
		if err == nil {
			return "/destinations/" + q, nil
		}
		if _, ok := errors.AsType[*problem](err); !ok {
			return "", err
		}
	}
	if jobs.ValidName(q) {
		size, err := d.client.BatchSize(ctx, q)
		if err != nil {
			return "", fmt.Errorf("search batch %s: %w", q, err)
		}
		if size > 0 {
			return filter{Batch: q}.URL(), nil
		}
	}
	_, err := d.readIncident(ctx, q)
	if err == nil {
		return incidentPath(q), nil
	}
	if _, ok := errors.AsType[*problem](err); !ok {
		return "", err
	}
	return "", nil
}
