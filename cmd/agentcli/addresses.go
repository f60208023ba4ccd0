package main

import (
	"encoding/json"
	"strings"

	"agentcli/internal/text"
)

// addresses are the base URLs of one or several servers. As JSON one is a string,
// several are a list.
type addresses []string

// addressesOf reads addresses that are separated by commas, or given one by one.
func addressesOf(list ...string) addresses {
	var out addresses
	for _, s := range list {
		out = append(out, strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return out
}

// shown are the addresses as files may have them.
func (a addresses) shown() addresses {
	out := make(addresses, len(a))
	for i, s := range a {
		out[i] = text.Address(s)
	}
	return out
}

// MarshalJSON implements json.Marshaler.
func (a addresses) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}
