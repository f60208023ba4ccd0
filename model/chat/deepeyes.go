package chat

import (
	"strings"

	"agentcli/traj"
)

// ParserDeepEyes is the name of the form in which DeepEyes' models are trained: calls as in the
// Hermes form, results in DeepEyes' own words.
const ParserDeepEyes = "deepeyes"

var deepEyes = format{name: ParserDeepEyes, find: findHermes, read: readHermes, begins: []string{openCall}, prompted: &deepEyesWords}

var deepEyesWords = prompted{intro: hermesWords.intro, listed: listsTools, call: callText, result: deepEyesResult}

// deepEyesAdvice is behind each image: the words of DeepEyes' rows (scripts/golden/deepeyes.py).
const deepEyesAdvice = "\nThink first, call **image_zoom_in_tool** if needed, then answer. Format strictly as:  " +
	"<think>...</think>  <tool_call>...</tool_call> (if tools needed)  <answer>...</answer> "

// deepEyesResult is a result as VisualToolBoxV2 writes it: an error is in no tags.
func deepEyesResult(s string) string {
	if reason, failed := strings.CutPrefix(s, "error: "); failed {
		return "Error: " + reason
	}
	if strings.Contains(s, traj.ImageMark) {
		s += deepEyesAdvice
	}
	return "<tool_response>" + s + "</tool_response>"
}
