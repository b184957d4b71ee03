package config

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Schema is the JSON Schema of the destinations file, for editors.
//
//go:embed destinations.schema.json
var Schema []byte

// Convert writes the destinations that variables configure as a destinations file. It holds no
// secret: where a variable does, the file names a variable that has to be set to it.
func (c *Config) Convert() ([]byte, error) {
	destinations, head := &yaml.Node{Kind: yaml.MappingNode}, []string{}
	for i, d := range c.Destinations {
		block := &yaml.Node{Kind: yaml.MappingNode}
		for v := range named(blockName(c.blocks[i], ""), rowsOf(reflect.TypeFor[Destination]())) {
			setting := strings.ToLower(strings.TrimPrefix(v.name, blockName(c.blocks[i], "")))
			value := c.env.values[v.name]
			switch source := c.env.source(v.name); {
			case source == sourceDefault, source == sourcePreset, setting == "name":
				continue
			case source == sourceFile:
				setting, value = setting+strings.ToLower(fileSuffix), c.env.file(v.name)
			case v.secret:
				setting += strings.ToLower(envSuffix)
				value = strings.ToUpper(strings.ReplaceAll(d.Name, "-", "_")) + strings.TrimPrefix(v.name, strings.TrimSuffix(blockName(c.blocks[i], ""), "_"))
				head = append(head, fmt.Sprintf("Set %s to what %s holds.", value, v.name))
			}
			node := scalar(value)
			if v.typ == reflect.TypeFor[LimitUses]() {
				var list yaml.Node
				if err := yaml.Unmarshal([]byte(value), &list); err == nil {
					node = list.Content[0]
				}
			}
			block.Content = append(block.Content, scalar(setting), node)
		}
		destinations.Content = append(destinations.Content, scalar(d.Name), block)
	}
	var out bytes.Buffer
	for _, line := range head {
		out.WriteString("# " + line + "\n")
	}
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	root := &yaml.Node{Kind: yaml.MappingNode}
	if len(c.limits) > 0 {
		limits := &yaml.Node{Kind: yaml.MappingNode}
		for _, l := range c.limits {
			limits.Content = append(limits.Content, scalar(l.Name), l.node())
		}
		root.Content = append(root.Content, scalar("limits"), limits)
	}
	root.Content = append(root.Content, scalar("destinations"), destinations)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("config: convert: %w", err)
	}
	return out.Bytes(), nil
}

// scalar is a text as YAML writes it best.
func scalar(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if s == "" || strings.TrimSpace(s) != s {
		n.SetString(s)
	}
	return n
}
