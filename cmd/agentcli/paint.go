package main

import (
	"os"

	"agentcli/traj"
)

// colours reports whether a stream that is a terminal, or not, is to be coloured.
func colours(tty bool) bool {
	return tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// painter colours text, or leaves it.
type painter bool

func (p painter) paint(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) bold(s string) string { return p.paint("1", s) }
func (p painter) dim(s string) string  { return p.paint("2", s) }

// role has one colour for each speaker.
func (p painter) role(role, s string) string {
	code := map[string]string{traj.RoleSystem: "35", traj.RoleUser: "34", traj.RoleAssistant: "32", traj.RoleTool: "33"}[role]
	if code == "" {
		return s
	}
	return p.paint("1;"+code, s)
}
