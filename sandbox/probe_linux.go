package sandbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// canaryName is a variable of our environment that no sandboxed process sees.
const canaryName = "AGENTCLI_SANDBOX_CANARY"

// aims sets up what the probes aim at, in a folder of the user's home and one
// of the current folder. An aim that cannot be set up here stays out of reach.
func aims() (_ targets, clean func(), err error) {
	var undo []func()
	clean = func() {
		for _, f := range undo {
			f()
		}
	}
	defer func() {
		if err != nil {
			clean()
		}
	}()
	t := targets{secret: rand.Text(), pid: strconv.Itoa(os.Getpid()), shmKey: "0x61676374"}
	// The environment that /proc shows is the one we were started with.
	was, had := os.LookupEnv(canaryName)
	_ = os.Setenv(canaryName, t.secret)
	undo = append(undo, func() {
		if had {
			_ = os.Setenv(canaryName, was)
		} else {
			_ = os.Unsetenv(canaryName)
		}
	})
	canary := func(dir string) (string, error) {
		f, err := os.CreateTemp(dir, ".agentcli-canary-")
		if err != nil { // a folder that nobody may write to
			if f, err = os.CreateTemp("", "agentcli-canary-"); err != nil {
				return "", err
			}
		}
		undo = append(undo, func() { os.Remove(f.Name()) })
		_, err = f.WriteString(t.secret)
		if e := f.Close(); err == nil {
			err = e
		}
		return f.Name(), err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	if t.home, err = canary(home); err != nil {
		return t, nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return t, nil, err
	}
	if t.project, err = canary(dir); err != nil {
		return t, nil, err
	}
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return t, nil, err
	}
	undo = append(undo, func() { tcp.Close() })
	t.tcp = strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return t, nil, err
	}
	undo = append(undo, func() { udp.Close() })
	t.udp = strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)
	tmp, err := os.MkdirTemp("", "agentcli-probe-")
	if err != nil {
		return t, nil, err
	}
	undo = append(undo, func() { os.RemoveAll(tmp) })
	t.unix, t.abstract, t.datagram = filepath.Join(tmp, "socket"), "agentcli-"+rand.Text(), "agentcli-"+rand.Text()
	for _, name := range []string{t.unix, "@" + t.abstract} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			return t, nil, err
		}
		undo = append(undo, func() { l.Close() })
	}
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + t.datagram, Net: "unixgram"})
	if err != nil {
		return t, nil, err
	}
	undo = append(undo, func() { d.Close() })
	return t, clean, nil
}

// Probe tries to break out of the sandbox, and out of its limits, and says what
// came of each try.
func (p *Pool) Probe(ctx context.Context) ([]Outcome, error) {
	t, clean, err := aims()
	if err != nil {
		return nil, fmt.Errorf("sandbox: the probes cannot be set up: %w", err)
	}
	defer clean()
	var list []Outcome
	for _, x := range probes {
		r, err := p.Run(ctx, t.aim(x.code))
		if err != nil {
			return list, err
		}
		list = append(list, outcome(x.name, r))
	}
	return list, nil
}

func outcome(name string, r Result) Outcome {
	o := Outcome{Name: name, Stopped: !strings.Contains(string(r.Stdout), "REACHED"), Detail: lastLine(append(r.Stdout, r.Stderr...))}
	switch {
	case r.TimedOut:
		o.Detail = "it was stopped after its time"
	case r.Signal != "":
		o.Detail = r.Signal
	}
	return o
}
