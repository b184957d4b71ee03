package fakeslack

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Limits of Block Kit, in characters and in parts. maxAllText is a measured value,
// which Slack does not document.
const (
	maxBlocks       = 50
	maxSectionText  = 3000
	maxFields       = 10
	maxFieldText    = 2000
	maxHeader       = 150
	maxContext      = 10
	maxActions      = 25
	maxButtonText   = 75
	maxButtonURL    = 3000
	maxButtonValue  = 2000
	maxID           = 255
	maxAltText      = 2000
	maxMarkdown     = 12_000
	maxAllText      = 13_200
	markdownElement = "mrkdwn"
	plainElement    = "plain_text"
)

// otherBlocks are the kinds whose inside is not checked here.
var otherBlocks = map[string]bool{
	"alert": true, "card": true, "carousel": true, "context_actions": true, "file": true,
	"input": true, "table": true, "video": true,
}

// block has the validated fields of a block or an element.
type block struct {
	Type      string            `json:"type"`
	BlockID   string            `json:"block_id"`
	Text      json.RawMessage   `json:"text"`
	Fields    []json.RawMessage `json:"fields"`
	Accessory json.RawMessage   `json:"accessory"`
	Elements  []json.RawMessage `json:"elements"`
	URL       string            `json:"url"`
	Value     string            `json:"value"`
	ActionID  string            `json:"action_id"`
	ImageURL  string            `json:"image_url"`
	AltText   string            `json:"alt_text"`
	SlackFile json.RawMessage   `json:"slack_file"`
}

// textObject is Block Kit's text.
type textObject struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Emoji    *bool  `json:"emoji"`
	Verbatim *bool  `json:"verbatim"`
}

// checker collects the validation errors of blocks.
type checker struct {
	problems []string
	all      int // characters of all texts
}

func (c *checker) fail(path, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...)+" [json-pointer:"+path+"]")
}

// readBlocks returns the blocks without white space, nil for an empty list; or the response if
// they are invalid.
func readBlocks(raw []byte) (json.RawMessage, map[string]any) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, refuse("invalid_blocks_format")
	}
	if len(list) == 0 {
		return nil, nil
	}
	var c checker
	if len(list) > maxBlocks {
		c.fail("/blocks", "no more than %d items allowed", maxBlocks)
	}
	ids := map[string]bool{}
	for i, raw := range list {
		path := fmt.Sprintf("/blocks/%d", i)
		b := c.block(path, raw)
		if b.BlockID != "" && ids[b.BlockID] {
			c.fail(path+"/block_id", "`block_id` must be unique")
		}
		ids[b.BlockID] = true
	}
	if len(c.problems) > 0 {
		messages := make([]string, len(c.problems))
		for i, p := range c.problems {
			messages[i] = "[ERROR] " + p
		}
		return nil, merge(refuse("invalid_blocks"), map[string]any{
			"errors": c.problems, "response_metadata": map[string]any{"messages": messages},
		})
	}
	if c.all > maxAllText {
		return nil, refuse("msg_blocks_too_long")
	}
	return compact(raw), nil
}

func (c *checker) block(path string, raw json.RawMessage) block {
	var b block
	// A string where markdown has its text, an object elsewhere: Text stays raw.
	if err := json.Unmarshal(raw, &b); err != nil {
		c.fail(path, "must be an object of the right form")
		return b
	}
	if len(b.BlockID) > maxID {
		c.fail(path+"/block_id", "must be less than %d characters", maxID+1)
	}
	switch b.Type {
	case "section":
		c.section(path, b)
	case "header":
		c.text(path+"/text", b.Text, maxHeader, plainElement)
	case "context":
		c.elements(path, b.Elements, maxContext, func(path string, raw json.RawMessage) {
			if e := c.element(path, raw); e.Type != "image" {
				c.text(path, raw, maxSectionText, plainElement, markdownElement)
			}
		})
	case "actions":
		c.elements(path, b.Elements, maxActions, func(path string, raw json.RawMessage) { c.element(path, raw) })
	case "image":
		c.image(path, b)
	case "markdown":
		var text string
		if json.Unmarshal(b.Text, &text) != nil || text == "" {
			c.fail(path+"/text", "must be more than 0 characters")
		}
		c.length(path+"/text", text, maxMarkdown)
	case "rich_text":
		c.richText(path, b.Elements)
	case "divider":
	case "":
		c.fail(path, "missing required field: type")
	default:
		if !otherBlocks[b.Type] {
			c.fail(path+"/type", "unsupported type: %s", b.Type)
		}
	}
	return b
}

func (c *checker) section(path string, b block) {
	if b.Text == nil && len(b.Fields) == 0 {
		c.fail(path, "missing required field: text or fields")
	}
	if b.Text != nil {
		c.text(path+"/text", b.Text, maxSectionText, plainElement, markdownElement)
	}
	if len(b.Fields) > maxFields {
		c.fail(path+"/fields", "no more than %d items allowed", maxFields)
	}
	for i, raw := range b.Fields {
		c.text(fmt.Sprintf("%s/fields/%d", path, i), raw, maxFieldText, plainElement, markdownElement)
	}
	if b.Accessory != nil {
		c.element(path+"/accessory", b.Accessory)
	}
}

func (c *checker) elements(path string, list []json.RawMessage, limit int, check func(string, json.RawMessage)) {
	path += "/elements"
	if len(list) == 0 {
		c.fail(path, "no less than 1 items allowed")
	}
	if len(list) > limit {
		c.fail(path, "no more than %d items allowed", limit)
	}
	for i, raw := range list {
		check(fmt.Sprintf("%s/%d", path, i), raw)
	}
}

// element checks what can be inside of a block. Of those for people's input only that
// they have a type is checked.
func (c *checker) element(path string, raw json.RawMessage) block {
	var e block
	// Of a text the field "text" is a string, which stays raw.
	if err := json.Unmarshal(raw, &e); err != nil {
		c.fail(path, "must be an object of the right form")
		return e
	}
	switch e.Type {
	case "button":
		c.text(path+"/text", e.Text, maxButtonText, plainElement)
		for name, field := range map[string]struct {
			text  string
			limit int
		}{"url": {e.URL, maxButtonURL}, "value": {e.Value, maxButtonValue}, "action_id": {e.ActionID, maxID}} {
			if utf8.RuneCountInString(field.text) > field.limit {
				c.fail(path+"/"+name, "must be less than %d characters", field.limit+1)
			}
		}
	case "image":
		c.image(path, e)
	case "":
		c.fail(path, "missing required field: type")
	}
	return e
}

func (c *checker) image(path string, b block) {
	if b.ImageURL == "" && b.SlackFile == nil {
		c.fail(path, "missing required field: image_url")
	}
	if b.AltText == "" {
		c.fail(path, "missing required field: alt_text")
	}
	if utf8.RuneCountInString(b.AltText) > maxAltText {
		c.fail(path+"/alt_text", "must be less than %d characters", maxAltText+1)
	}
}

// text checks a text object of one of some types.
func (c *checker) text(path string, raw json.RawMessage, limit int, types ...string) {
	var t textObject
	if raw == nil {
		c.fail(path, "missing required field: text")
		return
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		c.fail(path, "must be a text object")
		return
	}
	known := false
	for _, name := range types {
		known = known || t.Type == name
	}
	switch {
	case !known:
		c.fail(path+"/type", "must be one of the allowed types: %v", types)
	case t.Type == markdownElement && t.Emoji != nil:
		c.fail(path, "no more fields allowed: emoji")
	case t.Type == plainElement && t.Verbatim != nil:
		c.fail(path, "no more fields allowed: verbatim")
	case t.Text == "":
		c.fail(path+"/text", "must be more than 0 characters")
	}
	c.length(path+"/text", t.Text, limit)
}

func (c *checker) length(path, text string, limit int) {
	n := utf8.RuneCountInString(text)
	c.all += n
	if n > limit {
		c.fail(path, "must be less than %d characters", limit+1)
	}
}
