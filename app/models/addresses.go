package models

import (
	"encoding/json"
	"strings"

	"agentcli/internal/text"
)

// Addresses are the base URLs of one or several servers. As JSON one is a string,
// several are a list.
type Addresses []string

// ParseAddresses reads addresses that are separated by commas, or given one by one.
func ParseAddresses(list ...string) Addresses {
	var out Addresses
	for _, s := range list {
		out = append(out, strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return out
}

// shown are the addresses as files may have them.
func (a Addresses) shown() Addresses {
	out := make(Addresses, len(a))
	for i, s := range a {
		out[i] = text.Address(s)
	}
	return out
}

// MarshalJSON implements json.Marshaler.
func (a Addresses) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}
