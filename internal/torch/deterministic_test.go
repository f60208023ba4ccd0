//go:build libtorch

package torch

import (
	"os"
	"testing"
)

func TestDeterministicReachesLibtorch(t *testing.T) {
	t.Setenv(cublasWorkspace, "")
	if Deterministic(true) {
		t.Error("libtorch was deterministic before anybody asked")
	}
	if os.Getenv(cublasWorkspace) == "" {
		t.Error("cuBLAS was not told")
	}
	if !Deterministic(false) {
		t.Error("libtorch did not take it")
	}
}
