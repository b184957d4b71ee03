package config

import (
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
	def      string // default as written, "" if none
	example  string
	typ      reflect.Type
	secret   bool
	required bool
	min, max string
	oneOf    []string
	group    reflect.Type
}

// table is every variable in the order of the structs: those of the process and,
// with <i> in their names, those of a destination.
var table = sync.OnceValue(func() []variable { return rows(reflect.TypeFor[variables](), "") })

func rows(group reflect.Type, prefix string) []variable {
	out := groupRows(group, prefix)
	for f := range group.Fields() {
		if f.Type.Kind() == reflect.Struct {
			out = append(out, rows(f.Type, prefix+f.Tag.Get("envPrefix"))...)
		}
	}
	return out
}

// groupRows reads the fields of one struct, without the structs in it.
func groupRows(group reflect.Type, prefix string) []variable {
	var out []variable
	for f := range group.Fields() {
		if f.Type.Kind() == reflect.Struct {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("env"), ",")
		v := variable{
			name:     prefix + name,
			field:    f.Name,
			def:      f.Tag.Get("envDefault"),
			example:  f.Tag.Get("example"),
			typ:      f.Type,
			secret:   f.Type == reflect.TypeFor[Secret]() || f.Tag.Get("secret") == "true",
			required: strings.Contains(options, "required"),
			min:      f.Tag.Get("min"),
			max:      f.Tag.Get("max"),
			group:    group,
		}
		if words := f.Tag.Get("oneof"); words != "" {
			v.oneOf = strings.Split(words, ",")
		}
		out = append(out, v)
	}
	return out
}

// echo reports whether an error may show the value that was given. URLs are
// left out because people put credentials into them.
func (v variable) echo() bool { return !v.secret && v.typ != reflect.TypeFor[urlText]() }
