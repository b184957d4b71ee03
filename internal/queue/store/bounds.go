package store

// Bounds of what a job adds to the request of its destination, in bytes.
const (
	MaxMethodBytes = 32
	MaxPathBytes   = 2048
	MaxQueryBytes  = 4096
	MaxHeaderBytes = 8192 // names and values of all headers together
)
