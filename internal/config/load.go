package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// loader reads the groups of the table and collects what is wrong.
type loader struct {
	env   *environment
	found findings
}

// read fills the variables of a struct, given by a pointer to it, and checks each value by
// itself. Without defaults, fields that are not set keep what they hold.
func (l *loader) read(into any, prefix string, defaults bool) {
	value := reflect.ValueOf(into).Elem()
	vars := rows(value.Type(), prefix, false)
	for _, v := range vars {
		if v.secret {
			l.env.resolveFile(v.name, &l.found)
		}
		if len(v.oneOf) > 0 && l.env.set(v.name) {
			l.env.values[v.name] = strings.TrimSpace(l.env.values[v.name])
		}
	}
	options := env.Options{Environment: l.env.values, Prefix: prefix, FuncMap: parsers()}
	if !defaults {
		options.DefaultValueTagName = "noDefault"
	}
	if err := env.ParseWithOptions(into, options); err != nil {
		var all env.AggregateError
		if !errors.As(err, &all) {
			all.Errors = []error{err}
		}
		for _, err := range all.Errors {
			l.report(err, vars)
		}
	}
	for _, v := range vars {
		if hasValue := l.env.set(v.name) || defaults && v.def != ""; hasValue && l.found.ok(v.name) {
			if problem, fix := v.check(value.FieldByIndex(v.index)); problem != "" {
				l.reject(v, problem, fix)
			}
		}
	}
}

// report turns an error of the env package into one of ours, which names the
// variable and holds no secret. That package names the field only: names of fields are unique
// within what is read at once.
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

// warnEmpty warns of secrets that are set but empty: what is meant to fill them
// probably failed.
func (l *loader) warnEmpty() {
	rows := map[string]variable{}
	for _, v := range table() {
		rows[v.name] = v
	}
	for name := range l.env.values {
		row := name
		if m := blockForm.FindStringSubmatch(name); m != nil {
			row = blockPrefix + m[2]
		}
		v, known := rows[row]
		if !known {
			v, known = rows[strings.TrimSuffix(row, fileSuffix)]
			known = known && v.secret
		}
		if known && v.secret && !l.env.set(name) && row == v.name && !l.env.set(name+fileSuffix) {
			l.found.warn(name, "is set but empty; it counts as not set")
		}
	}
}
