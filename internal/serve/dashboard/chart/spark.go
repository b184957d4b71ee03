package chart

import (
	"html/template"
	"strings"
)

// Spark is a line without axes, for a row of a table.
type Spark struct {
	Title  string
	Class  string
	Values []int
}

const sparkWidth, sparkHeight = 100.0, 24.0

type sparkPicture struct {
	Label, Class, Line, Under string
}

// SVG draws it.
func (s Spark) SVG() (template.HTML, error) {
	return render("spark", s.picture())
}

func (s Spark) picture() sparkPicture {
	p := sparkPicture{Label: s.Title, Class: s.Class}
	most := 1
	for _, v := range s.Values {
		most = max(most, v)
	}
	var line []string
	for i, v := range s.Values {
		x := sparkWidth * float64(i) / float64(max(len(s.Values)-1, 1))
		line = append(line, coordinate(x)+" "+coordinate(sparkHeight-2-(sparkHeight-4)*float64(max(v, 0))/float64(most)))
	}
	if len(line) == 0 {
		return p
	}
	p.Line = "M" + strings.Join(line, "L")
	p.Under = p.Line + "L" + coordinate(sparkWidth) + " " + coordinate(sparkHeight) + "L0 " + coordinate(sparkHeight) + "Z"
	return p
}
