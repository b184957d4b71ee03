// Package expression evaluates expressions of operators over answers of APIs and outputs of
// jobs, in the language of github.com/expr-lang/expr:
//
//	status == 403 && body.error?.type == "rate_limit"
//	any(body.errors, .extensions?.code == "THROTTLED")
//
// What an API sends is not trusted, so time and memory are bounded (docs/adr/0032): a list is
// iterated once and not within another iteration, regular expressions are constants of RE2,
// and an expression builds at most about 256 KiB of text or 262,144 values. [JSON] bounds the
// values that come from outside.
//
// Of expr's builtins these are available:
//
//	abs all any ceil count date duration filter find findIndex findLast first float floor get
//	hasPrefix hasSuffix indexOf int last lastIndexOf len lower map max min none now one round
//	split string sum trim trimPrefix trimSuffix type upper
//
// Methods cannot be called, and within a predicate only the item (#, .field), constants and
// variables that are a number, a Bool or a String can be used.
package expression

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	exprchecker "github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/optimizer"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// Bounds of an expression.
const (
	// MaxSource is the longest expression, in bytes.
	MaxSource = 4 << 10
	// maxNodes bounds the syntax tree.
	maxNodes = 300
	// maxPatterns bounds the instructions of all regular expressions of an expression. A match
	// takes at most instructions × length of the text steps.
	maxPatterns = 200
	// maxRange is the most values of a range such as 500..599.
	maxRange = 1000
	// memory bounds what one evaluation builds: bytes of text and values of lists and maps.
	memory = 256 << 10
)

// Type of a variable.
type Type int

// The types of variables.
const (
	// Any is a value of [JSON], or a map or list of these.
	Any Type = iota
	// Int is an int.
	Int
	// Float is a float64.
	Float
	// Bool is a bool.
	Bool
	// String is a string of at most some 100 bytes; longer text is Any.
	String
	// Lazy is a func() any that returns an Any. It is called each time that an expression gets to the variable, so it
	// should cache expensive values.
	Lazy
	// Members is a map[string]any. An expression can use only its values by constant names, as in parents.upload and
	// parents["alice-7:upload"], never the map itself.
	Members
)

// Options of Compile.
type Options struct {
	// Vars are all variables, which an expression cannot misspell.
	Vars map[string]Type
	// Bool: the result must be true or false.
	Bool bool
	// Untrusted: the expression is not of the operator. There are no matches and no let, and in a
	// predicate no calls, lists and maps, so that a value that it builds is at most as large as
	// the expression's length × its input.
	Untrusted bool
}

// Error is what is wrong with an expression.
type Error struct {
	// Line and Column count from 1, Column in characters.
	Line, Column int
	// Message says what is wrong.
	Message string
}

// Error names the column, and the line unless it is the first.
func (e *Error) Error() string {
	if e.Line > 1 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("column %d: %s", e.Column, e.Message)
}

// NoFields is the message of an Error about a field of a text or a list, such as body.ok where the
// body is not JSON.
const NoFields = "a text or a list has no fields with names"

// Program is a compiled expression. Goroutines may share it.
type Program struct {
	source  string
	program *vm.Program
	names   map[string]bool
	members []string
}

// Compile compiles an expression. The error is an *Error.
func Compile(source string, o Options) (*Program, error) {
	if len(source) > MaxSource {
		return nil, &Error{1, 1, fmt.Sprintf("the expression is longer than %d bytes", MaxSource)}
	}
	if strings.TrimSpace(source) == "" {
		return nil, &Error{1, 1, "the expression is empty"}
	}
	p := &Program{source: strings.TrimSpace(source), names: map[string]bool{}}
	pool := configsOf(o)
	config := pool.Get().(*conf.Config)
	defer pool.Put(config)
	tree, err := check(source, config, o, p)
	if err != nil {
		return nil, err
	}
	if p.program, err = compile(tree, config); err != nil {
		return nil, positioned(err)
	}
	return p, nil
}

// compile is expr.Compile for a tree that is parsed, which takes most of the time with a new config.
func compile(tree *parser.Tree, config *conf.Config) (*vm.Program, error) {
	if _, err := new(exprchecker.Checker).PatchAndCheck(tree, config); err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the position
	}
	if err := optimizer.Optimize(&tree.Node, config); err != nil {
		if e, ok := errors.AsType[*file.Error](err); ok {
			return nil, e.Bind(tree.Source)
		}
		return nil, err //nolint:wrapcheck // the caller adds the position
	}
	return compiler.Compile(tree, config) //nolint:wrapcheck // the caller adds the position
}

// Source returns the expression.
func (p *Program) Source() string { return p.source }

// Uses reports whether the expression uses a variable.
func (p *Program) Uses(name string) bool { return p.names[name] }

// Members returns the names that the expression uses of variables of type Members.
func (p *Program) Members() []string { return p.members }

// machines are reused: each keeps its stack.
var machines = sync.Pool{New: func() any { return &vm.VM{MemoryBudget: memory} }}

// Eval evaluates the expression with the values of Options.Vars. The error of a missing field,
// a value of another type, or too much memory is an *Error; one of a field that is not there
// (body.a.b without body.a) is avoided by body.a?.b.
func (p *Program) Eval(env map[string]any) (any, error) {
	machine := machines.Get().(*vm.VM)
	defer machines.Put(machine)
	v, err := machine.Run(p.program, env)
	clear(machine.Stack[:cap(machine.Stack)]) // of values of this evaluation
	clear(machine.Variables)
	if err != nil {
		return nil, positioned(err)
	}
	return v, nil
}

// configs are pools of configurations of the language, by options: making one takes longer than compiling an
// expression. Goroutines do not share a configuration, because it caches types.
var configs sync.Map

func configsOf(o Options) *sync.Pool {
	key := o.key()
	if pool, ok := configs.Load(key); ok {
		return pool.(*sync.Pool)
	}
	o.Vars = maps.Clone(o.Vars)
	pool, _ := configs.LoadOrStore(key, &sync.Pool{New: func() any { return o.config() }})
	return pool.(*sync.Pool)
}

// key identifies equal options.
func (o Options) key() string {
	key := make([]byte, 0, 100)
	for _, name := range slices.Sorted(maps.Keys(o.Vars)) {
		key = append(append(key, name...), byte('0'+o.Vars[name]&0x7f), ' ')
	}
	key = strconv.AppendBool(key, o.Bool)
	return string(strconv.AppendBool(key, o.Untrusted))
}

func (o Options) config() *conf.Config {
	c := conf.CreateNew()
	o.bounded(c)
	expr.Patch(&patch{o.Vars})(c)
	if o.Bool {
		expr.AsBool()(c)
	}
	for name := range c.Disabled {
		delete(c.Builtins, name)
	}
	return c
}

// bounded configures the language: its variables, builtins and bounds.
func (o Options) bounded(c *conf.Config) {
	env := types.Map{}
	for name, t := range o.Vars {
		env[name] = t.of()
	}
	expr.Env(env)(c)
	c.MaxNodes = maxNodes
	for name := range c.Builtins {
		if !available[name] {
			c.Disabled[name] = true
		}
	}
	for name, f := range functions {
		expr.Function(name, f)(c)
	}
	expr.Function("string", toText, new(func(any) string))(c)
}

func (t Type) of() types.Type {
	switch t {
	case Int:
		return types.Int
	case Float:
		return types.Float64
	case Bool:
		return types.Bool
	case String:
		return types.String
	case Lazy:
		return types.TypeOf(func() any { return nil })
	case Any, Members:
	}
	return types.Any
}

// positioned makes an Error of an error of expr.
func positioned(err error) error {
	e, ok := errors.AsType[*file.Error](err)
	if !ok {
		return &Error{1, 1, err.Error()}
	}
	if e.Message == "invalid operation: int(string)" { // body.name where body is a text or a list
		e.Message = NoFields
	}
	return &Error{max(1, e.Line), e.Column + 1, e.Message}
}
