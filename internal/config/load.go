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

// variables are those of the struct, with their full names.
func (g group) variables() iter.Seq[variable] { return named(g.prefix, rowsOf(g.value().Type())) }

// read fills the variables of structs, and checks each value by itself. Without defaults,
// fields that are not set keep what they hold. It warns of secrets that are set but empty:
// what is meant to fill them probably failed.
func (l *loader) read(defaults bool, groups ...group) {
	for _, g := range groups {
		for v := range g.variables() {
			value, given := l.env.values[v.name]
			if v.secret {
				l.env.resolveFile(v.name, &l.found)
				if given && value == "" && !l.env.set(v.name+fileSuffix) {
					l.found.warn(v.name, "is set but empty; it counts as not set")
				}
			}
			if len(v.oneOf) > 0 && value != "" {
				l.env.values[v.name] = strings.TrimSpace(value)
			}
		}
		l.parse(defaults, g)
		for v := range g.variables() {
			if hasValue := l.env.set(v.name) || defaults && v.def != ""; hasValue && l.found.ok(v.name) {
				if problem, fix := v.check(g.value().FieldByIndex(v.index)); problem != "" {
					l.reject(v, problem, fix)
				}
			}
		}
	}
}

// parse has the env package read a group.
func (l *loader) parse(defaults bool, g group) {
	options := env.Options{Environment: l.env.values, FuncMap: parsers(), Prefix: g.prefix}
	if !defaults {
		options.DefaultValueTagName = "noDefault"
	}
	err := env.ParseWithOptions(g.into, options)
	var found env.AggregateError
	if err != nil && !errors.As(err, &found) {
		found.Errors = []error{err}
	}
	for _, err := range found.Errors {
		l.report(err, slices.Collect(g.variables()))
	}
}

// report turns an error of the env package into one of ours, which names the
// variable and holds no secret. Names of fields are unique within a group.
func (l *loader) report(err error, vars []variable) {
	var (
		parse env.ParseError
		unset env.VarIsNotSetError
		empty env.EmptyVarError
	)
	switch {
	case errors.As(err, &unset):
		if l.found.ok(unset.Key) {
			l.found.fail(unset.Key, "set it", "is required but not set")
		}
	case errors.As(err, &empty):
		l.found.fail(empty.Key, "give it a value", "is set but empty")
	case errors.As(err, &parse):
		v := vars[slices.IndexFunc(vars, func(v variable) bool { return v.field == parse.Name })]
		var u *unreadable
		switch {
		case errors.As(parse.Err, &u):
			l.reject(v, u.problem, u.fix)
		case len(v.oneOf) > 0:
			l.reject(v, unknownWord, "")
		default:
			panic("config: no reader for field " + parse.Name)
		}
	default:
		panic("config: table: " + err.Error())
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
