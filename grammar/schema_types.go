package grammar

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// typeSet is a set of JSON's types.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFractional // numbers that are not whole
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFractional
	typeAny    = 1<<7 - 1
)

var typeNames = map[string]typeSet{"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject}

// keywordTypes are the keywords of one type, and the type. 0: of all types.
var keywordTypes = map[string]typeSet{
	"properties": typeObject, "required": typeObject, "additionalProperties": typeObject, "patternProperties": typeObject,
	"minProperties": typeObject, "maxProperties": typeObject, "unevaluatedProperties": typeObject,
	"items": typeArray, "prefixItems": typeArray, "additionalItems": typeArray, "minItems": typeArray, "maxItems": typeArray,
	"uniqueItems": typeArray, "unevaluatedItems": typeArray,
	"minLength": typeString, "maxLength": typeString, "pattern": typeString, "format": typeString,
	"minimum": typeNumber, "maximum": typeNumber, "exclusiveMinimum": typeNumber, "exclusiveMaximum": typeNumber, "multipleOf": typeNumber,
	"type": 0, "enum": 0, "const": 0, "nullable": 0, "$ref": 0, "allOf": 0, "anyOf": 0, "oneOf": 0,
}

// typesOf are the types that a schema allows. One that says nothing about types but has
// keywords of some means those; constants mean their own.
func typesOf(s *value) typeSet {
	if s.kind != '{' {
		return typeAny
	}
	var out typeSet
	if t := s.get("type"); t != nil {
		out = typeNames[t.text]
		for _, x := range t.items {
			out |= typeNames[x.text]
		}
	} else if list := constants(s); list != nil {
		for _, x := range list {
			out |= typeNames[x.typeName()]
		}
		return out
	} else {
		for _, m := range s.members {
			out |= keywordTypes[m.name]
		}
		if out == 0 {
			return typeAny
		}
	}
	if n := s.get("nullable"); n != nil && n.kind == 't' { // OpenAPI 3.0
		out |= typeNull
	}
	return out
}

// plain is the values that meet schemas whose joining keywords have been followed.
func (c *schemaCompiler) plain(all []*value, depth int) expr {
	types := typeSet(typeAny)
	var lists []*value // schemas with enum or const
	for _, s := range all {
		if s.kind == 'f' {
			return c.never(s, "it is false")
		}
		if !c.check(s) {
			return alternative{}
		}
		if types&typesOf(s) == 0 {
			return c.never(s, "it allows none of the types that are left")
		}
		types &= typesOf(s)
		if constants(s) != nil {
			lists = append(lists, s)
		}
	}
	if len(lists) > 0 {
		return c.constants(all, lists, types)
	}
	if types == typeAny && vacuous(all) {
		return c.w.value
	}
	var out alternative
	if types&typeObject != 0 {
		out = append(out, c.object(all, depth))
	}
	if types&typeArray != 0 {
		out = append(out, c.array(all, depth))
	}
	if types&typeString != 0 {
		out = append(out, c.text(all))
	}
	if types&typeNumber != 0 {
		out = append(out, c.number(all, types))
	}
	if types&typeBoolean != 0 {
		out = append(out, c.w.literal("true"), c.w.literal("false"))
	}
	if types&typeNull != 0 {
		out = append(out, c.w.literal("null"))
	}
	return out
}

// kinds are what the values of keywords must be.
var kinds = map[string]string{
	"properties": "{", "required": "[", "additionalProperties": "{tf", "patternProperties": "{", "minProperties": "0", "maxProperties": "0",
	"items": "{tf[", "prefixItems": "[", "additionalItems": "{tf", "minItems": "0", "maxItems": "0", "uniqueItems": "tf",
	"minLength": "0", "maxLength": "0", "pattern": `"`, "format": `"`, "minimum": "0", "maximum": "0",
	"exclusiveMinimum": "0tf", "exclusiveMaximum": "0tf", "multipleOf": "0", "enum": "[", "type": `"[`, "nullable": "tf",
}

// check refuses keywords that are not supported, and values of keywords that make no sense.
func (c *schemaCompiler) check(s *value) bool {
	for _, m := range s.members {
		_, known := keywordTypes[m.name]
		switch {
		case annotation(m.name):
		case m.name == "uniqueItems" && m.value.kind == 'f':
		case (m.name == "unevaluatedProperties" || m.name == "unevaluatedItems") && m.value.kind == 't':
		case !known, m.name == "uniqueItems", strings.HasPrefix(m.name, "unevaluated"):
			c.fail(m.value, "the keyword %s is not supported in grammars; remove it", quoted(m.name))
			return false
		case kinds[m.name] != "" && strings.IndexByte(kinds[m.name], m.value.kind) < 0:
			c.fail(m.value, "the value of %s has the wrong type", m.name)
			return false
		}
	}
	if t := s.get("type"); t != nil {
		list := t.items
		if t.kind == '"' {
			list = []*value{t}
		}
		for _, x := range list {
			if typeNames[x.text] == 0 || x.kind != '"' {
				c.fail(x, "there is no type %s", quoted(x.text))
				return false
			}
		}
	}
	return true
}

// constants are the values of enum and const that meet the other schemas too.
func (c *schemaCompiler) constants(all, lists []*value, types typeSet) expr {
	for _, s := range all {
		for _, m := range s.members {
			if t, known := keywordTypes[m.name]; known && t != 0 && t&types != 0 {
				return c.fail(m.value, "%s beside enum or const is not supported; list the values that meet it", m.name)
			}
		}
	}
	var out alternative
	texts := altOf()
	for _, x := range constants(lists[0]) {
		if !c.w.budget.spend(0, 10*len(lists)) {
			break
		}
		left := typeNames[x.typeName()]&types != 0
		for _, s := range lists {
			left = left && slices.ContainsFunc(constants(s), x.equal)
			if k, e := s.get("const"), s.get("enum"); k != nil && e != nil {
				left = left && slices.ContainsFunc(e.items, x.equal)
			}
		}
		if left = left && typeNumberMatches(x, types); !left {
			continue
		}
		if x.kind == '"' {
			texts.subs = append(texts.subs, jsonText(x.text))
		} else {
			out = append(out, c.w.write(x))
		}
	}
	if len(texts.subs) > 0 {
		out = append(out, c.w.compile(texts))
	}
	if len(out) == 0 {
		return c.never(lists[0], "no value of its enum or const is left")
	}
	return out
}

// typeNumberMatches has a number that is not whole be no integer.
func typeNumberMatches(x *value, types typeSet) bool {
	return x.kind != '0' || x.typeName() == "integer" || types&typeFractional != 0
}

// count is the value of a keyword that counts, at most a limit.
func (c *schemaCompiler) count(s *value, name string, limit int) int {
	v := s.get(name)
	r, ok := rational(v.text)
	if !ok || !r.IsInt() || r.Sign() < 0 {
		c.fail(v, "%s must be a whole number from 0 on", name)
		return 0
	}
	if r.Cmp(new(big.Rat).SetInt64(int64(limit))) > 0 {
		return limit
	}
	return int(r.Num().Int64())
}

// counts are the tightest bounds of two keywords; most -1: no bound.
func (c *schemaCompiler) counts(all []*value, minimum, maximum string, limit int) (least, most int, at *value) {
	most = -1
	for _, s := range all {
		if s.get(minimum) != nil {
			if n := c.count(s, minimum, limit); n > least {
				least, at = n, s
			}
		}
		if s.get(maximum) != nil {
			if n := c.count(s, maximum, limit); most < 0 || n < most {
				most = n
			}
			at = cmp.Or(at, s)
		}
	}
	if at == nil {
		at = all[0]
	}
	return least, most, at
}

// number is the numbers that schemas allow.
func (c *schemaCompiler) number(all []*value, types typeSet) expr {
	var low, high *bound
	var steps []*value
	fraction := -1
	if types&typeFractional == 0 {
		fraction = 0
	}
	at := c.root
	for _, s := range all {
		at = s
		lows, highs := c.bounds(s)
		low, high = tighter(low, lows, 1), tighter(high, highs, -1)
		if m := s.get("multipleOf"); m != nil {
			steps = append(steps, m)
		}
	}
	if c.err != nil {
		return alternative{}
	}
	var wholes []int
	for _, m := range steps {
		n, places, ok := step(m)
		switch {
		case !ok:
			return c.fail(m, "multipleOf %s is not supported; whole numbers up to %d and 0.1, 0.01, … are", quoted(m.text), maxMultiple)
		case n > 0:
			wholes, fraction = append(wholes, n), 0
		case fraction < 0 || places < fraction:
			fraction = places
		}
	}
	if low == nil && high == nil && fraction < 0 {
		return c.w.number()
	}
	var t *terminal
	var err error
	if low == nil && high == nil && fraction == 0 {
		if t = common().integer; c.w.MaxDigits > 0 {
			t = c.w.compile(integerOf(c.w.MaxDigits))
		}
	} else if t, err = c.w.numberRange(low, high, fraction); err != nil {
		return c.fail(at, "a bound of numbers is not supported: %v", err)
	}
	for _, m := range wholes {
		t = c.w.budget.product(t, c.w.multiples(m), false)
	}
	if t.begin == none {
		return c.never(at, "no number is between its bounds")
	}
	return t
}

// bounds are those of one schema, in the drafts' forms: exclusiveMinimum is a number, or, in
// draft 4, a boolean that says what minimum is.
func (c *schemaCompiler) bounds(s *value) (low, high *bound) {
	read := func(inclusive, exclusive string, sign int) *bound {
		var out *bound
		for _, name := range []string{inclusive, exclusive} {
			v := s.get(name)
			if v == nil || v.kind != '0' {
				continue
			}
			r, ok := rational(v.text)
			if !ok {
				c.fail(v, "the number is out of range")
				return nil
			}
			draft4 := s.get(exclusive) != nil && s.get(exclusive).kind == 't'
			out = tighter(out, &bound{r, name == exclusive || draft4}, sign)
		}
		return out
	}
	return read("minimum", "exclusiveMinimum", 1), read("maximum", "exclusiveMaximum", -1)
}

// step reads multipleOf: a whole number n, or 1 of so many decimal places.
func step(m *value) (n, places int, ok bool) {
	r, ok := rational(m.text)
	if !ok || r.Sign() <= 0 {
		return 0, 0, false
	}
	if r.IsInt() {
		n := r.Num()
		return int(n.Int64()), 0, n.IsInt64() && n.Int64() <= maxMultiple
	}
	power := big.NewRat(1, 1)
	for places := 1; places <= 30; places++ {
		if power.Mul(power, big.NewRat(1, 10)); r.Cmp(power) == 0 {
			return 0, places, true
		}
	}
	return 0, 0, false
}

// text is the strings that schemas allow.
func (c *schemaCompiler) text(all []*value) expr {
	least, most, at := c.counts(all, "minLength", "maxLength", maxCounted)
	var parts []*terminal
	for _, s := range all {
		if f := s.get("format"); f != nil {
			t := c.format(f)
			if t == nil {
				return alternative{}
			}
			parts = append(parts, t)
		}
		if p := s.get("pattern"); p != nil {
			t := c.pattern(p)
			if t == nil {
				return alternative{}
			}
			parts = append(parts, t)
		}
	}
	if c.err != nil {
		return alternative{}
	}
	if most >= 0 && least > most {
		return c.never(at, "minLength is greater than maxLength")
	}
	if least == 0 && most < 0 && len(parts) == 0 {
		return common().text
	}
	if most < 0 {
		most = int(none)
	}
	t := &terminal{counted: &counted{unit: common().unit, min: int32(least), max: int32(most)}}
	if len(parts) > 0 {
		first := parts[0]
		for _, p := range parts[1:] {
			first = c.w.budget.product(first, p, false)
		}
		if least > 0 || most >= 0 {
			first = c.w.budget.product(first, t, false)
		}
		t = first
	}
	if t.begin == none {
		return c.never(at, "no string meets its pattern, format and length")
	}
	return t
}

// pattern is the JSON strings that have a match of a regular expression.
func (c *schemaCompiler) pattern(p *value) *terminal {
	key := "pattern " + p.text
	if t := c.strings[key]; t != nil {
		return t
	}
	tree, err := parseRegexp(p.text, jsonRunes{})
	if err != nil {
		c.fail(p, "pattern: %v", err)
		return nil
	}
	t := c.w.compile(seqOf(textOf(`"`), tree.search, textOf(`"`)))
	if c.w.budget.exhausted() {
		c.fail(p, "pattern: %v", errTooLarge)
	}
	c.strings[key] = t
	return t
}
