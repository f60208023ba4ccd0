package mathexpr

import "strings"

// plainNames are the names that mean the same with and without a backslash.
var plainNames = map[string]token{
	"pi": {kind: constantToken, text: "pi"}, "inf": {kind: constantToken, text: "inf"}, "infinity": {kind: constantToken, text: "inf"},
	"infty": {kind: constantToken, text: "inf"}, "oo": {kind: constantToken, text: "inf"},
	"sqrt": {kind: commandToken, text: "sqrt"}, "cbrt": {kind: commandToken, text: "cbrt"}, "frac": {kind: commandToken, text: "frac"},
	"binom": {kind: commandToken, text: "binom"}, "abs": {kind: functionToken, text: "abs"},
	"floor": {kind: functionToken, text: "floor"}, "ceil": {kind: functionToken, text: "ceil"},
	"and": {kind: symbolToken, text: "and"}, "or": {kind: symbolToken, text: "or"},
	"mod": {kind: symbolToken, text: "mod"}, "times": {kind: symbolToken, text: "*"}, "union": {kind: symbolToken, text: "cup"},
	"percent": {kind: symbolToken, text: "%"}, "degrees": {kind: symbolToken, text: "°"}, "degree": {kind: symbolToken, text: "°"},
	"choose": {kind: symbolToken, text: "choose"}, "in": {kind: symbolToken, text: "in"}, "cup": {kind: symbolToken, text: "cup"},
	"DNE": {kind: textToken, text: "dne"},
}

func init() {
	for _, f := range strings.Fields("sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth ln log lg exp cis max min " +
		"gcd lcm") {
		plainNames[f] = token{kind: functionToken, text: f}
	}
	for from, to := range map[string]string{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "arcsinh": "arsinh", "arccosh": "arcosh",
		"arctanh": "artanh", "arsinh": "arsinh", "arcosh": "arcosh", "artanh": "artanh", "asinh": "arsinh", "acosh": "arcosh", "atanh": "artanh",
		"tg": "tan", "ctg": "cot", "arctg": "arctan", "sgn": "sign", "sign": "sign", "Re": "Re", "Im": "Im", "lcm": "lcm"} {
		plainNames[from] = token{kind: functionToken, text: to}
	}
	for name, t := range plainNames {
		switch name {
		case "or", "and", "percent", "degrees", "abs", "oo", "DNE", "union", "in":
		default:
			commands[name] = t
		}
	}
	for _, g := range strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi " +
		"chi " +
		"psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar") {
		commands[g] = token{kind: letterToken, text: g}
	}
	for spelling, symbol := range map[string]string{
		"cdot": "*", "times": "*", "ast": "*", "star": "*", "div": "/", "pm": "±", "mp": "∓", "le": "<=", "leq": "<=", "leqslant": "<=",
		"leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in",
		"notin": "notin", "ni": "ni", "cup": "cup", "bigcup": "cup", "cap": "cap", "bigcap": "cap", "setminus": "setminus",
		"backslash": "setminus", "smallsetminus": "setminus", "subset": "sub", "subseteq": "sub", "subsetneq": "sub", "supset": "sup",
		"approx": "approx", "equiv": "equiv",
		"sim": "sim", "cong": "cong", "simeq": "approx", "propto": "propto", "parallel": "parallel", "perp": "perp", "to": "->",
		"rightarrow": "->", "Rightarrow": "->", "implies": "->", "mapsto": "->", "longrightarrow": "->", "iff": "iff",
		"Leftrightarrow": "iff", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|", "Vert": "norm", "lVert": "norm", "rVert": "norm",
		"lfloor": "lfloor", "rfloor": "rfloor", "lceil": "lceil", "rceil": "rceil", "langle": "langle", "rangle": "rangle", "lang": "langle",
		"rang": "rangle", "lbrace": `\{`, "rbrace": `\}`, "lbrack": "[", "rbrack": "]", "colon": ":", "cdots": "...", "ldots": "...",
		"dots": "...", "dotsc": "...", "dotsb": "...", "vdots": "...", "ddots": "...", "circ": "circ", "degree": "°", "prime": "'",
		"land": "and", "wedge": "and", "lor": "or", "vee": "or", "bmod": "mod", "mod": "mod", "pmod": "pmod", "over": "over",
		"choose": "choose", "atop": "over", "newline": `\\`, "cr": `\\`, "percent": "%", "textdegree": "°", "forall": "forall",
		"exists": "exists", "therefore": "", "because": "", "lnot": "not", "neg": "not", "triangle": "triangle", "angle": "angle",
		"gets": "<-", "leftarrow": "<-", "coloneqq": "=", "doteq": "=", "ast*": "*",
	} {
		commands[spelling] = token{kind: symbolToken, text: symbol}
	}
	for _, blank := range strings.Fields("quad qquad displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits enspace thinspace " +
		"thickspace medspace negthinspace negthickspace negmedspace space hfill mathstrut strut large Large small normalsize hline centering " +
		"rm bf it sf tt mathchoice allowbreak nobreak relax qed blacksquare square Box nobreakspace enskip therefore because") {
		commands[blank] = token{kind: symbolToken}
	}
	for spelling, command := range map[string]string{"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "nicefrac": "frac",
		"dbinom": "binom", "tbinom": "binom", "root": "root", "sum": "sum", "prod": "prod", "int": "int", "lim": "lim", "iint": "opaque",
		"oint": "opaque", "partial": "opaque", "nabla": "opaque", "limsup": "opaque", "liminf": "opaque", "underbrace": "opaque",
		"stackrel": "opaque", "xrightarrow": "opaque", "substack": "opaque"} {
		commands[spelling] = token{kind: commandToken, text: command}
	}
	for spelling, set := range map[string]string{"emptyset": "empty", "varnothing": "empty", "R": "R", "Q": "Q", "Z": "Z", "N": "N", "C": "C",
		"reals": "R", "Reals": "R"} {
		commands[spelling] = token{kind: setToken, text: set}
	}
	for spelling, letter := range map[string]string{"varepsilon": "epsilon", "vartheta": "theta", "varphi": "phi", "varrho": "rho",
		"varsigma": "sigma", "imath": "i", "jmath": "j"} {
		commands[spelling] = token{kind: letterToken, text: letter}
	}
	for _, f := range strings.Fields("det dim deg arg ker Pr") {
		commands[f] = token{kind: functionToken, text: f}
	}
	for name := range commands { // \rm x is a style, \text{rm} is a word
		if name == "rm" || name == "bf" || name == "it" {
			delete(commands, name)
		}
	}
}

// commands are LaTeX's commands without arguments of their own; one with an empty
// text is white space.
var commands = map[string]token{}

// runes are characters beyond ASCII; one with an empty text is white space.
var runes = map[rune]token{
	'π': {kind: constantToken, text: "pi"}, '∞': {kind: constantToken, text: "inf"}, '√': {kind: commandToken, text: "sqrt"},
	'∛': {kind: commandToken, text: "cbrt"}, '×': {kind: symbolToken, text: "*"}, '·': {kind: symbolToken, text: "*"},
	'⋅': {kind: symbolToken, text: "*"}, '∙': {kind: symbolToken, text: "*"}, '•': {kind: symbolToken, text: "*"},
	'÷': {kind: symbolToken, text: "/"}, '∕': {kind: symbolToken, text: "/"}, '⁄': {kind: symbolToken, text: "/"},
	'−': {kind: symbolToken, text: "-"}, '–': {kind: symbolToken, text: "-"}, '‐': {kind: symbolToken, text: "-"},
	'‑': {kind: symbolToken, text: "-"}, '—': {kind: symbolToken, text: "-"}, '－': {kind: symbolToken, text: "-"},
	'±': {kind: symbolToken, text: "±"}, '∓': {kind: symbolToken, text: "∓"}, '≤': {kind: symbolToken, text: "<="},
	'≥': {kind: symbolToken, text: ">="}, '⩽': {kind: symbolToken, text: "<="}, '⩾': {kind: symbolToken, text: ">="},
	'≠': {kind: symbolToken, text: "!="}, '≈': {kind: symbolToken, text: "approx"}, '≡': {kind: symbolToken, text: "equiv"},
	'∈': {kind: symbolToken, text: "in"}, '∉': {kind: symbolToken, text: "notin"}, '∪': {kind: symbolToken, text: "cup"},
	'∩': {kind: symbolToken, text: "cap"}, '∖': {kind: symbolToken, text: "setminus"}, '⊂': {kind: symbolToken, text: "sub"},
	'⊆': {kind: symbolToken, text: "sub"}, '→': {kind: symbolToken, text: "->"}, '⇒': {kind: symbolToken, text: "->"},
	'°': {kind: symbolToken, text: "°"}, 'º': {kind: symbolToken, text: "°"}, '˚': {kind: symbolToken, text: "°"},
	'′': {kind: symbolToken, text: "'"}, '’': {kind: symbolToken, text: "'"}, '″': {kind: symbolToken, text: "''"}, '∣': {kind: symbolToken,
		text: "|"},
	'⌊': {kind: symbolToken, text: "lfloor"}, '⌋': {kind: symbolToken, text: "rfloor"}, '⌈': {kind: symbolToken, text: "lceil"},
	'⌉': {kind: symbolToken, text: "rceil"}, '⟨': {kind: symbolToken, text: "langle"}, '⟩': {kind: symbolToken, text: "rangle"},
	'〈': {kind: symbolToken, text: "langle"}, '〉': {kind: symbolToken, text: "rangle"}, '∧': {kind: symbolToken, text: "and"},
	'∨': {kind: symbolToken, text: "or"}, '…': {kind: symbolToken, text: "..."}, '％': {kind: symbolToken, text: "%"},
	'，': {kind: symbolToken, text: ","}, '、': {kind: symbolToken, text: ","}, '；': {kind: symbolToken, text: ";"},
	'：': {kind: symbolToken, text: ":"}, '（': {kind: symbolToken, text: "("}, '）': {kind: symbolToken, text: ")"},
	'［': {kind: symbolToken, text: "["}, '］': {kind: symbolToken, text: "]"}, '＋': {kind: symbolToken, text: "+"},
	'＝': {kind: symbolToken, text: "="}, '＜': {kind: symbolToken, text: "<"}, '＞': {kind: symbolToken, text: ">"},
	'／': {kind: symbolToken, text: "/"}, '＊': {kind: symbolToken, text: "*"}, '．': {kind: symbolToken, text: "."}, '。': {kind: symbolToken,
		text: "."},
	'ℝ': {kind: setToken, text: "R"}, 'ℚ': {kind: setToken, text: "Q"}, 'ℤ': {kind: setToken, text: "Z"}, 'ℕ': {kind: setToken, text: "N"},
	'ℂ': {kind: setToken, text: "C"}, '∅': {kind: setToken, text: "empty"}, 'Ø': {kind: setToken, text: "empty"},
	'ϕ': {kind: letterToken, text: "phi"}, 'ℓ': {kind: letterToken, text: "ell"}, '∑': {kind: commandToken, text: "sum"},
	'∏': {kind: commandToken, text: "prod"}, '∫': {kind: commandToken, text: "int"}, '∆': {kind: letterToken, text: "Delta"},
	'\u00a0': {}, '\u2009': {}, '\u200a': {}, '\u202f': {}, '\u2002': {}, '\u2003': {}, '\u2005': {}, '\u2006': {}, '\u2007': {}, '\u2008': {},
	'\u200b': {}, '\u2061': {}, '\u2062': {kind: symbolToken, text: "*"}, '\ufeff': {}, '\u3000': {},
	'€': {}, '£': {}, '¥': {}, '₹': {}, '¢': {},
}

func init() {
	const letters = "αβγδεζηθικλμνξορστυφχψω"
	names := strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau upsilon phi " +
		"chi psi omega")
	i := 0
	for _, r := range letters {
		runes[r] = token{kind: letterToken, text: names[i]}
		i++
	}
	for r, name := range map[rune]string{'Γ': "Gamma", 'Δ': "Delta", 'Θ': "Theta", 'Λ': "Lambda", 'Σ': "Sigma", 'Φ': "Phi", 'Ψ': "Psi",
		'Ω': "Omega"} {
		runes[r] = token{kind: letterToken, text: name}
	}
	for d := range rune(10) { // full-width digits are read as signs of their own
		_ = d
	}
}

var fractions = map[rune][2]int64{'½': {1, 2}, '⅓': {1, 3}, '⅔': {2, 3}, '¼': {1, 4}, '¾': {3, 4}, '⅕': {1, 5}, '⅖': {2, 5}, '⅗': {3, 5},
	'⅘': {4, 5}, '⅙': {1, 6}, '⅚': {5, 6}, '⅐': {1, 7}, '⅛': {1, 8}, '⅜': {3, 8}, '⅝': {5, 8}, '⅞': {7, 8}, '⅑': {1, 9}, '⅒': {1, 10}}

// The k-th character stands for the k-th of 0123456789-+n()ix.
const (
	superscripts = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ⁽⁾ⁱˣ"
	subscripts   = "₀₁₂₃₄₅₆₇₈₉₋₊ₙ₍₎ᵢₓ"
)
