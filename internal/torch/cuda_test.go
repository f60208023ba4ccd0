//go:build libtorch

package torch_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/cudapart"
)

// Autograd starts its threads with the first backward, for the devices that it knows: CUDA that is
// asked for later would hang or crash. It is refused, and not for something that a user could install.
func TestCUDABehindABackwardIsRefused(t *testing.T) {
	const child = "AGENTCLI_TEST_BACKWARD_FIRST"
	if os.Getenv(child) != "" {
		run(t, worker(t, 1), func(s *torch.Scope) {
			s.WithGrad(func() {
				x := s.RequiresGrad(s.Full(2, torch.Float32, torch.CPU, 2), true)
				s.Backward(s.Mul(x, x), s.Full(1, torch.Float32, torch.CPU, 2))
			})
		})
		n, why := torch.CUDADevices()
		fmt.Printf("%d devices, why %v, fix %q\n", n, why != "", torch.CUDAFix())
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), child+"=1", "AGENTCLI_TEST_DEVICE=")
	out, err := c.CombinedOutput()
	if want := `0 devices, why true, fix ""`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("want %s: %v\n%s", want, err, out)
	}
}

// libtorch's CUDA part, with the libraries that it needs, loads where there is no driver, says so, and leaves the
// processor's numbers as they are. AGENTCLI_TEST_CUDA_PART=FOLDER names an installed torch with CUDA.
func TestCUDAsPartLoadsWithoutADriver(t *testing.T) {
	const folder, child = "AGENTCLI_TEST_CUDA_PART", "AGENTCLI_TEST_CUDA_PART_LOADS"
	if os.Getenv(folder) == "" {
		t.Skip(folder + " names no torch with CUDA")
	}
	if torch.HasDriver() {
		t.Skip("there is a driver")
	}
	if os.Getenv(child) != "" {
		numbers := func() (out []float64) {
			run(t, worker(t, 1), func(s *torch.Scope) {
				s.WithGrad(func() {
					x := s.RequiresGrad(s.Float64([]float64{1, 2, 3, 4}, 2, 2), true)
					s.Backward(s.Mul(x, x), s.Full(1, torch.Float64, torch.CPU, 2, 2))
					out = s.Float64s(s.Grad(x))
				})
			})
			return out
		}
		n, why := torch.CUDADevices()
		fmt.Printf("%d devices, why %v, found %v, fix %q, %v\n", n, why != "", torch.CUDAPath() != cudapart.File, torch.CUDAFix(), numbers())
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), child+"=1", "AGENTCLI_TEST_DEVICE=", "AGENTCLI_TORCH="+os.Getenv(folder))
	out, err := c.CombinedOutput()
	if want := `0 devices, why true, found true, fix "", [2 4 6 8]`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("want %s: %v\n%s", want, err, out)
	}
}
