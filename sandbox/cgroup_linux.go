package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// group is the control group of a zygote and all its processes: it bounds what
// limits of single processes cannot, their sum.
type group struct {
	dirs   []string
	detail string
}

var groups atomic.Int64

// join puts a process, which has started nothing yet, into a group of its own.
// Where that is not permitted the group is empty and says why.
func join(pid int, c Config) *group {
	g := &group{}
	// Every call its memory, and all of them leave the host a quarter of its own.
	memory := c.Limits.Memory * int64(c.Parallel+1)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = min(memory, int64(info.Totalram)*int64(info.Unit)/4*3)
	}
	pids := (c.Limits.Processes + 1) * (c.Parallel + 1)
	name := fmt.Sprintf("agentcli-%d-%d", os.Getpid(), groups.Add(1))
	var errs, kinds []string
	for _, controller := range []controller{
		{name: "memory", v2: "memory.max", v1: "memory.limit_in_bytes", value: strconv.FormatInt(memory, 10)},
		{name: "pids", v2: "pids.max", v1: "pids.max", value: strconv.Itoa(pids)},
	} {
		dir, file, err := home(controller.name, controller.v2, controller.v1)
		if err == nil {
			sweep(dir)
			dir = filepath.Join(dir, name)
			if err = os.Mkdir(dir, 0o755); os.IsExist(err) {
				err = nil // v2: the other controller has made it
			}
		}
		if err == nil {
			g.dirs = append(g.dirs, dir)
			err = os.WriteFile(filepath.Join(dir, file), []byte(controller.value), 0)
		}
		if err == nil {
			if controller.name == "memory" { // or the limit is one of memory that is not swapped out
				_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0)
			}
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
		if err != nil {
			errs = append(errs, fmt.Sprintf("%s: %v", controller.name, err))
			continue
		}
		if controller.name == "memory" {
			kinds = append(kinds, fmt.Sprintf("%d MiB of memory", memory>>20))
		} else {
			kinds = append(kinds, fmt.Sprintf("%d processes", pids))
		}
	}
	if len(errs) > 0 {
		g.remove()
		g.dirs, g.detail = nil, "not permitted ("+strings.Join(errs, "; ")+"): the limits of single processes hold, their sum is not bounded"
		return g
	}
	g.detail = strings.Join(kinds, " and ") + " for all calls together"
	if g.weigh(pid, name) {
		g.detail += ", half an ordinary share of the processors"
	}
	return g
}

// controller is one kind of limit: its file in both versions, and what it is set to.
type controller struct{ name, v2, v1, value string }

// weigh gives the group less of the processors than the engine, where both want
// them. It refuses nothing: without it the processes are nicer only.
func (g *group) weigh(pid int, name string) bool {
	dir, file, err := home("cpu", "cpu.weight", "cpu.shares")
	if err != nil {
		return false
	}
	dir = filepath.Join(dir, name)
	value := "50" // of 100
	if file == "cpu.shares" {
		value = "512" // of 1024
		if err := os.Mkdir(dir, 0o755); err != nil {
			return false
		}
		g.dirs = append(g.dirs, dir)
	} else if !has(g.dirs, dir) { // version 2: a process is in one group only
		return false
	}
	if os.WriteFile(filepath.Join(dir, file), []byte(value), 0) != nil {
		return false
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil
}

// sweep removes the empty groups of those who were killed before they could.
func sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, "agentcli-*-*"))
	for _, d := range old {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(d), "agentcli-%d-", &pid); err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_ = os.Remove(d)
		}
	}
}

// home finds the folder of our own group in which one for a controller can be made.
func home(controller, v2, v1 string) (dir, file string, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	path := map[string]string{} // of our group, by controller; "" is version 2
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				path[c] = f[2]
			}
		}
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		b, a := strings.Fields(before), strings.Fields(after)
		if len(b) < 5 || len(a) < 3 {
			continue
		}
		under := func(own string) string {
			rel, err := filepath.Rel(b[3], own) // the mount may show a part only
			if err != nil || strings.HasPrefix(rel, "..") {
				rel = "."
			}
			return filepath.Join(b[4], rel)
		}
		switch {
		case a[0] == "cgroup2":
			dir := under(path[""])
			list, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if err != nil || !has(strings.Fields(string(list)), controller) {
				// A group with processes cannot hand its controllers down: ours may
				// have a sibling, if the parent hands them down and is ours to use.
				parent := filepath.Dir(dir)
				list, err = os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
				if err != nil || !has(strings.Fields(string(list)), controller) || path[""] == "/" {
					continue
				}
				dir = parent
			}
			return dir, v2, nil
		case a[0] == "cgroup" && has(strings.Split(a[2], ","), controller):
			return under(path[controller]), v1, nil
		}
	}
	return "", "", fmt.Errorf("no group hands it down to us")
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (g *group) held() Held { return Held{Part: Cgroup, OK: len(g.dirs) > 0, Detail: g.detail} }

// remove removes the group, with what is still in it.
func (g *group) remove() {
	for _, d := range g.dirs {
		for range 100 { // the kernel takes its time to let go of the last process
			if err := os.Remove(d); err == nil || os.IsNotExist(err) {
				break
			}
			left, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			for f := range strings.FieldsSeq(string(left)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}
