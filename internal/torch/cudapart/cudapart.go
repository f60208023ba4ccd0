// Package cudapart finds the CUDA part that fits the libtorch that is loaded. Another one would crash,
// or compute something else.
package cudapart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// File is the name of the CUDA part.
const File = "libtorch_cuda.so"

// Place is a folder that may hold libtorch's CUDA part.
type Place struct {
	Folder string
	What   string // for people
	Same   bool   // it is part of the libtorch that is loaded
}

// Places are where the CUDA part is looked for, in order: in the folder of the libtorch that is
// loaded, in AGENTCLI_TORCH, in the torch of python3.
func Places(loaded string) []Place {
	out := []Place{{Folder: loaded, Same: true}}
	if dir := os.Getenv("AGENTCLI_TORCH"); dir != "" {
		out = append(out, Place{Folder: dir, What: "AGENTCLI_TORCH"}, Place{Folder: filepath.Join(dir, "lib"), What: "AGENTCLI_TORCH"})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const where = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
	if dir, err := exec.CommandContext(ctx, "python3", "-c", where).Output(); err == nil && len(strings.TrimSpace(string(dir))) > 0 {
		out = append(out, Place{Folder: filepath.Join(strings.TrimSpace(string(dir)), "lib"), What: "python3"})
	}
	return out
}

var torchVersion = regexp.MustCompile(`__version__ = '([^'+]+)`)

// Find gives the first CUDA part of the wanted version; refused says which others there are.
func Find(places []Place, want string) (path string, refused []string) {
	for _, p := range places {
		file := filepath.Join(p.Folder, File)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if p.Same {
			return file, nil
		}
		raw, err := os.ReadFile(filepath.Join(p.Folder, "..", "version.py"))
		version := torchVersion.FindSubmatch(raw)
		switch {
		case err != nil || version == nil:
			refused = append(refused, fmt.Sprintf("the torch of %s (%s) does not say its version", p.What, p.Folder))
		case string(version[1]) != want:
			refused = append(refused, fmt.Sprintf("the torch of %s (%s) is %s, and %s is needed", p.What, p.Folder, version[1], want))
		default:
			return file, nil
		}
	}
	return "", refused
}

// OldDriver says that the driver knows only an older CUDA than libtorch was built for; "" where it does not, or where
// either is 0, unknown. 12080 is CUDA 12.8. A driver runs what is of its own major version.
func OldDriver(driver, runtime int) string {
	if driver == 0 || runtime == 0 || driver/1000 >= runtime/1000 {
		return ""
	}
	name := func(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
	return fmt.Sprintf("the NVIDIA driver is too old: it knows CUDA up to %s, and libtorch is of CUDA %s", name(driver), name(runtime))
}
