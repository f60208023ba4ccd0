//go:build libtorch

package main

import (
	"strings"
	"testing"
)

// Weights that cannot be multiplied as they are stored are refused, and so is the flag where it has no effect.
func TestWeightsAsStoredAreRefusedWhereTheyCannotBe(t *testing.T) {
	const server = "http://127.0.0.1:1/v1"
	for name, args := range map[string][]string{
		"safetensors":                 {"--model", "../../policy/testdata/tiny-qwen3"},
		"a server":                    {"--model", "m", "--base-url", server},
		"a server of the environment": {"--model", "m"},
	} {
		cmd := program(t, t.Context(), append([]string{"eval", "-d", "arith", "--limit", "1", "--weights-as-stored"}, args...)...)
		if strings.HasSuffix(name, "environment") {
			cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+server)
		}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); err == nil || code != 2 || !strings.Contains(string(out), "--weights-as-stored") {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		}
	}
}
