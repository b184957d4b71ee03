package config

import (
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// loader reads the groups of the table and collects what is wrong.
type loader struct {
	env      *environment
	found    findings
	limits   []Limit // of the file
	uncalled bool    // the process calls no API
}

// group is a struct, given by a pointer to it, whose variables have a prefix.
type group struct {
	into   any
	prefix string
}

func (g group) value() reflect.Value { return reflect.ValueOf(g.into).Elem() }

// variables returns the variables of the struct, with their full names.
func (g group) variables() iter.Seq[variable] { return named(g.prefix, rowsOf(g.value().Type())) }

// read fills the variables of a struct, and checks each value by itself. It warns of secrets
// that are set but empty: what is meant to fill them probably failed.
func (l *loader) read(g group) {
	for v := range g.variables() {
		l.readText(v)
	}
	// Its errors name neither the variable nor what to do: readText has reported them.
	err := env.ParseWithOptions(g.into, env.Options{Environment: l.env.values, FuncMap: parsers(), Prefix: g.prefix})
	if err != nil && len(l.found.errors) == 0 {
		panic("config: table: " + err.Error())
	}
	for v := range g.variables() {
		if (l.env.set(v.name) || v.def != "") && l.found.ok(v.name) {
			if problem, fix := v.check(g.value().FieldByIndex(v.index)); problem != "" {
				l.reject(v, problem, fix)
			}
		}
	}
}

// readText checks whether the text of a variable can be read.
func (l *loader) readText(v variable) {
	text, given := l.env.values[v.name]
	if v.secret {
		l.env.resolveFile(v.name, &l.found)
		if given && text == "" && !l.env.set(v.name+fileSuffix) {
			l.found.warn(v.name, "is set but empty; it counts as not set")
		}
		text = l.env.values[v.name]
	}
	switch {
	case text == "" && v.required && given:
		l.found.fail(v.name, "give it a value", "is set but empty")
	case text == "" && v.required && l.found.ok(v.name):
		l.found.fail(v.name, "set it", "is required but not set")
	case text == "" || !l.found.ok(v.name):
	case len(v.oneOf) > 0:
		word := strings.ToLower(strings.TrimSpace(text))
		if !slices.Contains(v.oneOf, word) {
			l.reject(v, "is not known", "")
		}
		l.env.values[v.name] = word
	case v.kind.read != nil:
		_, err := v.kind.read(text)
		if u, ok := errors.AsType[*unreadable](err); ok {
			l.reject(v, u.problem, u.fix)
		}
	}
}

// reject reports a value, shown if the variable permits it. Without a fix, what
// the variable takes is the fix.
func (l *loader) reject(v variable, problem, fix string) {
	if fix == "" {
		fix = v.allowed()
	}
	if !v.secret && !v.kind.hidden {
		problem = quote(l.env.values[v.name]) + " " + problem
	}
	l.found.fail(v.name, fix, "%s", problem)
}
