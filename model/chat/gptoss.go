package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// ParserGPTOSS is the format of gpt-oss, whose replies name a channel before their text.
const ParserGPTOSS = "gpt-oss"

// gptOSS: harmony, the format of gpt-oss. A reply is a row of messages, each with
// a header and a channel: analysis is reasoning, final is content, and so is
// commentary that is addressed to nobody; a message that is addressed to a tool
// is a call, on whatever channel. A text without harmony's markers is content.
var gptOSS = format{name: ParserGPTOSS, find: findHarmony, read: readHarmony, finish: finishHarmony, starts: startsHarmony,
	paired: true, special: true}

var (
	harmonyMark    = regexp.MustCompile(`<\|(?:start|channel|message|constrain)\|>`)
	harmonyEnd     = regexp.MustCompile(`<\|(?:end|call|return|start|channel)\|>`)
	harmonyOpening = regexp.MustCompile(`^\s*(?:assistant)?\s*(?:to=\S+)?\s*$`)
	harmonyTo      = regexp.MustCompile(`(?:^|\s)to=([^\s<]+)`)
	harmonyChannel = regexp.MustCompile(`<\|channel\|>\s*(\w+)`)
)

func findHarmony(r *reading, text string, at int) int {
	i := findRegexp(harmonyMark, text, at)
	if i > at && r.out.Len() == 0 && harmonyOpening.MatchString(text[at:i]) {
		return at // the first header began in the prompt
	}
	return i
}

func readHarmony(r *reading, text string, at int) int {
	for at < len(text) {
		at = readHarmonyMessage(r, text, at)
	}
	return at
}

func readHarmonyMessage(r *reading, text string, at int) int {
	const message = "<|message|>"
	start := skipAny(text, at, "<|start|>")
	header, _, _ := strings.Cut(text[start:], "<|start|>")
	header, _, ok := strings.Cut(header, message)
	to := ""
	if m := harmonyTo.FindStringSubmatch(header); m != nil {
		to = m[1]
	}
	if !ok {
		end := start + len(header)
		switch {
		case to != "" && to != "assistant":
			r.bad(text[at:end], fmt.Sprintf("it was cut off: the call of %s has no <|message|>", to))
		case !strings.Contains(header, "<|"): // bare text between messages
			addHarmonyContent(r, header)
		}
		return max(end, at+1)
	}
	inner := start + len(header) + len(message)
	body := text[inner:]
	end, next := len(text), len(text)
	if loc := harmonyEnd.FindStringIndex(body); loc != nil {
		end, next = inner+loc[0], inner+loc[1]
		if mark := text[end:next]; mark == "<|start|>" || mark == "<|channel|>" {
			next = end
		}
	}
	body = text[inner:end]
	channel := ""
	if m := harmonyChannel.FindStringSubmatch(header); m != nil {
		channel = m[1]
	}
	switch {
	case to != "" && to != "assistant" && to != "user":
		readHarmonyCall(r, strings.TrimPrefix(to, "functions."), header, body, text[at:next])
	case channel == "analysis":
		r.thought(body)
	default:
		addHarmonyContent(r, body)
	}
	return next
}

func addHarmonyContent(r *reading, s string) {
	if r.out.Len() > 0 && strings.TrimSpace(s) != "" {
		r.out.WriteString("\n")
	}
	r.out.WriteString(s)
}

// readHarmonyCall reads a message to a tool: JSON, or what a tool of one text takes,
// as the built-in python does.
func readHarmonyCall(r *reading, name, header, body, raw string) {
	p := skipBlanks(body, 0)
	if key, ok := r.tools.only(name, map[string]string{"python": "code"}[name]); ok &&
		!strings.Contains(header, "json") && !strings.HasPrefix(body[p:], "{") && p < len(body) {
		var a params
		a.add(key, pyString(body))
		r.call(name, a.object())
		return
	}
	if p == len(body) {
		r.bad(raw, fmt.Sprintf("the call of %s has no arguments; write a JSON object after <|message|>", name))
		return
	}
	args, end, reason := firstArguments(body, p)
	if end = skipBlanks(body, end); reason == "" && end < len(body) {
		reason = fmt.Sprintf("there is text after the JSON object, from %q on; the arguments are one JSON object", head(body[end:], 20))
	}
	r.result(name, args, raw, reason)
}

func finishHarmony(r *reading) {
	if strings.TrimSpace(r.msg.Content) == "" && len(r.thoughts) > 0 {
		r.msg.Content = ""
	}
}
