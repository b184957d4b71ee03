// Package browsertest holds the tests of the dashboard in a real browser, Chromium, over
// a real server, with real workers and a real Redis. scripts/ensure-chromium.sh installs
// the browser.
package browsertest
