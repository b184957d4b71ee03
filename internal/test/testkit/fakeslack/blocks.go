package fakeslack

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// The limits of Block Kit: characters of a text by what it stands in, items of a list by its name or what has it.
// Slack does not document maxAll, of all texts of a message; it is measured.
var (
	maxChars = map[string]int{"header": 150, "section": 3000, "fields": 2000, "context": 3000, "button": 75, "text": 3000, "url": 3000}
	maxItems = map[string]int{"blocks": 50, "fields": 10, "context": 10, "actions": 25}
	kinds    = []string{"section", "header", "context", "actions", "rich_text"} // that we use
)

const maxAll = 13_200

// CheckBlocks returns why Slack would refuse blocks, the JSON of a list.
func CheckBlocks(raw []byte) error {
	var list []any
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("blocks: %w", err)
	}
	all := 0
	var errs []error
	for _, b := range list {
		object, _ := b.(map[string]any)
		if kind, _ := object["type"].(string); !slices.Contains(kinds, kind) {
			errs = append(errs, fmt.Errorf("unsupported type %q", kind))
		}
	}
	errs = append(errs, check(list, "blocks", &all))
	if all > maxAll {
		errs = append(errs, fmt.Errorf("%d characters in all", all))
	}
	return errors.Join(errs...)
}

// check looks at a value and all that it holds; within is the list or the type of object that it stands in.
func check(node any, within string, all *int) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(within+": "+format, args...)) }
	switch x := node.(type) {
	case []any:
		if limit, bound := maxItems[within]; len(x) == 0 || bound && len(x) > limit {
			fail("%d items", len(x))
		}
		for _, item := range x {
			errs = append(errs, check(item, within, all))
		}
	case map[string]any:
		kind, _ := x["type"].(string)
		_, emoji := x["emoji"]
		_, verbatim := x["verbatim"]
		if kind == "" || kind == "mrkdwn" && emoji || kind == "plain_text" && verbatim || (within == "header" || within == "button") && kind != "plain_text" {
			if within != "style" {
				fail("an object of type %q", kind)
			}
		}
		for name, value := range x {
			text, isText := value.(string)
			switch {
			case name == "style", name == "fallback":
			case isText && (name == "text" || name == "url"):
				limit, bound := maxChars[within]
				if !bound || name == "url" {
					limit = maxChars[name]
				}
				n := utf8.RuneCountInString(text)
				if *all += n; n == 0 || n > limit {
					fail("%s of %d characters", name, n)
				}
			case name == "fields":
				errs = append(errs, check(value, name, all))
			case !isText:
				errs = append(errs, check(value, kind, all))
			}
		}
	}
	return errors.Join(errs...)
}
