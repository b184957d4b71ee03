// Package dest is the room of what a destination can be given by its configuration, beside limits: answer rules, presets of
// public APIs, OAuth, callbacks and their signatures.
//
// Package app joins them to a publisher, which knows none of them.
package dest
