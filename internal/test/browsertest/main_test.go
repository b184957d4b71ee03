package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) {
	os.Exit(redistest.Main(withBrowser{m}))
}

// browser is the one that all tests share; nil without one.
var browser context.Context

// withBrowser runs the tests with a browser.
type withBrowser struct{ m *testing.M }

func (b withBrowser) Run() int {
	path := findBrowser()
	if path == "" {
		if os.Getenv("CI") != "" {
			fmt.Fprintln(os.Stderr, "no Chromium in PATH: run scripts/ensure-chromium.sh")
			return 1
		}
		return b.m.Run() // which says so
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.WindowSize(1280, 900),
	)
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // it cannot sandbox itself for root
	}
	started, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	defer cancel()
	var stop context.CancelFunc
	browser, stop = chromedp.NewContext(started) //nolint:fatcontext // one for all tests
	defer stop()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "Chromium does not start:", err)
		return 1
	}
	return b.m.Run()
}

// findBrowser is the path of Chromium, or of a browser made of it; "" without one.
func findBrowser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
