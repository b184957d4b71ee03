package slackpreview

import "unicode/utf8"

// icons are the emoji that can be drawn, 20 by 20. A picture must not depend on a font
// with emoji.
var icons = map[rune]string{
	'🔴': `<circle cx="10" cy="10" r="9" fill="#dd2e44"/>`,
	'🟡': `<circle cx="10" cy="10" r="9" fill="#fdcb58"/>`,
	'🟢': `<circle cx="10" cy="10" r="9" fill="#78b159"/>`,
	'⏸': `<rect x="1" y="1" width="18" height="18" rx="3" fill="#3b88c3"/><path d="M7 5v10M13 5v10" stroke="#ffffff" stroke-width="3"/>`,
	'🚨': `<path d="M4 15a6 9 0 0 1 12 0z" fill="#dd2e44"/><rect x="2" y="15" width="16" height="4" rx="1" fill="#99aab5"/>` +
		`<path d="M10 1v2M3 4l1.6 1.4M17 4l-1.6 1.4" stroke="#dd2e44" stroke-width="1.6" stroke-linecap="round"/>`,
	'❌': `<path d="M3 3l14 14M17 3L3 17" stroke="#dd2e44" stroke-width="4" stroke-linecap="round"/>`,
	'⛔': `<circle cx="10" cy="10" r="9" fill="#dd2e44"/><rect x="4" y="8" width="12" height="4" rx="1" fill="#ffffff"/>`,
	'⏳': `<path d="M4 2h12M4 18h12" stroke="#3b88c3" stroke-width="2.4" stroke-linecap="round"/>` +
		`<path d="M5 3c0 4 4 5 4 7s-4 3-4 7h10c0-4-4-5-4-7s4-3 4-7z" fill="#bbddf5"/><path d="M7 5h6l-3 4zM7 16l3-3 3 3z" fill="#ffac33"/>`,
	'⚠': `<path d="M10 1.5L19 18H1z" fill="#ffcc4d" stroke="#ffcc4d" stroke-width="1.5" stroke-linejoin="round"/>` +
		`<path d="M10 7v5.5" stroke="#231f20" stroke-width="2.2" stroke-linecap="round"/><circle cx="10" cy="15.6" r="1.3" fill="#231f20"/>`,
}

// iconAt is the drawing of the emoji that a text begins with; "" if it does not.
func iconAt(s string) string {
	r, _ := utf8.DecodeRuneInString(s)
	return icons[r]
}
