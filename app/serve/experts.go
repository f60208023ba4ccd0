package serve

import (
	"encoding/base64"
	"encoding/binary"

	"agentcli/internal/npy"
	"agentcli/internal/setting"
	"agentcli/traj"
)

// checkExperts refuses a request for experts that were not kept.
func checkExperts(s *server, wanted *bool) error {
	if wanted != nil && *wanted && !s.o.Model.RouterReplay {
		return bad("return_routed_experts", "return_routed_experts: this server keeps no experts; start it with %s",
			setting.Name("RouterReplay"))
	}
	return nil
}

// addExperts adds to a choice the experts that were chosen for its tokens and those of its prompt:
// as vLLM does, a file of NumPy's in base64, [tokens, layers, active]. Like vLLM it does so unasked.
func addExperts(choice map[string]any, wanted *bool, e *traj.Experts) {
	if e.Tokens() > 0 && (wanted == nil || *wanted) {
		file := npy.Encode([]int{e.Tokens(), e.Layers, e.Active}, expertNumbers(e))
		choice["routed_experts"] = base64.StdEncoding.EncodeToString(file)
	}
}

// encodeNumbers has the numbers alone, as SGLang sends them.
func encodeNumbers(e *traj.Experts) string {
	var b []byte
	for _, v := range expertNumbers(e) {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// expertNumbers are the ids of experts; -1 where one is not known.
func expertNumbers(e *traj.Experts) []int32 {
	out := make([]int32, len(e.IDs))
	for i, id := range e.IDs {
		if out[i] = int32(id); id == traj.NoExpert {
			out[i] = -1
		}
	}
	return out
}
