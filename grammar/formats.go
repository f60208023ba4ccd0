package grammar

import (
	"maps"
	"slices"
	"strings"
)

// Formats of strings as regular expressions. They write a part of what RFC 3339, 4122, 5321 and
// 3986 allow: the forms that every reader takes.
var formats = func() map[string]string {
	const (
		leap = `(\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29`
		date = `(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|` + leap + `)`
		time = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`

		label = `[a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?`
		host  = label + `(\.` + label + `){0,7}`
		byte_ = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
		ipv4  = byte_ + `(\.` + byte_ + `){3}`
		atom  = `[A-Za-z0-9_%+-]{1,20}`
		path  = `[A-Za-z0-9._~!$&'()*+,;=:@/-]*`
		query = `[A-Za-z0-9._~!$&'()*+,;=:@/?-]*`
	)
	return map[string]string{
		"date": date, "time": time, "date-time": date + `T` + time,
		"duration": `P(\d{1,9}W|\d{1,9}D(T` + clock + `)?|T` + clock + `|\d{1,9}Y(\d{1,9}M(\d{1,9}D)?)?(T` + clock +
			`)?|\d{1,9}M(\d{1,9}D)?(T` + clock + `)?)`,
		"uuid":     `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
		"email":    atom + `(\.` + atom + `){0,2}@` + host,
		"hostname": host, "ipv4": ipv4, "ipv6": ipv6(),
		"uri": `[a-z][a-z0-9+.-]{0,15}://` + host + `(:[1-9]\d{0,3})?(/` + path + `)?(\?` + query + `)?(#` + query + `)?`,
	}
}()

const clock = `(\d{1,9}H(\d{1,9}M(\d{1,9}S)?)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S)`

// ipv6 is eight groups, or fewer around one :: .
func ipv6() string {
	const group = `[0-9a-fA-F]{1,4}`
	forms := []string{group + `(:` + group + `){7}`}
	for before := range 8 {
		form := `::`
		if before > 0 {
			form = group + strings.Repeat(`:`+group, before-1) + `::`
		}
		if after := 7 - before; after > 1 {
			form += `(` + group + strings.Repeat(`(:`+group, after-2) + strings.Repeat(`)?`, after-2) + `)?`
		}
		forms = append(forms, form)
	}
	return strings.Join(forms, `|`)
}

// format is the JSON strings of a format.
func (c *scalars) format(f *value) *terminal {
	text, ok := formats[f.text]
	if !ok {
		c.fail(f, "format %s is not supported in grammars; there are %s", quoted(f.text), strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
		return nil
	}
	key := "format " + f.text
	t := c.strings[key]
	if t == nil {
		tree, err := parseRegexp(text, c.w.spelling.runes)
		if err != nil {
			c.fail(f, "format: %v", err)
			return nil
		}
		t = c.w.spelling.strings(c.w.budget, tree.whole)
		c.strings[key] = t
	}
	return t
}
