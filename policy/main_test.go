//go:build libtorch

package policy

import (
	"os"
	"testing"

	"agentcli/internal/torch/testdevice"
)

func TestMain(m *testing.M) {
	testdevice.FromEnvironment()
	os.Exit(m.Run())
}
