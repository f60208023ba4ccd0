package jinja

// A template is a list of statements; expressions are within them. exec and eval
// are in exec.go and eval.go.
type (
	stmt interface {
		exec(r *run, s *scope) flow
	}
	expr interface {
		eval(r *run, s *scope) any
	}

	dataStmt  struct{ text Str }
	printStmt struct {
		line int
		x    expr
	}
	ifStmt struct {
		line        int
		test        expr
		then, else_ []stmt
	}
	forStmt struct {
		line        int
		target      target
		over, when  expr // when may be nil
		body, else_ []stmt
		recursive   bool
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	setBlock struct {
		line   int
		target target
		filter expr // of captured; may be nil
		body   []stmt
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	macroStmt struct {
		line int
		name string
		signature
		body []stmt
	}
	callBlock struct {
		line int
		signature
		call callExpr
		body []stmt
	}
	filterBlock struct {
		line   int
		filter expr
		body   []stmt
	}
	generationStmt struct {
		line int
		body []stmt
	}
	scopeStmt    struct{ body []stmt } // {% block %}, {% autoescape %}
	breakStmt    struct{}
	continueStmt struct{}

	// signature is the parameters of a macro; defaults belong to the last of them.
	signature struct {
		params                  []string
		defaults                []expr
		varargs, kwargs, caller bool // the body names them
	}

	// target is what is assigned to: a name, ns.attr, or a tuple of targets.
	target struct {
		name, attr string
		parts      []target
		tuple      bool
		line       int
	}

	constExpr struct{ v any }
	nameExpr  struct {
		line int
		name string
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct {
		line       int
		keys, vals []expr
	}
	attrExpr struct {
		line int
		x    expr
		name string
	}
	itemExpr struct {
		line  int
		x, at expr
	}
	sliceExpr struct {
		line              int
		x, from, to, step expr // from, to and step may be nil
	}
	callArgs struct {
		pos             []expr
		names           []string
		vals            []expr
		dynPos, dynKeys expr // *x and **x; may be nil
	}
	callExpr struct {
		line int
		f    expr
		args callArgs
	}
	filterExpr struct {
		line int
		x    expr // nil: what a block captured
		name string
		args callArgs
	}
	testExpr struct {
		line int
		x    expr
		name string
		args callArgs
	}
	unaryExpr struct {
		line int
		op   string // not, - or +
		x    expr
	}
	binaryExpr struct {
		line int
		op   string // + - * / // % **, and, or
		x, y expr
	}
	concatExpr  struct{ items []expr }
	compareExpr struct {
		line int
		x    expr
		ops  []string // == != < <= > >= in, not in
		ys   []expr
	}
	condExpr struct {
		line              int
		test, then, else_ expr // else_ may be nil
	}
)
