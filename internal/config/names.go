package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxDestinations bounds the number of blocks.
const maxDestinations = 1000

var (
	blockForm = regexp.MustCompile(`^DESTINATION_([0-9]+)_(.+)$`)
	// injected matches what Kubernetes adds for every Service of a namespace:
	// behind the Service's name, SERVICE_HOST, PORT_80_TCP_ADDR and the like.
	injected = regexp.MustCompile(`^(DESTINATION|CIRCUIT_BREAKER)_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
)

// knownNames returns every name of the table, with the number of a block in its names, and X_FILE for each secret X.
func knownNames(index string) []string {
	var names []string
	for _, v := range table() {
		name := strings.Replace(v.name, "<i>", index, 1)
		names = append(names, name)
		if v.secret {
			names = append(names, name+fileSuffix)
		}
	}
	return names
}

// checkNames finds names that are not ours but look as if they were meant to be,
// and returns the numbers of the destination blocks, in order.
func (e *environment) checkNames(found *findings) (blocks []int) {
	known, first := knownNames("<i>"), knownNames("0")
	for name := range e.values {
		if m := blockForm.FindStringSubmatch(name); m != nil {
			index, err := strconv.Atoi(m[1])
			switch {
			case err != nil || index >= maxDestinations:
				found.fail(name, "number the destinations from 0", "has a number above %d", maxDestinations-1)
				continue
			case m[1] != strconv.Itoa(index):
				found.fail(name, "write DESTINATION_"+strconv.Itoa(index)+"_"+m[2], "has a number with a leading zero")
				continue
			}
			blocks = append(blocks, index)
			if !slices.Contains(known, blockPrefix+m[2]) {
				found.fail(name, suggest(name, m[1]), "is not a variable of Tidegate")
			}
			continue
		}
		if slices.Contains(known, name) {
			continue
		}
		switch {
		case strings.HasPrefix(name, "DESTINATION_") && slices.Contains(known, blockPrefix+strings.TrimPrefix(name, "DESTINATION_")):
			found.fail(name, "write DESTINATION_0_"+strings.TrimPrefix(name, "DESTINATION_")+
				" for the first destination, DESTINATION_1_… for the next", "lacks the number of the destination")
		case strings.HasPrefix(name, "DESTINATION_"), strings.HasPrefix(name, "CIRCUIT_BREAKER_"):
			fix := suggest(name, "0")
			if injected.MatchString(name) {
				fix = "Kubernetes seems to have added it for a Service of that name: set enableServiceLinks: false or rename the Service"
			}
			found.fail(name, fix, "is not a variable of Tidegate")
		default:
			if near := Nearest(name, first, 2); near != "" {
				found.warn(name, "is not a variable of Tidegate; did you mean %s?", near)
			}
		}
	}
	slices.Sort(blocks)
	blocks = slices.Compact(blocks)
	for i, index := range blocks {
		if i != index {
			found.fail("DESTINATION_"+strconv.Itoa(index)+"_NAME", "number the destinations from 0 without gaps",
				"there is no DESTINATION_%d_NAME before it", i)
			break
		}
	}
	return blocks
}

// suggest returns what an unknown name was probably meant to be. The longer its own
// part is, behind the prefixes that many names share, the more edits are allowed.
func suggest(name, index string) string {
	known := knownNames(index)
	if plain, ok := strings.CutSuffix(name, fileSuffix); ok && slices.Contains(known, plain) {
		return "only a secret can come from a file: set " + plain
	}
	own := strings.TrimPrefix(strings.TrimPrefix(name, "DESTINATION_"+index+"_"), "CIRCUIT_BREAKER_")
	near := cmp.Or(Nearest(name, known, max(3, len(own)/3)), fuller(strings.TrimSuffix(name, own), own, known))
	if near != "" {
		return "did you mean " + near + "?"
	}
	return "see config.example.env for all names"
}

// fuller returns the shortest known name that own is a part of, in whole words
// and behind the prefix: THRESHOLD is one of FAILURE_THRESHOLD. Some edits are allowed here too. It returns "" if there is none, or no prefix.
func fuller(prefix, own string, known []string) string {
	best, bestDistance := "", len(own)/4+1
	for _, candidate := range known {
		rest, found := strings.CutPrefix(candidate, prefix)
		if !found || prefix == "" {
			continue
		}
		words := strings.Split(rest, "_")
		for from := range words {
			for to := from + 1; to <= len(words); to++ {
				d := editDistance(strings.ToUpper(own), strings.Join(words[from:to], "_"), len(own)/4+1)
				if d < bestDistance || d == bestDistance && best != "" && len(candidate) < len(best) {
					best, bestDistance = candidate, d
				}
			}
		}
	}
	return best
}

// Nearest returns the candidate closest to name, or "" if all differ by more than
// limit edits: insertions, deletions, replacements, swaps of neighbours. Case does
// not count. Of equally close ones it is the first.
func Nearest(name string, candidates []string, limit int) string {
	best, bestDistance := "", limit+1
	for _, candidate := range candidates {
		if d := editDistance(strings.ToUpper(name), strings.ToUpper(candidate), bestDistance); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment), or returns a number
// of at least limit if there are that many.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
