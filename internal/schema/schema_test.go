package schema

import (
	"testing"

	"agentcli/internal/malformed"
)

func TestAFaultOfASchemaIsNamedByItsKey(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "nope"}`: "type",
		`{"properties": {"a": {"type": "integer"}, "b": {"minimum": "x"}}}`:   "properties.b.minimum",
		`{"items": {"required": "a"}}`:                                        "items.required",
		`{"properties": {"b": {"type": 5}, "a": {"type": 5}}, "required": 1}`: "properties.a.type",
	} {
		if _, err := Compile([]byte(text)); malformed.Facts(err).Field != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Compile([]byte(`{"type": ["integer", "null"]}`)); err != nil {
		t.Error(err)
	}
}
