// Package chart draws the charts of the dashboard as SVG, without scripts and colours: the page's
// style sheet colours the classes in the viewer's theme.
//
// Texts are escaped by html/template. Instants carry their milliseconds since 1970
// in data-t, so that a script can write them in the viewer's time zone; as drawn
// they are in UTC.
package chart

//go:generate go test -run ^TestPicture$ -count=1 . -args -update
