package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/internal/base/text"
)

// Where a value came from, as Print and Document show it.
const (
	sourceDefault = "default"
	sourceSet     = "set"
	sourceFile    = "file"
	sourcePreset  = "preset"
)

// fileSuffix makes the name of the variable that gives a secret by file.
const fileSuffix = "_FILE"

// maxSecretFile bounds what is read from a secret's file, in bytes.
const maxSecretFile = 64 << 10

// environment is the process environment with X_FILE resolved into X and what presets
// know of the rest. A variable
// that is set but empty has an entry with an empty value.
type environment struct {
	values map[string]string
	from   map[string]string // source of what is not set by itself
	yaml   *destinationsFile // nil: there is none
}

// newEnvironment reads NAME=value entries; of a repeated name the last counts.
// A value of nothing but white space is empty.
func newEnvironment(environ []string) *environment {
	e := &environment{values: make(map[string]string, len(environ)), from: map[string]string{}}
	for _, entry := range environ {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			continue
		}
		if strings.TrimSpace(value) == "" {
			value = ""
		}
		e.values[name] = value
	}
	return e
}

// set reports whether the variable has a value.
func (e *environment) set(name string) bool { return e.values[name] != "" }

// source returns where the variable's value comes from.
func (e *environment) source(name string) string {
	if from := e.yaml.source(name); from != "" {
		return from
	}
	if !e.set(name) {
		return sourceDefault
	}
	return cmp.Or(e.from[name], sourceSet)
}

// file returns the file that the variable's value comes from, "" if from none.
func (e *environment) file(name string) string {
	if e.from[name] != sourceFile {
		return ""
	}
	return strings.TrimSpace(e.values[name+fileSuffix])
}

// resolveFile replaces the secret X by the content of X_FILE if that is set.
func (e *environment) resolveFile(name string, found *findings) {
	byFile := name + fileSuffix
	if !e.set(byFile) {
		return
	}
	if e.set(name) {
		found.fail(name, "unset one of the two", "is set, and so is %s", byFile)
		return
	}
	value, err := readSecretFile(e.values[byFile])
	if err != nil {
		found.fail(byFile, "check the file and its permissions", "%v", err)
		found.bad[name] = true
		return
	}
	e.values[name] = value
	e.from[name] = sourceFile
}

// readSecretFile returns a file's content without trailing line breaks. Its
// errors name the file and never the content.
func readSecretFile(path string) (string, error) {
	path = strings.TrimSpace(path)
	content, _, err := text.ReadFile(path, maxSecretFile)
	var large *text.TooLargeError
	switch {
	case errors.As(err, &large):
		return "", fmt.Errorf("file %q %s", path, large.Problem())
	case err != nil:
		return "", fmt.Errorf("cannot read file %q: %w", path, text.WithoutPath(err))
	}
	value := strings.TrimRight(string(content), "\r\n")
	if strings.TrimSpace(value) == "" {
		return "", fmt.Errorf("file %q is empty", path)
	}
	return value, nil
}
