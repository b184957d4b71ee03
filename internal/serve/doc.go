// Package serve is the room of everything that listens: the API and its gateway, the dashboard, permits, health, and the
// server below them with its tokens and limits.
//
// It shows and does what the packages of view say, and knows no publisher.
package serve
