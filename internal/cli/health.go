package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/publisher"
)

type healthCmd struct {
	Live    bool          `help:"Ask only whether the worker lives (/healthz), not whether it can work (/readyz)."`
	Addr    string        `placeholder:"HOST:PORT" help:"Where the worker serves health; default OPS_ADDR."`
	Timeout time.Duration `default:"5s" help:"How long to wait for the response."`
	outputFlag
}

// maxHealth bounds what is read of an answer, in bytes.
const maxHealth = 1 << 20

// Run asks the worker.
func (c *healthCmd) Run(ctx context.Context, p *Process) error {
	addr, err := c.where(p)
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return inputErrorf("--timeout must be positive")
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return inputErrorf("%q is not the address of a worker; write it like 127.0.0.1:9090", addr)
	}
	// No proxy of the environment: it is this machine that is asked.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		// Not wrapped, here and below: as an error of the network it would be taken for one
		// of Redis.
		return fmt.Errorf("no worker answers at %s (%s); is it running, and is OPS_ADDR the same here?", addr, withoutURL(err).Error())
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealth))
	if err != nil {
		return fmt.Errorf("the answer of what listens at %s breaks off (%s); is it a worker?", addr, withoutURL(err).Error())
	}
	if c.Live {
		return c.alive(p, resp, body)
	}
	return c.ready(p, addr, resp, body)
}

// where is the address to ask.
func (c *healthCmd) where(p *Process) (string, error) {
	addr := c.Addr
	if addr == "" {
		var err error
		if addr, err = config.OpsAddr(p.Environ); err != nil {
			return "", err
		}
		if addr == "" {
			return "", inputErrorf("OPS_ADDR is off: the worker serves no health; set it, or use --addr")
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsAny(port, "/?# ") {
		return "", inputErrorf("%q is not the address of a worker; write it like 127.0.0.1:9090", addr)
	}
	if port == "0" {
		return "", inputErrorf("OPS_ADDR has port 0, so the worker listens on a free port, which its log names: use --addr")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		addr = net.JoinHostPort("127.0.0.1", port) // all interfaces: this one too
	}
	return addr, nil
}

func (c *healthCmd) alive(p *Process, resp *http.Response, body []byte) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the worker is not healthy: %s", resp.Status)
	}
	return c.say(p, map[string]string{"status": "alive"}, "%s\n", text.OneLine(strings.TrimSpace(string(body))))
}

func (c *healthCmd) ready(p *Process, addr string, resp *http.Response, body []byte) error {
	var report health.Report
	if err := json.Unmarshal(body, &report); err != nil || report.Status == "" {
		return fmt.Errorf("what answers at %s is not a worker of Tidegate: %s", addr, resp.Status)
	}
	err := c.show(p, report, func(r *rows) { r.addHealth(report) })
	if report.Status != health.Ready {
		return errors.Join(err, fmt.Errorf("the worker is not ready: %s", report.Reason))
	}
	return err
}

func (r *rows) addHealth(report health.Report) {
	r.add("status", report.Status)
	r.add("redis", report.Redis)
	if report.RedisWarning != "" {
		r.add("warning", report.RedisWarning)
	}
	destinations := slices.Clone(report.Destinations)
	slices.SortStableFunc(destinations, func(a, b health.Destination) int { // the worst first
		return strings.Compare(unreachable(b), unreachable(a))
	})
	for _, d := range destinations {
		text := fmt.Sprintf("%s, %d of %d calls in flight", cmp.Or(unreachable(d), d.State), d.InFlight, d.Concurrency)
		if d.Reason != "" {
			text += "; " + d.Reason
		}
		if d.Until != nil {
			text += ", until " + d.Until.Format(time.RFC3339)
		}
		r.add(d.Name, text)
	}
}

// unreachable is the state of a destination that calls do not leave for, else "".
func unreachable(d health.Destination) string {
	if d.State == publisher.StateUnreachable {
		return "UNREACHABLE"
	}
	return ""
}

// withoutURL is the cause of a failed request.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
