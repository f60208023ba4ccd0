package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rollout"
	"agentcli/policy"
)

// TestDoctorTriesTheSandbox: doctor names the parts of the sandbox and says
// what code could reach.
func TestDoctorTriesTheSandbox(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	var out, errs bytes.Buffer
	if err := runDoctor(t.Context(), "", rollout.ToolOptions{}, true, models.NewBackend(),
		console.Streams{Out: &out, Err: &errs}); err != nil {
		t.Fatal(err)
	}
	said := map[string]finding{}
	for line := range strings.Lines(out.String()) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.Name == "python tool" && strings.Contains(f.Detail, "refuse") {
			t.Skip(f.Detail)
		}
		if f.Name == "sandbox" {
			what, _, _ := strings.Cut(f.Detail, ":")
			said[what] = f
		}
	}
	for _, what := range []string{"namespaces", "Landlock", "seccomp"} {
		if !said[what].OK {
			t.Errorf("%s: %+v", what, said[what])
		}
	}
	found := false
	for what, f := range said {
		found = found || strings.HasPrefix(what, "all ") && f.OK
	}
	if !found {
		t.Errorf("%s", out.String())
	}
}

// TestDoctorKeepsTheOldNameOfAFix: the key was mend before.
func TestDoctorKeepsTheOldNameOfAFix(t *testing.T) {
	b, err := json.Marshal(finding{Name: "model", Detail: "none", Fix: "make setup"})
	if want := `{"name":"model","ok":false,"detail":"none","fix":"make setup","mend":"make setup"}`; err != nil || string(b) != want {
		t.Errorf("%s %v, want %s", b, err, want)
	}
}

// gpuBackend is a backend with the libtorch and the GPUs of found.
type gpuBackend struct {
	models.NoBackend
	found policy.LibtorchInfo
}

func (b gpuBackend) Info() (policy.LibtorchInfo, error) { return b.found, nil }

// TestDoctorNamesTheCompilerOfAGPU: each "no" of a machine with a GPU has what fixes it.
func TestDoctorNamesTheCompilerOfAGPU(t *testing.T) {
	gpu := []policy.GPUInfo{{Name: "H100", Kernels: errors.New("NVRTC cannot be loaded")}}
	for _, c := range []struct {
		found policy.LibtorchInfo
		want  map[string]finding
	}{
		{policy.LibtorchInfo{CUDADevices: 1, NVRTC: "13.0, libnvrtc.so.13", GPUs: []policy.GPUInfo{{Name: "H100"}}},
			map[string]finding{"nvrtc": {OK: true, Detail: "13.0, libnvrtc.so.13"}, "gpu": {OK: true}, "cuda": {OK: true}}},
		{policy.LibtorchInfo{CUDADevices: 1, NVRTCErr: errors.New("no file"), GPUs: gpu},
			map[string]finding{"nvrtc": {Fix: setUpCUDA, Detail: "no: no file"}, "gpu": {Fix: setUpCUDA}, "cuda": {OK: true}}},
		{policy.LibtorchInfo{WhyNoCUDA: "the driver is too old", HasDriver: true, CUDAFix: "a newer driver"},
			map[string]finding{"cuda": {Fix: "a newer driver"}}},
		{policy.LibtorchInfo{WhyNoCUDA: "no driver"}, map[string]finding{"cuda": {}}},
	} {
		last := map[string]finding{}
		for _, f := range libtorchFindings(gpuBackend{found: c.found}) {
			last[f.Name] = f
		}
		for name, want := range c.want {
			if got := last[name]; got.OK != want.OK || got.Fix != want.Fix || want.Detail != "" && got.Detail != want.Detail {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		if _, named := last["nvrtc"]; named != (c.found.CUDADevices > 0) {
			t.Errorf("%+v", last)
		}
	}
}
