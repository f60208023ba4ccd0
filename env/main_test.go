package env

import (
	"os"
	"testing"
)

// asTool makes the test program a tool: see execProgram.
const asTool = "AGENTCLI_TEST_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		execProgram()
		return
	}
	os.Exit(m.Run())
}
