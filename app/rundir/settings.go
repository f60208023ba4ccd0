package rundir

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"agentcli/internal/filesys"
	"agentcli/internal/text"

	"github.com/goccy/go-yaml"
)

// withAddresses are the settings that may name a server.
var withAddresses = []string{"base-url", ServerFromEnv, "retriever", "scheduler", "gym-env", "sync-through", "reward", "judge", "mcp",
	"tool", "teacher", "ref", "reward-model"}

// RedactSettings are settings as files may have them that are handed on: without the
// keys in addresses.
func RedactSettings(settings map[string]any) map[string]any {
	out := maps.Clone(settings)
	for _, name := range withAddresses {
		switch v := out[name].(type) {
		case string:
			out[name] = text.Redact(v)
		case []string:
			list := make([]string, len(v))
			for i, s := range v {
				list[i] = text.Redact(s)
			}
			out[name] = list
		}
	}
	return out
}

// MarshalSettings writes settings as --config reads them.
func MarshalSettings(all map[string]any) ([]byte, error) {
	out := make(map[string]any, len(all))
	for name, v := range all {
		switch v := v.(type) {
		case string:
			out[name] = readable(v)
		case []string:
			list := make([]any, len(v))
			for i, e := range v {
				list[i] = readable(e)
			}
			out[name] = list
		default:
			out[name] = v
		}
	}
	return yaml.Marshal(out)
}

// readable is a text that reads back as itself: the library writes one with line
// breaks as a block, and loses those that stand alone or at its end.
func readable(value string) any {
	b, err := yaml.Marshal(map[string]string{"x": value, "y": ""})
	back := map[string]string{}
	if err == nil && strings.TrimSpace(value) == value && yaml.Unmarshal(b, &back) == nil && back["x"] == value {
		return value
	}
	return quoted(value)
}

// quoted is a text that YAML has in quotes.
type quoted string

// MarshalYAML writes it as JSON does, which YAML reads.
func (q quoted) MarshalYAML() ([]byte, error) { return json.Marshal(string(q)) }

// serverSettings are the settings that name the server of a run.
var serverSettings = []string{"base-url", ServerFromEnv}

// SameServer reports whether two runs with these settings ask the same server.
func SameServer(a, b map[string]any) bool {
	return !slices.ContainsFunc(serverSettings, func(name string) bool { return SettingText(a[name]) != SettingText(b[name]) })
}

// KeepServer sets the server in a run's settings to the one in its stored settings,
// and reports whether it was another.
func KeepServer(settings, was map[string]any) bool {
	if was == nil || SameServer(settings, was) {
		return false
	}
	for _, name := range serverSettings {
		delete(settings, name)
		switch v := was[name].(type) {
		case nil:
		case []any: // a list of addresses, as YAML is read
			list := make([]string, len(v))
			for i, address := range v {
				list[i] = fmt.Sprint(address)
			}
			settings[name] = list
		default:
			settings[name] = v
		}
	}
	return true
}

// CommandKey names, in a run's config.yaml, the command whose run it is.
const CommandKey = "command"

// CommandOf is the command whose run is in the folder; "" where it does not say.
func CommandOf(dir string) string {
	var was struct {
		Command string `yaml:"command"`
	}
	b, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return ""
	}
	return was.Command
}

// SettingText is a setting's value in one line.
func SettingText(v any) string {
	b, err := yaml.Marshal(v)
	if v == nil || err != nil {
		return "not set"
	}
	return text.OneLine(string(b))
}

// ReadSettings are the settings in a run's folder; nil where they cannot be read.
func ReadSettings(path string) map[string]any {
	was := map[string]any{}
	b, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return nil
	}
	return was
}

// ChangedSettings says which of the named settings differ from a run's stored ones; "": none.
func ChangedSettings(path string, now map[string]any, names []string) string {
	was := ReadSettings(path)
	if was == nil {
		return ""
	}
	var list []string
	for _, name := range names {
		if a, b := SettingText(was[name]), SettingText(now[name]); a != b {
			list = append(list, fmt.Sprintf("--%s is %s and was %s", name, b, a))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, ", ")
}

// WriteSettings writes a run's settings as --config reads them. What --resume
// needs is in them whole, so a file with a key in an address is its owner's alone.
func WriteSettings(sys filesys.FS, path string, settings map[string]any) error {
	mode := fs.FileMode(0o644)
	if !reflect.DeepEqual(settings, RedactSettings(settings)) {
		mode = 0o600
	}
	b, err := MarshalSettings(settings)
	if err == nil {
		err = filesys.WriteFile(sys, path, b, mode)
	}
	if err != nil {
		return fmt.Errorf("cannot write the run's settings: %w", err)
	}
	return nil
}

// ServerFromEnv is the setting that the environment's server is kept under.
const ServerFromEnv = "openai-base-url"
