package text

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

var address = regexp.MustCompile(`((?i:https?://))([^\s/?#,"']*@)?([^\s?#,"']*)(\?[^\s#,"']*)?`)

// Address is a text as files and messages that are handed on may have it: its
// addresses without a name and a password, and without what follows a question mark,
// which may be a key.
func Address(s string) string { return address.ReplaceAllString(s, "$1$3") }

// Parts of a command's line whose value may be a secret: an assignment (KEY=value,
// --key=value), and what follows an option or a header with such a name.
var (
	assigned = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_-]*=)("[^"]*"|'[^']*'|[^\s"']+)`)
	secret   = regexp.MustCompile(
		`(?i)((?:^|\s)-{1,2}[a-z0-9_-]*(?:key|token|secret|passw|auth|cred|cookie|header)[a-z0-9_-]*\s+)("[^"]*"|'[^']*'|\S+)`)
	header = regexp.MustCompile(`(?i)((?:authorization|cookie|x-[a-z0-9-]*key)\s*:\s*)[^"']+`)
	word   = regexp.MustCompile(`[A-Za-z0-9_+=-]*[A-Za-z0-9]{16,}[A-Za-z0-9_+=-]*|\b[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b`)
)

// Redact is a command's line as messages and files that are handed on may have
// it: Address, and no value of an assignment, of an option that is called after a
// secret, nor a word with a long run of letters and digits, as keys have.
func Redact(s string) string {
	s = Address(s)
	s = assigned.ReplaceAllString(s, "$1…")
	s = secret.ReplaceAllString(s, "$1…")
	s = header.ReplaceAllString(s, "$1…")
	return word.ReplaceAllStringFunc(s, func(w string) string {
		letters := strings.ContainsFunc(w, func(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' })
		if !letters || !strings.ContainsAny(w, "0123456789") {
			return w
		}
		return "…"
	})
}

// minKey is the length from which a part of an address is taken for a key: a
// shorter one stands in ordinary words, too.
const minKey = 6

// KeysIn are the parts of an address that may be keys: its user and password, and
// the values of its query.
func KeysIn(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	password, _ := u.User.Password()
	keys := []string{u.User.Username(), password}
	for _, values := range u.Query() {
		keys = append(keys, values...)
	}
	return keys
}

// Without is a text in which keys are replaced, wherever they turn up: a server may
// echo what it was sent.
func Without(s string, keys []string) string {
	for _, k := range keys {
		if len(k) >= minKey {
			s = strings.ReplaceAll(s, k, "…")
		}
	}
	return s
}

// WithoutAddress is why a request failed, without its address: it may have a key in it.
func WithoutAddress(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// IsLoopback reports whether a host, a name or an address without its port, is this machine.
func IsLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
