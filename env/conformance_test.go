package env_test

import (
	"errors"
	"os/exec"
	"testing"

	"agentcli/env"
	"agentcli/env/envtest"
	"agentcli/sandbox"
	"agentcli/traj"
)

func TestCalculatorConforms(t *testing.T) {
	envtest.Tool(t, env.Calculator{}, envtest.Example{Args: `{"expression": "12*7"}`, Want: "84"}, envtest.Example{Args: `{"expression": "1/3 + 1/6"}`, Want: "0.5"})
}

func TestPythonConforms(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	p, err := env.NewPython(t.Context(), env.PythonConfig{})
	if errors.Is(err, sandbox.ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	envtest.Tool(t, p, envtest.Example{Args: `{"code": "6*7"}`, Want: "42"}, envtest.Example{Args: `{"code": "print('a')"}`, Want: "a"})
}

func TestToolEnvironmentConforms(t *testing.T) {
	task := traj.Task{ID: "t", Messages: []traj.Message{{Role: traj.RoleUser, Content: "What is 12 * 7?"}}}
	open := func(tools ...env.Tool) func(*testing.T) env.Environment {
		return func(t *testing.T) env.Environment {
			e, err := env.New(env.Config{Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	}
	t.Run("without tools", func(t *testing.T) { envtest.Environment(t, open(), task, nil, nil) })
	t.Run("with the calculator", func(t *testing.T) {
		envtest.Environment(t, open(env.Calculator{}), task, []traj.ToolCall{{Name: "calculator", Arguments: `{"expression": "12*7"}`},
			{Name: "calculator", Arguments: `{"expression": "2**10"}`}}, []string{"84", "1024"})
	})
}
