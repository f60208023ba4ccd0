package ask

import (
	"math"
	"strings"
	"testing"
)

func TestGenerateRefusesNumbersThatMeanNothing(t *testing.T) {
	good := GenerateOptions{Temperature: 1, TopP: 1, TopK: -1, MaxTokens: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for flag, bad := range map[string]func(*GenerateOptions){
		"Temperature": func(o *GenerateOptions) { o.Temperature = -1 }, "TopP": func(o *GenerateOptions) { o.TopP = 7 },
		"TopK": func(o *GenerateOptions) { o.TopK = -3 }, "MinP": func(o *GenerateOptions) { o.MinP = math.NaN() },
		"MaxTokens": func(o *GenerateOptions) { o.MaxTokens = 0 },
	} {
		o := good
		bad(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: %v, want an error that names %s", o, err, flag)
		}
	}
}

// Prompts that another chat template made are not those that the model is asked with,
// whatever is learned from the rows; a file that does not say is no error.
