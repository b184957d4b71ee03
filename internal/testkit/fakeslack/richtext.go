package fakeslack

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// richElement has the validated fields of the parts of a rich_text block and of their parts.
type richElement struct {
	Type     string            `json:"type"`
	Elements []json.RawMessage `json:"elements"`
	// Style is a word for a list and an object for a text.
	Style  json.RawMessage `json:"style"`
	Indent int             `json:"indent"`
	Offset int             `json:"offset"`

	Text        string `json:"text"`
	URL         string `json:"url"`
	Name        string `json:"name"`
	UserID      string `json:"user_id"`
	UsergroupID string `json:"usergroup_id"`
	ChannelID   string `json:"channel_id"`
	TeamID      string `json:"team_id"`
	Range       string `json:"range"`
	Value       string `json:"value"`
	Timestamp   *int64 `json:"timestamp"`
	Format      string `json:"format"`
	Fallback    string `json:"fallback"`
}

// maxIndent is how deep a list may be.
const maxIndent = 8

// listStyle is that of a list.
func (e richElement) listStyle() string {
	var style string
	if json.Unmarshal(e.Style, &style) != nil {
		return ""
	}
	return style
}

// isCode reports whether a text has the style of code.
func (e richElement) isCode() bool {
	var style struct {
		Code bool `json:"code"`
	}
	return json.Unmarshal(e.Style, &style) == nil && style.Code
}

// richText checks the parts of a rich_text block.
func (c *checker) richText(path string, list []json.RawMessage) {
	if list == nil {
		c.fail(path, "missing required field: elements")
	}
	for i, raw := range list {
		path := fmt.Sprintf("%s/elements/%d", path, i)
		var e richElement
		if json.Unmarshal(raw, &e) != nil {
			c.fail(path, "must be an object of the right form")
			continue
		}
		switch e.Type {
		case "rich_text_section", "rich_text_quote", "rich_text_preformatted":
			c.richInline(path, e)
		case "rich_text_list":
			c.richList(path, e)
		default:
			c.fail(path+"/type", "unsupported type: %s", e.Type)
		}
	}
}

func (c *checker) richList(path string, list richElement) {
	if style := list.listStyle(); style != "bullet" && style != "ordered" {
		c.fail(path+"/style", "must be one of the allowed values: [bullet ordered]")
	}
	if list.Indent < 0 || list.Indent > maxIndent {
		c.fail(path+"/indent", "must be 0 to %d", maxIndent)
	}
	for i, raw := range list.Elements {
		path := fmt.Sprintf("%s/elements/%d", path, i)
		var e richElement
		if json.Unmarshal(raw, &e) != nil || e.Type != "rich_text_section" {
			c.fail(path, "must be a rich_text_section")
			continue
		}
		c.richInline(path, e)
	}
}

// richInline checks the elements of a line of rich text.
func (c *checker) richInline(path string, of richElement) {
	if of.Elements == nil {
		c.fail(path, "missing required field: elements")
	}
	for i, raw := range of.Elements {
		path := fmt.Sprintf("%s/elements/%d", path, i)
		var e richElement
		if json.Unmarshal(raw, &e) != nil {
			c.fail(path, "must be an object of the right form")
			continue
		}
		if of.Type == "rich_text_preformatted" && e.Type != "text" && e.Type != "link" {
			c.fail(path+"/type", "unsupported type: %s", e.Type)
			continue
		}
		var field, value string
		switch e.Type {
		case "text":
			if e.Text == "" {
				c.fail(path+"/text", "must be more than 0 characters")
			}
			c.length(path+"/text", e.Text, maxAllText)
			continue
		case "link":
			field, value = "url", e.URL
			c.length(path+"/text", e.Text, maxAllText)
		case "emoji":
			field, value = "name", e.Name
		case "user":
			field, value = "user_id", e.UserID
		case "usergroup":
			field, value = "usergroup_id", e.UsergroupID
		case "channel":
			field, value = "channel_id", e.ChannelID
		case "team":
			field, value = "team_id", e.TeamID
		case "broadcast":
			field, value = "range", e.Range
		case "color":
			field, value = "value", e.Value
		case "date":
			field, value = "format", e.Format
			if e.Timestamp == nil {
				c.fail(path, "missing required field: timestamp")
			}
		default:
			c.fail(path+"/type", "unsupported type: %s", e.Type)
			continue
		}
		if value == "" {
			c.fail(path, "missing required field: %s", field)
		}
	}
}

// richText returns the text of the parts of a rich_text block.
func (r *renderer) richText(list []json.RawMessage) string {
	var parts []string
	for _, raw := range list {
		var e richElement
		if json.Unmarshal(raw, &e) != nil {
			continue
		}
		switch e.Type {
		case "rich_text_list":
			parts = append(parts, r.richList(e))
		case "rich_text_quote":
			parts = append(parts, "> "+strings.ReplaceAll(r.richInline(e.Elements), "\n", "\n> "))
		default:
			parts = append(parts, strings.TrimSuffix(r.richInline(e.Elements), "\n"))
		}
	}
	return join(parts, "\n")
}

func (r *renderer) richList(list richElement) string {
	var lines []string
	for i, raw := range list.Elements {
		var e richElement
		if json.Unmarshal(raw, &e) != nil {
			continue
		}
		mark := "• "
		if list.listStyle() == "ordered" {
			mark = strconv.Itoa(list.Offset+i+1) + ". "
		}
		lines = append(lines, strings.Repeat("  ", list.Indent)+mark+r.richInline(e.Elements))
	}
	return strings.Join(lines, "\n")
}

// richInline returns a line of rich text. Its texts are not markup.
func (r *renderer) richInline(list []json.RawMessage) string {
	var out strings.Builder
	for _, raw := range list {
		var e richElement
		if json.Unmarshal(raw, &e) != nil {
			continue
		}
		out.WriteString(r.richPart(e))
	}
	return harmless(out.String())
}

func (r *renderer) richPart(e richElement) string {
	switch e.Type {
	case "text":
		if e.isCode() {
			return "`" + e.Text + "`"
		}
		return e.Text
	case "link":
		if e.Text == "" || e.Text == e.URL {
			return e.URL
		}
		return e.Text + " (" + e.URL + ")"
	case "emoji":
		return ":" + e.Name + ":"
	case "user":
		return "@" + e.UserID
	case "usergroup":
		return "@" + e.UsergroupID
	case "team":
		return "@" + e.TeamID
	case "channel":
		return "#" + e.ChannelID
	case "broadcast":
		return "@" + e.Range
	case "color":
		return e.Value
	case "date":
		if e.Timestamp == nil {
			return e.Fallback
		}
		target := fmt.Sprintf("!date^%d^%s", *e.Timestamp, e.Format)
		if e.URL != "" {
			target += "^" + e.URL
		}
		return r.date(target, e.Fallback)
	}
	return ""
}
