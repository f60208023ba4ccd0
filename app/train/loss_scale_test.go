package train

import (
	"fmt"
	"strings"
	"testing"

	"agentcli/lossscale"
	"agentcli/trainer/rows"
)

func TestTokensWhoseWeightIsRoundedAreReported(t *testing.T) {
	for n, want := range map[int]string{0: "",
		12: "another weight begins inside 12 of 3400 tokens of the replies; such a token has the weight of its first byte"} {
		var said []string
		NoteLossScale(&rows.Data{Rounded: lossscale.Rounded{Tokens: n, Of: 3400}},
			func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) })
		if got := strings.Join(said, "\n"); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
