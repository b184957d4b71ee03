package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
)

// fileVariable names the destinations file.
const fileVariable = "DESTINATIONS_FILE"

var fileSections = []string{"defaults", "limits", "destinations"}

// MaxDestinationsFile bounds the destinations file, in bytes.
const MaxDestinationsFile = 4 << 20

// envSuffix makes, in the file, the name of a setting whose secret a variable of that name holds.
const envSuffix = "_ENV"

// place is where the file says something.
type place struct {
	path         string // such as destinations.shop.rate
	line, column int
}

// destinationsFile holds the settings of the file as variables: of blocks behind the blocks that variables number, or
// of the block with the destination's name.
type destinationsFile struct {
	env     *environment
	found   *findings
	name    string         // without its folder
	without *regexp.Regexp // settings that are not taken; nil: all are
	limits  []Limit
	places  map[string]place
	blocks  map[int]place // of the destinations that no variable numbers
}

// readFile adds what DESTINATIONS_FILE holds to the variables, which win over it, without the settings that match.
func (l *loader) readFile(without *regexp.Regexp) {
	name := strings.TrimSpace(l.env.values[fileVariable])
	if name == "" {
		return
	}
	f := &destinationsFile{env: l.env, found: &l.found, name: filepath.Base(name), without: without, places: map[string]place{}, blocks: map[int]place{}}
	l.env.yaml, l.found.yaml = f, f
	content, _, err := text.ReadFile(name, MaxDestinationsFile)
	var large *text.TooLargeError
	switch {
	case errors.As(err, &large):
		l.found.fail(fileVariable, "split the destinations between workers", "file %q %s", name, large.Problem())
	case err != nil:
		l.found.fail(fileVariable, "check the file and its permissions", "cannot read file %q: %v", name, text.WithoutPath(err))
	default:
		f.read(content)
	}
	l.limits = f.limits
}

func (f *destinationsFile) read(content []byte) {
	var root yaml.Node
	dec, err := yaml.NewDecoder(bytes.NewReader(content)), text.CheckYAML(content)
	if err == nil {
		err = dec.Decode(&root)
	}
	if err == nil {
		if err = dec.Decode(&yaml.Node{}); err == nil {
			err = errors.New("holds more than one YAML document")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	} else if errors.Is(err, io.EOF) {
		err = errors.New("is empty")
	}
	if err != nil {
		f.found.fail(fileVariable, "write defaults, limits and destinations in YAML; see docs/configuration.md", "%s: %s", f.name, strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	sections := map[string]*yaml.Node{}
	for key, value := range f.mapping(root.Content[0], "") {
		if !slices.Contains(fileSections, key.Value) {
			f.unknown(key, key.Value, fileSections)
			continue
		}
		sections[key.Value] = value
	}
	if node := sections["limits"]; node != nil {
		f.limits = f.readLimits(node)
	}
	var defaults []setting
	if node := sections["defaults"]; node != nil {
		defaults = f.settings(node, "defaults", "")
	}
	if node := sections["destinations"]; node != nil {
		f.destinations(node, defaults)
	}
}

// destinations turns each destination into a block.
func (f *destinationsFile) destinations(node *yaml.Node, defaults []setting) {
	taken, next := map[string]int{}, 0
	for name, value := range f.env.values {
		if m := blockForm.FindStringSubmatch(name); m != nil {
			if index, err := strconv.Atoi(m[1]); err == nil {
				next = max(next, index+1)
				if m[2] == "NAME" {
					taken[strings.TrimSpace(value)] = index
				}
			}
		}
	}
	for key, value := range f.mapping(node, "destinations") {
		path := "destinations." + key.Value
		index, known := taken[key.Value]
		if !known {
			if index = next; index >= maxDestinations {
				f.fail(place{path, key.Line, key.Column}, "split the destinations between workers", "is one more than %d, which is the most", maxDestinations)
				return
			}
			next++
			f.blocks[index] = place{path, key.Line, key.Column}
			f.put(blockName(index, "NAME"), setting{value: key.Value, place: place{path, key.Line, key.Column}})
		}
		own := f.settings(value, path, "")
		for _, s := range own {
			f.put(blockName(index, s.name), s)
		}
		for _, s := range defaults {
			if f.env.set(s.name) { // such as CIRCUIT_BREAKER_COOLDOWN_SECS: a variable for all destinations
				continue
			}
			f.put(blockName(index, s.name), s)
		}
	}
}

// put sets a variable that has no value yet. A secret may come as itself or by its file: the first of both counts.
func (f *destinationsFile) put(name string, s setting) {
	plain := strings.TrimSuffix(name, fileSuffix)
	if f.env.set(name) || f.env.set(plain) || f.env.set(name+fileSuffix) {
		return
	}
	f.env.values[name] = s.value
	f.places[name], f.places[plain] = s.place, s.place
}

// setting is a setting of the file: the value of a variable, whose name lacks its block.
type setting struct {
	name, value string
	place       place
}

// settings reads a mapping of settings. A mapping in it holds settings that begin alike, such as
// circuit_breaker, or the parts of one value, such as headers.
func (f *destinationsFile) settings(node *yaml.Node, path, prefix string) (out []setting) {
	for key, value := range f.mapping(node, path) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		at := place{path + "." + key.Value, key.Line, key.Column}
		name := strings.ToUpper(prefix + key.Value)
		if strings.HasPrefix(name, "TOKEN_") { // token_file and token_env
			name = "AUTH_" + name
		}
		known, ok := fileSettings()[name]
		switch {
		case !ok && value.Kind == yaml.MappingNode && key.Value != "" && slices.ContainsFunc(fileNames(), func(known string) bool { return strings.HasPrefix(known, strings.ToLower(name)+"_") }):
			out = append(out, f.settings(value, at.path, prefix+key.Value+"_")...)
		case !ok || key.Value != strings.ToLower(key.Value):
			f.unknown(key, at.path, append(fileNames(), "token_file", "token_env"))
		case f.without != nil && f.without.MatchString(name):
		case known.typ == reflect.TypeFor[Secret]() && known.form == "plain":
			f.fail(at, "give "+strings.ToLower(name)+"_file or "+strings.ToLower(name)+"_env", "is a secret, which this file may not hold")
		default:
			written, problem := valueOf(value, known.typ)
			if known.form == envSuffix && problem == "" {
				name = strings.TrimSuffix(name, envSuffix)
				variable := written
				if written = f.env.values[variable]; written == "" {
					problem = "names a variable that is not set"
					if variableForm.MatchString(variable) { // or it may be the secret itself
						problem = "names " + quote(variable) + ", a variable that is not set"
					}
				}
			}
			if problem != "" {
				f.fail(at, "see docs/configuration.md", "%s", problem)
				continue
			}
			out = append(out, setting{name, written, at})
		}
	}
	return out
}

// variableForm is the form of names of variables; what is not of it is shown nowhere.
var variableForm = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// valueOf writes a node as a variable has it.
func valueOf(node *yaml.Node, typ reflect.Type) (value, problem string) {
	headers := typ == reflect.TypeFor[http.Header]()
	if typ == reflect.TypeFor[LimitUses]() {
		return inOneLine(node)
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	var parts []string
	for i, part := range node.Content {
		if part.Kind != yaml.ScalarNode || strings.Contains(part.Value, ",") {
			return "", "holds a part that is not a plain text without commas"
		}
		switch {
		case node.Kind == yaml.SequenceNode:
			parts = append(parts, part.Value)
		case i%2 == 1 && headers:
			parts = append(parts, node.Content[i-1].Value+":"+part.Value)
		case i%2 == 1:
			parts = append(parts, node.Content[i-1].Value+"="+part.Value)
		}
	}
	value = node.Value
	if node.Kind != yaml.ScalarNode {
		value = strings.Join(parts, ",")
	}
	if strings.TrimSpace(value) == "" || node.Tag == "!!null" {
		return "", "has no value"
	}
	for header := range strings.SplitSeq(value, ",") {
		name, text, found := strings.Cut(header, ":")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		if headers && found && secret.MaskHeader(name, text) != text {
			return "", "holds the secret header " + quote(name) + ": give all headers by headers_file or headers_env"
		}
	}
	return value, ""
}

// fileSetting is a setting of the file: the variable that it sets, itself ("plain"), by a file, or by the name of
// another variable.
type fileSetting struct {
	variable

	form string
}

// fileSettings are the names that a destination may have in the file, in upper case.
var fileSettings = sync.OnceValue(func() map[string]fileSetting {
	out := map[string]fileSetting{}
	for _, v := range table() {
		name, ok := strings.CutPrefix(v.name, blockPrefix)
		if !ok || name == "NAME" {
			continue
		}
		out[name] = fileSetting{v, "plain"}
		if v.secret {
			out[name+fileSuffix], out[name+envSuffix] = fileSetting{v, fileSuffix}, fileSetting{v, envSuffix}
		}
	}
	return out
})

// fileNames are the names of fileSettings as they are written, without secrets, which the file may not hold.
func fileNames() (out []string) {
	for name, s := range fileSettings() {
		if s.typ != reflect.TypeFor[Secret]() || s.form != "plain" {
			out = append(out, strings.ToLower(name))
		}
	}
	slices.Sort(out)
	return out
}

// mapping yields the pairs of a mapping, each name once.
func (f *destinationsFile) mapping(node *yaml.Node, path string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
			return
		}
		if node.Kind != yaml.MappingNode {
			f.fail(place{path, node.Line, node.Column}, "write names with their values below it", "is not a mapping")
			return
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if seen[key.Value] {
				f.fail(place{strings.TrimPrefix(path+"."+key.Value, "."), key.Line, key.Column}, "keep one", "is given twice")
				continue
			}
			seen[key.Value] = true
			if !yield(key, node.Content[i+1]) {
				return
			}
		}
	}
}

func (f *destinationsFile) unknown(key *yaml.Node, path string, known []string) {
	fix := "see docs/configuration.md for all names"
	if key.Value == "<<" {
		fix = "merge keys are not read; write what destinations share under defaults"
	} else if near := Nearest(key.Value, known, max(2, len(key.Value)/3)); near != "" {
		fix = "did you mean " + near + "?"
	}
	f.fail(place{path, key.Line, key.Column}, fix, "is not a setting")
}

func (f *destinationsFile) fail(at place, fix, problem string, args ...any) {
	f.found.fail(f.at(at), fix, problem, args...)
}

// at writes a place as compilers do.
func (f *destinationsFile) at(p place) string {
	return fmt.Sprintf("%s:%d:%d: %s", f.name, p.line, p.column, text.Cut(p.path, 300))
}

// shown is how a variable is named to users: as itself, or as the setting of the file.
func (f *destinationsFile) shown(name string) string {
	if f == nil {
		return name
	}
	if p, ok := f.places[name]; ok {
		return f.at(p)
	}
	if m := blockForm.FindStringSubmatch(name); m != nil {
		index, _ := strconv.Atoi(m[1])
		if p, ok := f.blocks[index]; ok {
			p.path += "." + strings.ToLower(m[2])
			return f.at(p)
		}
	}
	return name
}

var blockVariable = regexp.MustCompile(`DESTINATION_([0-9]+)_([A-Z0-9_]+)`)

// reworded names the settings of the file in a text as the file does.
func (f *destinationsFile) reworded(s string) string {
	if f == nil {
		return s
	}
	return blockVariable.ReplaceAllStringFunc(s, func(name string) string {
		m := blockVariable.FindStringSubmatch(name)
		index, _ := strconv.Atoi(m[1])
		if _, ours := f.blocks[index]; !ours {
			return name
		}
		return strings.ToLower(m[2])
	})
}

// source says where the file gives a variable; "" if it does not.
func (f *destinationsFile) source(name string) string {
	if f == nil {
		return ""
	}
	if p, ok := f.places[name]; ok {
		return fmt.Sprintf("%s:%d", f.name, p.line)
	}
	return ""
}
