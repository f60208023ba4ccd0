package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"agentcli/internal/text"
)

// openKey is what to say of a key that is sent in the clear: over plain http to
// another machine. It is "" where there is nothing to say.
func openKey(servers []string, key string) string {
	if key == "" {
		return ""
	}
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" {
			continue
		}
		host := u.Hostname()
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			continue
		}
		return fmt.Sprintf("OPENAI_API_KEY is sent to %s without encryption; use https://, or unset it where the server needs none", text.Address(s))
	}
	return ""
}

// foreignRun is what to say of a run folder that somebody else has written: its
// settings name programs that run here, and servers that get the key.
func foreignRun(dir string) string {
	if dir == "" {
		return ""
	}
	owner, other := otherOwner(filepath.Join(dir, configName))
	if !other {
		return ""
	}
	s := fmt.Sprintf("--resume %s: the settings are those of another user (%s): they name the programs that run here", dir, owner)
	if os.Getenv("OPENAI_API_KEY") != "" {
		s += " and the server that gets OPENAI_API_KEY"
	}
	return s
}
