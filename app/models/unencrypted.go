package models

import (
	"fmt"
	"net/url"

	"agentcli/internal/text"
)

// UnencryptedKey is what to say of OPENAI_API_KEY where it is sent in the clear: over plain http
// to another machine. It is "" where there is nothing to say.
func UnencryptedKey(servers []string, key string) string {
	return UnencryptedKeyOf("OPENAI_API_KEY", servers, key)
}

// UnencryptedKeyOf is UnencryptedKey of the key in another variable.
func UnencryptedKeyOf(variable string, servers []string, key string) string {
	if key == "" {
		return ""
	}
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" {
			continue
		}
		host := u.Hostname()
		if text.IsLoopback(host) {
			continue
		}
		return fmt.Sprintf("%s is sent to %s without encryption; use https://, or unset it where the server needs none",
			variable, text.Address(s))
	}
	return ""
}
