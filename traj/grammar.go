package traj

import "encoding/json"

// Grammar is what each reply must be: its tokens are drawn from those that may come next.
// Their log-probs are of all tokens, so a file of such replies was sampled from another
// distribution than its log-probs say. The package grammar/form compiles it.
type Grammar struct {
	Kind    string          `json:"kind"`              // one of Grammars
	Schema  json.RawMessage `json:"schema,omitempty"`  // of GrammarSchema
	Pattern string          `json:"pattern,omitempty"` // of GrammarRegex, of the whole reply
	Choices []string        `json:"choices,omitempty"` // of GrammarChoice
	Tools   []ToolSpec      `json:"-"`                 // of GrammarTools: what the request offers
}

// The kinds of grammars.
const (
	GrammarJSON   = "json"   // a JSON object
	GrammarSchema = "schema" // JSON of a schema
	GrammarRegex  = "regex"  // a match of a regular expression
	GrammarChoice = "choice" // one of some texts
	GrammarTools  = "tools"  // any text; calls in it are well-formed and fit their tools
)

// Grammars are the kinds of grammars.
var Grammars = []string{GrammarJSON, GrammarSchema, GrammarRegex, GrammarChoice, GrammarTools}
