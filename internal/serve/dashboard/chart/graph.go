package chart

import (
	"fmt"
	"html/template"
	"slices"
)

// Node is a job in a Graph.
type Node struct {
	// ID is unique in the graph; Layer is its column, from 0.
	ID    string
	Layer int
	// Text and Detail are cut to fit; Class is the CSS class; Here is true for the job of the
	// page.
	Text, Detail, Class string
	Here                bool
	// Link is its path, "" for none.
	Link string
}

// Graph is a drawing of dependencies, from left to right.
type Graph struct {
	// Title names it for screen readers.
	Title string
	Nodes []Node
	// Edges are pairs of ids, parent and child. Edges of missing nodes are left out.
	Edges [][2]string
}

// The picture of a Graph, in units of a pixel.
const (
	nodeWidth, nodeHeight = 176, 44
	nodeGapX, nodeGapY    = 56, 14
	graphMargin           = 6
	// nodeText and nodeDetail are how many characters fit in a node.
	nodeText, nodeDetail = 20, 28
)

type drawn struct {
	X, Y                      int
	TextX, TextY, DetailY     int
	Text, Full, Detail, Class string
	Here                      bool
	Link                      string
}

type graphPicture struct {
	Label         string
	Width, Height int
	Nodes         []drawn
	Edges         []string
}

// SVG draws it.
func (g Graph) SVG() (template.HTML, error) {
	return render("graph", g.picture())
}

func (g Graph) picture() graphPicture {
	p := graphPicture{Label: g.Title}
	columns := map[int]int{} // nodes in each layer
	last, tallest := 0, 0
	for _, n := range g.Nodes {
		columns[n.Layer]++
		last, tallest = max(last, n.Layer), max(tallest, columns[n.Layer])
	}
	height := func(n int) int { return n*nodeHeight + max(n-1, 0)*nodeGapY }
	p.Width = 2*graphMargin + (last+1)*nodeWidth + last*nodeGapX
	p.Height = 2*graphMargin + height(tallest)
	at := map[string][2]int{}
	row := map[int]int{}
	for _, n := range g.Nodes {
		x := graphMargin + n.Layer*(nodeWidth+nodeGapX)
		y := graphMargin + (height(tallest)-height(columns[n.Layer]))/2 + row[n.Layer]*(nodeHeight+nodeGapY)
		row[n.Layer]++
		at[n.ID] = [2]int{x, y}
		p.Nodes = append(p.Nodes, drawn{
			X: x, Y: y, TextX: x + 12, TextY: y + 18, DetailY: y + 34,
			Text: middle(n.Text, nodeText), Full: n.Text, Detail: middle(n.Detail, nodeDetail), Class: n.Class, Here: n.Here, Link: n.Link,
		})
	}
	for _, e := range g.Edges {
		from, ok := at[e[0]]
		to, ok2 := at[e[1]]
		if !ok || !ok2 {
			continue
		}
		x1, y1, x2, y2 := from[0]+nodeWidth, from[1]+nodeHeight/2, to[0]-6, to[1]+nodeHeight/2
		bend := max((x2-x1)/2, nodeGapX/2)
		p.Edges = append(p.Edges, fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2))
	}
	return p
}

// middle cuts a text in its middle: ids that begin alike differ at their end.
func middle(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	head := (most - 1) / 2
	return string(slices.Concat(r[:head], []rune("…"), r[len(r)-(most-1-head):]))
}
