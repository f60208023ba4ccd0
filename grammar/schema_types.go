package grammar

import (
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
	"propertyNames": typeObject,
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

// allowedTypes are the types of the values that are valid for a schema, as far as type, enum and
// const say.
func allowedTypes(s *value) typeSet {
	if s.kind == '{' && s.get("type") == nil && constants(s) == nil {
		return typeAny
	}
	return typesOf(s)
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
		out = append(out, c.w.literal(c.w.spelling.word("true")), c.w.literal(c.w.spelling.word("false")))
	}
	if types&typeNull != 0 {
		out = append(out, c.w.literal(c.w.spelling.word("null")))
	}
	return out
}

// kinds are what the values of keywords must be.
var kinds = map[string]string{
	"properties": "{", "required": "[", "additionalProperties": "{tf", "patternProperties": "{", "propertyNames": "{t",
	"minProperties": "0", "maxProperties": "0",
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
			texts.subs = append(texts.subs, c.w.spelling.constant(x.text))
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
