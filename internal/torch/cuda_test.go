//go:build libtorch

package torch_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"agentcli/internal/torch"
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
