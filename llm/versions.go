package llm

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// versionFields is what a piece of a reply says of the weights that drew its tokens, as agentcli
// serve does: the oldest version, and each token's where there are several.
type versionFields struct {
	Version  json.RawMessage `json:"policy_version"`
	Versions json.RawMessage `json:"token_versions"`
}

// number is the version as a number, which other servers' names of versions need not be.
func (d versionFields) number() (int64, bool) {
	v, err := strconv.ParseInt(strings.Trim(string(d.Version), `"`), 10, 64)
	return v, err == nil && v >= 0
}

// tokenVersions are the versions of a reply's tokens so far.
type tokenVersions struct {
	each    []int64
	unknown bool // some piece did not say
}

// add takes a piece of n tokens.
func (v *tokenVersions) add(d versionFields, n int) {
	if n == 0 {
		return
	}
	one, ok := d.number()
	var each []int64
	switch {
	case len(d.Versions) > 0 && json.Unmarshal(d.Versions, &each) == nil && len(each) == n:
		v.each = append(v.each, each...)
	case !ok:
		v.unknown = true
	default:
		v.each = append(v.each, slices.Repeat([]int64{one}, n)...)
	}
}

// of are the versions of a reply of n tokens: one, or one for each; nil: not known.
func (v *tokenVersions) of(n int) []int64 {
	if v.unknown || n == 0 || len(v.each) != n {
		return nil
	}
	if slices.Min(v.each) == slices.Max(v.each) {
		return v.each[:1:1]
	}
	return v.each
}
