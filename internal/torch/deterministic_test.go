//go:build libtorch

package torch_test

import (
	"os"
	"testing"

	"agentcli/internal/torch"
)

func TestDeterministicReachesLibtorch(t *testing.T) {
	const cublasWorkspace = "CUBLAS_WORKSPACE_CONFIG"
	t.Setenv(cublasWorkspace, "")
	if torch.Deterministic(true) {
		t.Error("libtorch was deterministic before anybody asked")
	}
	if os.Getenv(cublasWorkspace) == "" {
		t.Error("cuBLAS was not told")
	}
	if !torch.Deterministic(false) {
		t.Error("libtorch did not take it")
	}
}
