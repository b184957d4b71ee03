// Package presets holds what is publicly known of APIs, as data: a file for each API.
//
// A preset is a layer of defaults below a destination's variables, and answer rules behind
// the rules of its file. Package config applies it; docs/apis is generated from it.
package presets

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Preset is what is publicly known of an API.
type Preset struct {
	Name  string `yaml:"name" json:"name"`
	Title string `yaml:"title" json:"title"`
	// Date is when the sources were read, as YYYY-MM-DD.
	Date   string   `yaml:"date" json:"date"`
	Source []string `yaml:"source" json:"source"`
	// Settings are values of DESTINATION_<i>_… variables by what follows the prefix, written
	// as in the environment.
	Settings map[string]string `yaml:"settings" json:"settings"`
	// Environment are the variables that a user sets besides the name and the preset.
	Environment []string `yaml:"environment" json:"environment"`
	// Enqueue are the arguments of tidegate enqueue for a typical call.
	Enqueue string `yaml:"enqueue" json:"enqueue"`
	// Idempotency says whether the API honours the header Idempotency-Key.
	Idempotency string `yaml:"idempotency" json:"idempotency"`
	// Hints says where answers announce the limit.
	Hints  string  `yaml:"hints" json:"hints"`
	Limits []Limit `yaml:"limits" json:"limits"`
	// Answers are rules in the form of an ANSWERS_FILE.
	Answers []Rule `yaml:"answers" json:"answers"`
	// Budgets are in the form of an ANSWERS_FILE, too.
	Budgets []Budget `yaml:"budgets" json:"budgets,omitempty"`
	// Also is a preset whose rules and budgets follow; "": none.
	Also string `yaml:"also" json:"-"`
	// Examples are answers as the API documents them.
	Examples []Example `yaml:"examples" json:"examples"`
	Notes    []string  `yaml:"notes" json:"notes"`
}

// Limit is a documented limit.
type Limit struct {
	// Limit is a rate such as 5000/1h, or a word if no number is published.
	Limit string `yaml:"limit" json:"limit"`
	// Of says what is limited, and who has another limit.
	Of string `yaml:"of" json:"of"`
}

// Rule is an answer rule.
type Rule struct {
	When   string `yaml:"when" json:"when"`
	Then   string `yaml:"then" json:"then"`
	Wait   string `yaml:"wait,omitempty" json:"wait,omitempty"`
	Until  string `yaml:"until,omitempty" json:"until,omitempty"`
	Scope  string `yaml:"scope,omitempty" json:"scope,omitempty"`
	Cost   string `yaml:"cost,omitempty" json:"cost,omitempty"`
	Reason string `yaml:"reason,omitempty" json:"reason,omitempty"`
	Output string `yaml:"output,omitempty" json:"output,omitempty"`
}

// Budget is what an API announces in fields of its own.
type Budget struct {
	Name   string `yaml:"name" json:"name"`
	When   string `yaml:"when,omitempty" json:"when,omitempty"`
	Left   string `yaml:"left" json:"left"`
	Resets string `yaml:"resets" json:"resets"`
	Limit  string `yaml:"limit,omitempty" json:"limit,omitempty"`
	Scope  string `yaml:"scope,omitempty" json:"scope,omitempty"`
}

// Example is a response of the API and its outcome.
type Example struct {
	Name    string            `yaml:"name" json:"name"`
	Status  int               `yaml:"status" json:"status"`
	Headers map[string]string `yaml:"headers" json:"headers,omitempty"`
	Body    string            `yaml:"body" json:"body,omitempty"`
	// Outcome is ok, limited, retry, fail, reschedule or unauthorized.
	Outcome string `yaml:"outcome" json:"outcome"`
	// Wait is how long the answer says to wait, such as 30m; "" if it does not.
	Wait string `yaml:"wait" json:"wait,omitempty"`
	// Scope of the limit: user, global or "" for unknown.
	Scope string `yaml:"scope" json:"scope,omitempty"`
	// Cost is what the call has cost by the answer; 0 if it does not say.
	Cost int `yaml:"cost" json:"cost,omitempty"`
	// Budgets are the budgets that the response announces, such as "requests: 59 of 60 left, resets in 1s".
	Budgets []string `yaml:"budgets" json:"budgets,omitempty"`
}

// Comes says what the answer comes to.
func (e Example) Comes() string {
	text := e.Outcome
	if e.Wait != "" {
		text += ", wait " + e.Wait
	}
	switch e.Scope {
	case "user":
		text += ", for the key"
	case "global":
		text += ", for the destination"
	}
	if e.Cost != 0 {
		text += fmt.Sprintf(", costs %d", e.Cost)
	}
	return strings.Join(append([]string{text}, e.Budgets...), "; ")
}

//go:embed data/*.yaml
var files embed.FS

// Rules are the answer rules and budgets as the content of an ANSWERS_FILE; nil if there are none.
func (p *Preset) Rules() []byte {
	if len(p.Answers)+len(p.Budgets) == 0 {
		return nil
	}
	out, err := yaml.Marshal(map[string]any{"rules": p.Answers, "budgets": p.Budgets})
	if err != nil {
		panic("presets: " + p.Name + ": " + err.Error())
	}
	return out
}

// Names returns the names of all presets, in order.
func Names() []string {
	entries, err := fs.ReadDir(files, "data")
	if err != nil {
		panic("presets: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// Get returns the preset of a name, and false if there is none.
func Get(name string) (*Preset, bool) {
	data, err := files.ReadFile("data/" + name + ".yaml")
	if err != nil {
		return nil, false
	}
	var p Preset
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		panic(fmt.Sprintf("presets: %s: %v", name, err)) // a test reads them all
	}
	if also, ok := Get(p.Also); ok {
		p.Answers = append(p.Answers, also.Answers...)
		p.Budgets = append(p.Budgets, also.Budgets...)
	}
	return &p, true
}
