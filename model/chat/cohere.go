package chat

import (
	"encoding/json"
	"strings"

	"agentcli/traj"
)

// cohere: <|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}]<|END_ACTION|>, as
// Command R7B and Command A write it. The ids count from 0, and the template makes them
// again of the order of the calls. Text stands between markers of its own.
var (
	cohereList = jsonList{open: "<|START_ACTION|>", shut: "<|END_ACTION|>", call: readCohere,
		form: cohereForm}
	cohere = format{name: "cohere", special: true, find: cohereList.find, read: cohereList.read, finish: finishCohere,
		begins: []string{cohereList.open}, drops: cohereMarkers, think: [2]string{"<|START_THINKING|>", "<|END_THINKING|>"}}
)

const cohereForm = `[{"tool_call_id": "0", "tool_name": ..., "parameters": {...}}]`

var (
	cohereMarkers  = []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}
	withoutMarkers = strings.NewReplacer(cohereMarkers[0], "", cohereMarkers[1], "", cohereMarkers[2], "", cohereMarkers[3], "")
)

func finishCohere(r *reading) { r.msg.Content = withoutMarkers.Replace(r.msg.Content) }

func readCohere(body json.RawMessage) (call traj.ToolCall, reason string) {
	var f struct {
		Name json.RawMessage `json:"tool_name"`
		Args json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(body, &f) != nil || f.Name == nil {
		return readBody(body)
	}
	if json.Unmarshal(f.Name, &call.Name) != nil || call.Name == "" {
		return call, `"tool_name" is no name; write ` + cohereForm
	}
	call.Arguments, reason = arguments(f.Args)
	return call, reason
}
