package fakeapi

// Start listens on a loopback address, by default a free port of 127.0.0.1, and
// returns the base URL, without a slash at its end. After Close it may be called
// again, for instance with the address it had.
func (a *API) Start(addr string) (string, error) { return a.server.Start(addr) }

// Close stops listening, cuts the calls in flight and returns when all have ended.
// Receipts and counts stay.
func (a *API) Close() error { return a.server.Close() }
