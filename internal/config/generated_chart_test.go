package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// valuesElsewhere are variables that other values of the chart set.
var valuesElsewhere = []string{"REDIS_URL", fileVariable, "SHUTDOWN_TIMEOUT", "OPS_ADDR", "LISTEN_ADDR", "API_TOKENS_FILE"}

// TestGeneratedSchema generates what follows $defs/breaker in the schema of the chart's values.
func TestGeneratedSchema(t *testing.T) {
	environment, err := os.ReadFile("../../deploy/helm/tidegate/templates/_environment.tpl")
	if err != nil {
		t.Fatal(err)
	}
	compareFile(t, schemaFile, func(old string) string {
		head, _, found := strings.Cut(old, `    "breaker": {`)
		if !found {
			t.Fatal("values.schema.json has no $defs/breaker")
		}
		var settings, destination, overrides []string
		for _, v := range table() {
			schema := func(name string) string { return fmt.Sprintf("        %q: %s", name, valueSchema(v)) }
			switch name, ofDestination := strings.CutPrefix(v.name, blockPrefix); {
			case strings.HasPrefix(name, "CIRCUIT_BREAKER_") && ofDestination:
				overrides = append(overrides, schema(camel(strings.TrimPrefix(name, "CIRCUIT_BREAKER_"))))
			case ofDestination:
				destination = append(destination, schema(chartKey(name)))
				if v.secret && !bytes.Contains(environment, []byte(`"`+chartKey(name))) {
					t.Errorf("%s: tidegate.configData and tidegate.secretEnv of _environment.tpl have no %s", v.name, chartKey(name))
				}
				if v.typ == reflect.TypeFor[http.Header]() {
					destination = append(destination, fmt.Sprintf("        %q: %s", chartKey(name)+"Secret", refTo("secretKey")))
				}
			case !v.secret && !slices.Contains(valuesElsewhere, name):
				settings = append(settings, schema(name))
			}
		}
		object := func(name, more string, properties []string) string {
			return fmt.Sprintf("    %q: {\n      \"type\": \"object\",\n%s      \"additionalProperties\": false,\n      \"properties\": {\n%s\n      }", name, more, strings.Join(properties, ",\n"))
		}
		return head + object("breaker", "", overrides) + "\n    },\n" +
			object("destination", "", append(destination, `        "circuitBreaker": `+refTo("breaker"))) +
			",\n      \"required\": [\"name\"],\n      \"anyOf\": [{\"required\": [\"url\"]}, {\"required\": [\"preset\"]}]\n    },\n" +
			object("config", `      "description": "Variables of docs/configuration.md that are not secret and not set by other values",
      "patternProperties": {"^OTEL_[A-Z0-9_]+$": {"type": ["string", "number", "boolean"]}},
`, settings) + "\n    }\n  }\n}\n"
	})
}

// TestGeneratedValues generates the list of a destination's keys in the comments of values.yaml.
func TestGeneratedValues(t *testing.T) {
	const begin, end = "# camelCase, and its default is the preset's or Tidegate's:\n", "#     circuitBreaker:"
	comments := readComments(t)
	compareFile(t, valuesFile, func(old string) string {
		head, rest, found := strings.Cut(old, begin)
		_, tail, more := strings.Cut(rest, end)
		if !found || !more {
			t.Fatal("values.yaml has no list of the keys of a destination")
		}
		var list strings.Builder
		for v := range named("", rowsOf(reflect.TypeFor[Destination]())) {
			if strings.HasPrefix(v.name, "CIRCUIT_BREAKER_") {
				continue // the chart has a map of them
			}
			lead := "#     "
			if v.required && list.Len() == 0 {
				lead = "#   - "
			}
			doc, _, _ := strings.Cut(strings.ReplaceAll(comments[v.comment], "\n", " "), ". ")
			doc, _, _ = strings.Cut(doc, ": ")
			fmt.Fprintf(&list, "%s%s: %s # %s\n", lead, chartKey(v.name), chartExample(v), strings.TrimSuffix(doc, "."))
		}
		return head + begin + list.String() + end + tail
	})
}

// chartKey is the key of a destination's variable in the chart: AUTH_TOKENS_FILE is authTokens, from which
// the chart makes the file.
func chartKey(name string) string { return camel(strings.TrimSuffix(name, "_FILE")) }

// camel turns COOLDOWN_MS into cooldownMs.
func camel(name string) string {
	words := strings.Split(strings.ToLower(name), "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

func chartExample(v variable) string {
	value := cmp.Or(v.example, v.def)
	switch {
	case v.name == "ANSWERS_FILE":
		return "{configMap: shop, key: answers.yaml}"
	case v.inSecret():
		return "{secret: shop, key: " + strings.ReplaceAll(strings.ToLower(v.name), "_", "-") + "}"
	case v.typ == reflect.TypeFor[http.Header]():
		return "{" + strings.ReplaceAll(strings.ReplaceAll(value, ":", ": "), ",", ", ") + "}"
	case v.typ == reflect.TypeFor[LimitUses]():
		return "'" + value + "'"
	case v.typ.Kind() == reflect.Slice && v.typ != reflect.TypeFor[breaker.Rates]():
		return "[" + strings.ReplaceAll(value, ",", ", ") + "]"
	case strings.HasPrefix(value, "["):
		return fmt.Sprintf("%q", value)
	}
	return value
}

// inSecret reports whether the chart takes the value from a Secret.
func (v variable) inSecret() bool {
	return v.secret && v.typ != reflect.TypeFor[http.Header]() || strings.HasSuffix(v.name, "TOKENS_FILE") || v.name == blockPrefix+"AUTH_POOL_FILE" || v.name == "AUTH_POOL_FILE"
}

func refTo(def string) string { return `{"$ref": "#/$defs/` + def + `"}` }

func textSchema(pattern string) string {
	quoted, _ := json.Marshal(pattern)
	return fmt.Sprintf(`{"type": "string", "pattern": %s}`, quoted)
}

// oneOfTexts is the schema of one of some words.
func oneOfTexts(words ...string) string {
	return `{"type": "string", "enum": ["` + strings.Join(words, `", "`) + `"]}`
}

// schemaByForm are the schemas of texts with a form that JSON Schema can express.
var schemaByForm = map[string]string{
	"namespace":   `{"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,30}$", "not": {"const": "asynq"}}`,
	"destination": `{"$ref": "#/$defs/name", "not": {"enum": ["tidegate-alerts", "tidegate-callbacks"]}}`,
	"preset":      textSchema(`^[a-z0-9]+$`),
	"target":      textSchema(`^https?://[^/@\s#]+(/[^\s#]*)?$`),
	"url":         textSchema(`^https?://`),
	"receiver":    textSchema(`^https?://`),
	"method":      textSchema(`^[A-Z]+$`),
	"scheme":      textSchema(`^\S+$`),
}

// schemaByType are the schemas of types whose values have no bounds.
var schemaByType = map[reflect.Type]string{
	reflect.TypeFor[bool]():          `{"type": "boolean"}`,
	reflect.TypeFor[string]():        `{"type": "string", "minLength": 1}`,
	reflect.TypeFor[time.Duration](): refTo("duration"),
	reflect.TypeFor[OffDuration]():   `{"anyOf": [` + oneOfTexts(off) + ", " + refTo("duration") + `]}`,
	reflect.TypeFor[[]int]():         refTo("statuses"),
	reflect.TypeFor[[]string]():      `{"type": "array", "minItems": 1, "items": ` + oneOfTexts(append(hintNames(), noHints)...) + "}",
	reflect.TypeFor[http.Header]():   `{"type": "object", "additionalProperties": ` + textSchema(`^[^,\r\n]*$`) + "}",
	reflect.TypeFor[breaker.Rates](): refTo("rates"),
	reflect.TypeFor[slog.Level]():    `{"type": "string"}`,

	reflect.TypeFor[LimitUses]():        `{"type": "string", "minLength": 1}`,
	reflect.TypeFor[jobs.RetryPolicy](): `{"type": "string", "minLength": 1}`,
	reflect.TypeFor[Reserve]():          `{"type": "string", "minLength": 1}`,
	reflect.TypeFor[Weights]():          `{"type": "string", "minLength": 1}`,
	reflect.TypeFor[HeaderNames]():      `{"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}`,
	reflect.TypeFor[Hosts]():            `{"type": "string", "minLength": 1}`,
}

// valueSchema is the JSON Schema of a variable's value in the chart.
func valueSchema(v variable) string {
	switch {
	case v.inSecret():
		return refTo("secretKey")
	case strings.HasSuffix(v.name, "ANSWERS_FILE"):
		return refTo("configMapKey")
	case len(v.oneOf) > 0:
		return oneOfTexts(v.oneOf...)
	}
	schema := cmp.Or(schemaByForm[v.form], schemaByType[v.typ])
	if schema != "" {
		return schema
	}
	number := "integer"
	if v.typ.Kind() == reflect.Float64 {
		number = "number"
	}
	schema = fmt.Sprintf(`{"type": %q, "minimum": %s`, number, cmp.Or(v.min, "0"))
	if v.max != "" {
		schema += `, "maximum": ` + v.max
	}
	return schema + "}"
}

// The schema of a value takes what the variable takes: its default and its example.
func TestSchemaTakesDefaults(t *testing.T) {
	for _, v := range table() {
		if value := cmp.Or(v.example, v.def, "0"); strings.Contains(valueSchema(v), `"integer"`) && strings.Trim(value, "0123456789") != "" {
			t.Errorf("%s: the schema of the chart takes numbers only, and %s is none", v.name, value)
		}
		_, rest, found := strings.Cut(valueSchema(v), `"pattern": `)
		if !found || v.inSecret() || v.typ != reflect.TypeFor[string]() {
			continue
		}
		var pattern string
		if err := json.NewDecoder(strings.NewReader(rest)).Decode(&pattern); err != nil {
			t.Fatal(err)
		}
		if value := cmp.Or(v.example, v.def); !regexp.MustCompile(pattern).MatchString(value) {
			t.Errorf("%s: the schema of the chart refuses %s", v.name, value)
		}
	}
}
