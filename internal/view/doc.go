// Package view is the room of a running system as people see it: one model to read and to act, explanations of waits, events
// and figures by the minute.
//
// API, command line and dashboard show it, and decide nothing by themselves.
package view
