package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// Weights of keys that take turns.
type Weights map[string]float64

// Bounds of Weights.
const (
	maxWeights = 1000
	minWeight  = 0.01
	maxWeight  = 1000
)

func readWeights(s string) (any, error) {
	weights := Weights{}
	for part := range strings.SplitSeq(s, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		key = strings.TrimSpace(key)
		_, twice := weights[key]
		switch {
		case !found || err != nil:
			return nil, &unreadable{problem: fmt.Sprintf("holds %s, which is not of the form key=number", quote(part))}
		case !jobs.ValidName(key):
			return nil, &unreadable{problem: fmt.Sprintf("names %s, which is not a valid key of a job", quote(key))}
		case !(weight >= minWeight && weight <= maxWeight): // NaN is neither
			return nil, &unreadable{problem: fmt.Sprintf("gives %s a weight that is not from %g to %d", quote(key), minWeight, maxWeight)}
		case twice:
			return nil, &unreadable{problem: "names " + quote(key) + " twice", fix: "keep one"}
		case len(weights) == maxWeights:
			return nil, &unreadable{problem: fmt.Sprintf("names more than %d keys", maxWeights), fix: "leave out those of weight 1"}
		}
		weights[key] = weight
	}
	return weights, nil
}

func printWeights(v reflect.Value) string {
	weights := v.Interface().(Weights)
	parts := make([]string, 0, len(weights))
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		parts = append(parts, key+"="+strconv.FormatFloat(weights[key], 'g', -1, 64))
	}
	return strings.Join(parts, ",")
}
