// Package alerts tells people about incidents.
package alerts
