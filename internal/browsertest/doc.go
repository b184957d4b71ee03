// Package browsertest holds the tests of the dashboard in a real browser, Chromium, over
// a real server, with real workers and a real Redis. scripts/ensure-chromium.sh installs
// the browser.
//
// Pictures of all states, to be looked at:
//
//	go test ./internal/browsertest -run TestPictures -pictures DIR
package browsertest
