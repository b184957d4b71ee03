package slackpreview

import (
	"strings"
	"unicode/utf8"
)

// wrap breaks runs into lines of at most that width, between words where possible. Line breaks in
// the text are kept.
func wrap(runs []run, wide, size float64) [][]run {
	var lines [][]run
	var current []run
	x := 0.0
	end := func() {
		if n := len(current); n > 0 { // no space at the end of a line
			current[n-1].text = strings.TrimRight(current[n-1].text, " ")
		}
		lines = append(lines, current)
		current, x = nil, 0
	}
	put := func(s string, st style) {
		x += measure(s, st, size)
		if n := len(current); n > 0 && current[n-1].style == st {
			current[n-1].text += s
			return
		}
		current = append(current, run{s, st})
	}
	for _, r := range runs {
		for i, part := range strings.Split(r.text, "\n") {
			if i > 0 {
				end()
			}
			for _, word := range splitWords(part) {
				if x > 0 && x+measure(strings.TrimRight(word, " "), r.style, size) > wide {
					end()
					word = strings.TrimLeft(word, " ")
				}
				for measure(word, r.style, size) > wide { // longer than a line: cut it
					n := fitting(word, r.style, size, wide)
					put(word[:n], r.style)
					end()
					word = word[n:]
				}
				if word != "" {
					put(word, r.style)
				}
			}
		}
	}
	end()
	return lines
}

// splitWords cuts a text behind its spaces.
func splitWords(s string) []string {
	var out []string
	for s != "" {
		i := strings.IndexByte(s, ' ')
		if i < 0 {
			return append(out, s)
		}
		for i < len(s) && s[i] == ' ' {
			i++
		}
		out = append(out, s[:i])
		s = s[i:]
	}
	return out
}

// fitting is how many bytes of a text fit; at least one character.
func fitting(s string, st style, size, wide float64) int {
	_, n := utf8.DecodeRuneInString(s)
	for n < len(s) {
		_, more := utf8.DecodeRuneInString(s[n:])
		if measure(s[:n+more], st, size) > wide {
			break
		}
		n += more
	}
	return n
}

// measure is how wide a text is.
func measure(s string, st style, size float64) float64 {
	table, other := regularWidths[:], 0.65
	switch {
	case st.code || st.mono:
		return 0.602 * codeSize(size) * float64(utf8.RuneCountInString(s))
	case st.bold:
		table = boldWidths[:]
	}
	sum := 0.0
	for _, r := range s {
		switch {
		case r >= ' ' && int(r-' ') < len(table):
			sum += float64(table[r-' ']) / 1000
		case icons[r] != "":
			sum += 1.3
		case r == '·' || r == '’':
			sum += .35
		case r == '×':
			sum += .84
		case r == '…' || r >= 0x1100: // as wide as it is high
			sum++
		default:
			sum += other
		}
	}
	return sum * size
}

// codeSize is the size of code beside text.
func codeSize(size float64) float64 { return size * .9 }

// Widths of the printable ASCII characters in thousandths of the size: of DejaVu Sans,
// which are those of Verdana but for a little.
var (
	regularWidths = [...]uint16{
		318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
		636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
		1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
		603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
		500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
		635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
	}
	boldWidths = [...]uint16{
		348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365,
		696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580,
		1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850,
		733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500,
		500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687,
		716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
	}
)
