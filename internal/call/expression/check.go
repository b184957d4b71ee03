package expression

import (
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm/runtime"
)

// available are the builtins of expr that take time and memory in proportion to their input.
var available = set("abs all any ceil count date duration filter find findIndex findLast first float floor get " +
	"hasPrefix hasSuffix indexOf int last lastIndexOf len lower map max min none now one round " +
	"sum trim trimPrefix trimSuffix type upper")

func set(words string) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		out[word] = true
	}
	return out
}

// Names of functions that stand for the operator +: an identifier cannot start with a space.
const (
	plus         = " +"
	plusOfNumber = " + of numbers"
)

// functions are ours, in place of what expr does not bound.
var functions = map[string]func(...any) (any, error){
	"split":      split,
	"json":       fromText,
	"values":     values,
	"string":     toText,
	plus:         func(args ...any) (any, error) { return join(args[0], args[1], memory) },
	plusOfNumber: func(args ...any) (any, error) { return join(args[0], args[1], 0) },
}

// join adds numbers and times, and joins text of at most limit bytes.
func join(a, b any, limit int) (any, error) {
	x, left := a.(string)
	y, right := b.(string)
	switch {
	case !left || !right:
		return runtime.Add(a, b), nil // panics for other types, which Eval returns as an error
	case limit == 0:
		return nil, errors.New("text cannot be joined within a predicate")
	case len(x)+len(y) > limit:
		return nil, fmt.Errorf("the text is longer than %d bytes", limit)
	}
	return x + y, nil
}

// maxParts bounds the result of split.
const maxParts = 1000

func split(args ...any) (any, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("split takes 2 arguments: a text and its separator; got %d", len(args))
	}
	text, ok := args[0].(string)
	sep, valid := args[1].(string)
	if !ok || !valid {
		return nil, errors.New("split takes 2 arguments: a text and its separator")
	}
	parts := strings.SplitN(text, sep, maxParts+1)
	if len(parts) > maxParts {
		return nil, fmt.Errorf("split makes more than %d parts", maxParts)
	}
	return parts, nil
}

// maxText bounds the text that json reads, in bytes.
const maxText = 16 << 10

// fromText reads JSON within a text, such as a header's value.
func fromText(args ...any) (any, error) {
	if len(args) == 1 {
		if text, ok := args[0].(string); ok && len(text) <= maxText {
			return JSON([]byte(text))
		}
	}
	return nil, fmt.Errorf("json takes 1 argument: a text of at most %d bytes", maxText)
}

// values returns the values of an object, in the order of their names.
func values(args ...any) (any, error) {
	if len(args) == 1 {
		if object, ok := args[0].(map[string]any); ok && len(object) <= maxParts {
			out := make([]any, 0, len(object))
			for _, name := range slices.Sorted(maps.Keys(object)) {
				out = append(out, object[name])
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("values takes 1 argument: an object of at most %d values", maxParts)
}

// toText is the builtin string, which does not bound the text of a list.
func toText(args ...any) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("string takes 1 argument, got %d", len(args))
	}
	if !Fits(args[0], memory) {
		return nil, errTooLong
	}
	return fmt.Sprintf("%v", args[0]), nil
}

// checker rejects what could take more time or memory than its input is long.
type checker struct {
	Options
	program  *Program
	patterns int
	// whole are variables of type Members that are not yet known to be the base of a member.
	whole []*ast.IdentifierNode
	err   *file.Error
}

// check parses an expression and rejects what is not bounded. It collects the names in p.
func check(source string, config *conf.Config, o Options, p *Program) (*parser.Tree, error) {
	tree, err := parser.ParseWithConfig(source, config)
	if err != nil {
		return nil, positioned(err)
	}
	c := &checker{Options: o, program: p}
	ast.Walk(&tree.Node, c)
	for _, n := range c.whole {
		c.fail(n, "%s is not a value: name one of it by .name or [\"name\"]", n.Value)
	}
	if c.err != nil {
		return nil, positioned(c.err.Bind(tree.Source))
	}
	return tree, nil
}

func (c *checker) fail(node ast.Node, format string, args ...any) {
	if c.err == nil {
		c.err = &file.Error{Location: node.Location(), Message: fmt.Sprintf(format, args...)}
	}
}

// Visit implements ast.Visitor.
func (c *checker) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		c.program.names[n.Value] = true
		if n.Value == "$env" {
			c.fail(n, "$env is not available: name a variable")
		}
		if c.Vars[n.Value] == Members {
			c.whole = append(c.whole, n)
		}
	case *ast.MemberNode:
		base, isName := n.Node.(*ast.IdentifierNode)
		member, constant := n.Property.(*ast.StringNode)
		if isName && constant && c.Vars[base.Value] == Members {
			c.whole = slices.DeleteFunc(c.whole, func(n *ast.IdentifierNode) bool { return n == base })
			c.program.members = append(c.program.members, member.Value)
		}
	case *ast.VariableDeclaratorNode:
		if c.Untrusted {
			c.fail(n, "let is not available")
		}
	case *ast.BuiltinNode:
		if !available[n.Name] {
			c.fail(n, "%s is not available", n.Name)
		}
		if n.Name == "date" && len(n.Arguments) > 2 {
			c.fail(n, "date takes a text and its layout, and no time zone")
		}
	case *ast.CallNode:
		if name, ok := n.Callee.(*ast.IdentifierNode); !ok || functions[name.Value] == nil {
			if ok {
				c.fail(n, "%s is not a function that is available", name.Value)
			}
			c.fail(n, "methods are not available")
		} else if c.Untrusted && (name.Value == "json" || name.Value == "values") {
			c.fail(n, "%s is not available", name.Value)
		}
	case *ast.PredicateNode:
		ast.Walk(&n.Node, &predicate{c})
	case *ast.BinaryNode:
		c.operator(n)
	}
}

func (c *checker) operator(n *ast.BinaryNode) {
	switch n.Operator {
	case "matches":
		if c.Untrusted {
			c.fail(n, "matches is not available; startsWith, endsWith, contains and == are")
			return
		}
		pattern, ok := n.Right.(*ast.StringNode)
		if !ok {
			c.fail(n.Right, "the pattern of matches must be a constant text")
			return
		}
		size, err := patternSize(pattern.Value)
		if c.patterns += size; err != nil {
			c.fail(n.Right, "the pattern of matches is not valid: %v", err)
		} else if c.patterns > maxPatterns {
			c.fail(n.Right, "the patterns of matches are too large: %d instructions, at most %d", c.patterns, maxPatterns)
		}
	case "..":
		from, ok := n.Left.(*ast.IntegerNode)
		to, constant := n.Right.(*ast.IntegerNode)
		if !ok || !constant || to.Value-from.Value >= maxRange {
			c.fail(n, "a range must have constants as its ends, and at most %d values", maxRange)
		}
	}
}

// Conjuncts returns the operands of the && that a valid expression consists of, in their order, else
// the expression alone. Where parentheses or comments are between them, an operand may be a text that
// is not valid.
func Conjuncts(source string, o Options) []string {
	pool := configsOf(o)
	config := pool.Get().(*conf.Config)
	defer pool.Put(config)
	tree, err := parser.ParseWithConfig(source, config)
	if err != nil {
		return []string{source}
	}
	text := []rune(source)
	var out []string
	node := tree.Node
	for {
		n, ok := node.(*ast.BinaryNode)
		if !ok || n.Operator != "&&" && n.Operator != "and" {
			break
		}
		operator := n.Location()
		out = append(out, strings.TrimSpace(string(text[operator.To:])))
		text, node = text[:operator.From], n.Left
	}
	out = append(out, strings.TrimSpace(string(text)))
	slices.Reverse(out)
	return out
}

// patternSize is the number of instructions that a pattern compiles to.
func patternSize(pattern string) (int, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says what is wrong
	}
	if size := atLeast(re); size > maxPatterns { // compiled it could take 100 MiB
		return size, nil
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, err //nolint:wrapcheck // it says what is wrong
	}
	return len(prog.Inst), nil
}

// atLeast is a lower bound of the instructions that a pattern compiles to.
func atLeast(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += atLeast(sub)
	}
	switch re.Op {
	case syntax.OpRepeat:
		return size * max(re.Min, re.Max)
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	}
	return size
}

// predicate rejects what would do more for each item than the item is large.
type predicate struct{ *checker }

// Visit implements ast.Visitor.
func (p *predicate) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode:
		p.fail(n, "a predicate cannot iterate over another list")
	case *ast.IdentifierNode:
		if t, ok := p.Vars[n.Value]; ok && (t == Any || t == Lazy || t == Members) {
			p.fail(n, "%s cannot be used within a predicate: only the item (#, .field), constants and numbers can", n.Value)
		} else if _, function := functions[n.Value]; !ok && !function {
			p.fail(n, "%s cannot be used within a predicate", n.Value)
		} else if n.Value == "json" || n.Value == "values" {
			p.fail(n, "%s cannot be used within a predicate", n.Value)
		}
	case *ast.ArrayNode, *ast.MapNode, *ast.BuiltinNode, *ast.CallNode:
		if p.Untrusted {
			p.fail(n, "within a predicate only the item (#, .field), constants and operators can be used")
		}
	case *ast.BinaryNode:
		if n.Operator == ".." {
			p.fail(n, "a range cannot be used within a predicate")
		}
	}
}

// patch has lazy variables called, and + bounded.
type patch struct{ vars map[string]Type }

// Visit implements ast.Visitor.
func (p *patch) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if p.vars[n.Value] == Lazy {
			ast.Patch(node, &ast.CallNode{Callee: &ast.IdentifierNode{Value: n.Value}})
		}
	case *ast.BinaryNode:
		if n.Operator == "+" && !constant(n.Left) && !constant(n.Right) {
			ast.Patch(node, &ast.CallNode{Callee: &ast.IdentifierNode{Value: plus}, Arguments: []ast.Node{n.Left, n.Right}})
		}
	case *ast.PredicateNode:
		ast.Walk(&n.Node, numbersOnly{})
	}
}

// constant reports whether a node is a number, with which + does not join text.
func constant(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

// numbersOnly has the + within a predicate join no text.
type numbersOnly struct{}

// Visit implements ast.Visitor.
func (numbersOnly) Visit(node *ast.Node) {
	if call, ok := (*node).(*ast.CallNode); ok {
		if name, ok := call.Callee.(*ast.IdentifierNode); ok && name.Value == plus {
			name.Value = plusOfNumber
		}
	}
}
