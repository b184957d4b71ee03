package store

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// definition is a part of the prelude: a function, or values. It uses earlier ones only.
type definition struct {
	names []string
	text  string
}

// preludeParts are the header of the prelude, which begins each script, and its definitions.
var preludeParts = sync.OnceValues(func() (header string, all []definition) {
	header, rest, _ := strings.Cut(source("prelude"), "\n\n")
	for text := range strings.SplitSeq(luaTables()+rest, "\n\n") {
		d := definition{text: text + "\n"}
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			d.names = append(d.names, strings.Split(m[1], ", ")...)
		}
		all = append(all, d)
	}
	return header + "\n", all
})

var (
	declaration = regexp.MustCompile(`(?m)^local (?:function )?(\w+(?:, \w+)*)`)
	comment     = regexp.MustCompile(`(?m)^\s*--.*$`)
	word        = regexp.MustCompile(`\w+`)
	rareUse     = regexp.MustCompile(`\brare\(\)\.(\w+)`)
)

// used returns the definitions that code uses, directly or not, without those in but.
func used(code string, all, but []definition) (out []definition) {
	words := map[string]bool{}
	add := func(code string) {
		for _, w := range word.FindAllString(comment.ReplaceAllString(code, ""), -1) {
			words[w] = true
		}
	}
	add(code)
	for _, d := range slices.Backward(all) {
		isUsed := slices.ContainsFunc(d.names, func(n string) bool { return words[n] })
		isKnown := slices.ContainsFunc(but, func(b definition) bool { return b.text == d.text })
		if isUsed && !isKnown {
			add(d.text)
			out = append(out, d)
		}
	}
	slices.Reverse(out)
	return out
}

// withPrelude puts what code uses of the prelude in front of it. Redis makes all functions of a
// script anew at each call. Those that code calls as rare().name are made at the first such call.
func withPrelude(code string) string {
	header, all := preludeParts()
	usual := used(rareUse.ReplaceAllString(code, ""), all, nil)
	out := header + textOf(usual)
	var rare []string
	for _, m := range rareUse.FindAllStringSubmatch(code, -1) {
		name := m[1]
		if !slices.ContainsFunc(all, func(d definition) bool { return slices.Contains(d.names, name) }) {
			panic("the prelude does not define " + name)
		}
		rare = append(rare, name+" = "+name)
	}
	if len(rare) > 0 {
		fields := strings.Join(rare, ", ")
		out += "local made\nlocal function rare()\nif made then return made end\n" +
			textOf(used(fields, all, usual)) + "made = { " + fields + " }\nreturn made\nend\n"
	}
	return out + code
}

func textOf(all []definition) string {
	var out strings.Builder
	for _, d := range all {
		out.WriteString(d.text)
	}
	return out.String()
}
