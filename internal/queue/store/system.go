package store

// Tidegate's own destinations. They have queues, breakers and ids like any other; lists of
// destinations or jobs leave them out unless they are named.
const (
	// AlertsDestination delivers alerts.
	AlertsDestination = "tidegate-alerts"
	// CallbacksDestination delivers callbacks.
	CallbacksDestination = "tidegate-callbacks"
)

// System reports whether a destination is one of Tidegate's own.
func System(destination string) bool {
	return destination == AlertsDestination || destination == CallbacksDestination
}

// SystemQueue reports whether a queue is one of a system destination.
func SystemQueue(queue string) bool {
	destination, _, ok := ParseQueue(queue)
	return ok && System(destination)
}
