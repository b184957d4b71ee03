package store

// The destinations that Tidegate itself delivers through. They have queues, breakers
// and ids like any other; what lists destinations or jobs leaves them out unless they
// are named.
const (
	// AlertsDestination delivers alerts.
	AlertsDestination = "tidegate-alerts"
	// CallbacksDestination delivers what is told of a job's end to its owner.
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
