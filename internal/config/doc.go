// Package config turns environment variables into a checked [Config].
//
// The structs in vars.go are the only list of variables: their tags say how a
// value is read and bounded, their comments are the documentation. The
// configuration reference (docs/configuration.md), config.example.env and the chart's
// schema and list of a destination's values are generated from them.
//
// Rules that hold for every variable:
//
//   - All errors are reported at once, see [Errors]; none contains the value of
//     a secret.
//   - A variable that is set but empty (or only spaces) counts as not set: an
//     optional one takes its default, a required one is an error.
//   - X_FILE may replace any secret X: the file's content without trailing line
//     breaks is the value.
//   - An unknown name that starts with DESTINATION_ or CIRCUIT_BREAKER_ is an
//     error, elsewhere a near miss of a known name is a [Warning].
package config

//go:generate go test -run ^TestGenerated -count=1 . -args -update
