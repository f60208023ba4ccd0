package text

import "regexp"

var address = regexp.MustCompile(`((?i:https?://))([^\s/?#,"']*@)?([^\s?#,"']*)(\?[^\s#,"']*)?`)

// Address is a text as files and messages that are handed on may have it: its
// addresses without a name and a password, and without what follows a question mark,
// which may be a key.
func Address(s string) string { return address.ReplaceAllString(s, "$1$3") }
