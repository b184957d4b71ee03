package config

import (
	"iter"
	"reflect"
	"strings"
	"sync"
)

// blockPrefix is the prefix of a destination's variables in names and
// documentation; <i> stands for the block's number.
const blockPrefix = "DESTINATION_<i>_"

// variable is one row of the table of variables, read from a field's tags.
type variable struct {
	name     string // full name, with DESTINATION_<i>_ in a block
	field    string // name of the Go field
	index    []int  // of the field in its Config or Destination
	def      string // default as written, "" if none
	example  string
	typ      reflect.Type
	kind     kind
	form     string
	secret   bool
	required bool
	min, max string
	oneOf    []string
	comment  string // names the field with its documentation, as Type.Field
	group    string // likewise for its group
}

// table is every variable in the order of the structs: of the process and,
// with <i> in their names, of a destination.
func table() []variable { return rowsOf(reflect.TypeFor[Config]()) }

// rowsOf is rows of a group, whose names lack its prefix.
func rowsOf(t reflect.Type) []variable {
	if known, ok := groups.Load(t); ok {
		return known.([]variable)
	}
	out := rows(t, "")
	groups.Store(t, out)
	return out
}

var groups sync.Map // rowsOf by type

// named gives the variables of a group their full names; variables of blocks have groups of their own.
func named(prefix string, vars []variable) iter.Seq[variable] {
	return func(yield func(variable) bool) {
		for _, v := range vars {
			block := strings.HasPrefix(v.name, blockPrefix)
			if v.name = prefix + v.name; !block && !yield(v) {
				return
			}
		}
	}
}

// rows returns the variables of a struct.
func rows(t reflect.Type, prefix string) []variable {
	var out []variable
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("env"), ",")
		switch group := f.Type; {
		case !f.IsExported(), name == "-" && (group.Kind() == reflect.String || group.Kind() == reflect.Bool):
		case name == "" || name == "-":
			if group.Kind() == reflect.Slice {
				group = group.Elem()
			}
			inner := rows(group, prefix+f.Tag.Get("envPrefix"))
			for i, v := range inner {
				inner[i].index = append([]int{f.Index[0]}, v.index...)
				if t == reflect.TypeFor[Config]() {
					inner[i].group = t.Name() + "." + f.Name
				}
			}
			out = append(out, inner...)
		default:
			v := variable{
				name: prefix + name, field: f.Name, index: f.Index, typ: f.Type, kind: kindOf(f), form: f.Tag.Get("form"),
				def: f.Tag.Get("envDefault"), example: f.Tag.Get("example"),
				secret:   f.Type == reflect.TypeFor[Secret]() || f.Tag.Get("secret") == "true",
				required: strings.Contains(options, "required"),
				min:      f.Tag.Get("min"), max: f.Tag.Get("max"),
				comment: t.Name() + "." + f.Name,
			}
			if words := f.Tag.Get("oneof"); words != "" {
				v.oneOf = strings.Split(words, ",")
			}
			out = append(out, v)
		}
	}
	return out
}
