package llm

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"agentcli/internal/npy"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// routedExperts is where a server says which experts its model chose for the tokens of a prompt
// and its reply, in base64: vLLM in each choice, SGLang in meta_info, and beside the choices in sglext.
type routedExperts struct {
	Routed string `json:"routed_experts"`
}

// sglangExtension is what SGLang has beside the choices of a reply.
type sglangExtension struct {
	Extension routedExperts `json:"sglext"`
}

// ErrNoExperts says that a server does not send the experts that its model chose.
var ErrNoExperts = errors.New("no experts")

// ModelFacts is what servers do not say of their model.
type ModelFacts struct {
	ActiveExperts int     // for a token in a layer, which SGLang does not send; 0: not known
	Barred        []int32 // ids that are never drawn: those that stand for images, as a local model does
}

// SetFacts sets what is known of the client's model. It is called before the first request.
func SetFacts(c *Client, m ModelFacts) {
	bias := make(map[int32]float64, len(m.Barred))
	for _, id := range m.Barred {
		bias[id] = -100 // the most that the API takes
	}
	raw, err := json.Marshal(bias)
	if err != nil || len(bias) == 0 {
		raw = nil
	}
	for _, at := range c.pool.all {
		at.activeExperts, at.barred = m.ActiveExperts, raw
	}
}

// readExperts reads what a server sent of the experts for a prompt and its reply, of so many tokens
// together; nil where they were not asked for.
func readExperts(rd *replyReader, encoded string, tokens int) (*traj.Experts, *failure) {
	if !rd.c.WantExperts {
		return nil, nil
	}
	if encoded == "" {
		streamed := ""
		if rd.streams() {
			streamed = fmt.Sprintf(", leave out %s (vLLM sends them with whole replies alone)", setting.Name("Stream"))
		}
		return nil, &failure{err: fatal(setting.Errorf("%s sends no experts: start vLLM (0.22 or later) or SGLang with "+
			"--enable-return-routed-experts, agentcli serve with %s%s, or leave %s out", rd.name, setting.Name("RouterReplay"), streamed,
			setting.Name("RouterReplay")), ErrNoExperts)}
	}
	e, err := decodeExperts(encoded, tokens, rd.activeExperts)
	if err == nil {
		err = e.Validate(tokens)
	}
	if err != nil {
		return nil, &failure{err: fatal(setting.Errorf("%s sent experts that cannot be used: %w; leave %s out", rd.name, err,
			setting.Name("RouterReplay")), ErrNoExperts)}
	}
	return e, nil
}

// decodeExperts reads NumPy's file of [tokens read, layers, active], as vLLM sends it, or the
// numbers of such an array alone, int32 and little endian, as SGLang does. The last token was not read.
func decodeExperts(encoded string, tokens, active int) (*traj.Experts, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("they are no base64")
	}
	shape, values, err := npy.Decode(data)
	switch {
	case err == nil && len(shape) != 3:
		return nil, fmt.Errorf("their array has %d dimensions, not 3 (tokens, layers, experts of a token)", len(shape))
	case err == nil && shape[0] != tokens && shape[0] != tokens-1: // of the reply alone, say
		return nil, fmt.Errorf("they are of %d tokens, and prompt and reply have %d", shape[0], tokens)
	case err != nil && npy.Is(data):
		return nil, err
	case err != nil:
		if shape, values, err = decodeNumbers(data, tokens-1, active); err != nil {
			return nil, err
		}
	}
	e := &traj.Experts{Layers: shape[1], Active: shape[2], IDs: make(traj.ExpertIDs, len(values))}
	for i, v := range values {
		switch {
		case v < 0:
			e.IDs[i] = traj.NoExpert
		case v >= traj.NoExpert:
			return nil, fmt.Errorf("expert %d is beyond %d", v, traj.NoExpert-1)
		default:
			e.IDs[i] = uint16(v)
		}
	}
	return e, nil
}

// decodeNumbers reads int32 of so many tokens, each with active experts in a layer: [tokens, layers, active].
func decodeNumbers(data []byte, tokens, active int) ([]int, []int64, error) {
	n := len(data) / 4
	switch {
	case active < 1:
		return nil, nil, setting.Errorf("the server does not say how many experts a layer chooses; name the model's own folder with %s",
			setting.Name("Tokenizer"))
	case len(data)%4 != 0 || tokens < 1 || n == 0 || n%(tokens*active) != 0:
		return nil, nil, fmt.Errorf("%d bytes are no experts of %d tokens with %d in a layer", len(data), tokens, active)
	}
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return []int{tokens, n / (tokens * active), active}, values, nil
}
