package config

import (
	"net"
	"strconv"
)

// checkOpsAddr checks the address, and makes "off" none.
func (l *loader) checkOpsAddr(w *workerVars) {
	const name = "OPS_ADDR"
	if !l.found.ok(name) {
		return
	}
	if isOff(w.OpsAddr) {
		w.OpsAddr = ""
		return
	}
	if !listenable(w.OpsAddr) {
		l.found.fail(name, "write it like 127.0.0.1:9090 or :9090, with a port from 0 (a free one) to 65535, or off",
			"%s is no address to listen on", quote(w.OpsAddr))
	}
}

// checkListenAddr checks the address of the HTTP API.
func (l *loader) checkListenAddr(a apiVars) {
	const name = "LISTEN_ADDR"
	if l.found.ok(name) && !listenable(a.ListenAddr) {
		l.found.fail(name, "write it like 127.0.0.1:8080 or :8080, with a port from 0 (a free one) to 65535",
			"%s is no address to listen on", quote(a.ListenAddr))
	}
}

// listenable reports whether addr is host:port with a port in figures.
func listenable(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

// OpsAddr returns OPS_ADDR alone, as [Config] holds it, whatever the rest of the
// environment is like.
func OpsAddr(environ []string) (string, error) {
	l := &loader{env: newEnvironment(environ)}
	var vars workerVars
	l.read(&vars, "", true)
	l.checkOpsAddr(&vars)
	if !l.found.ok("OPS_ADDR") {
		_, err := l.found.result()
		return "", err
	}
	return vars.OpsAddr, nil
}
