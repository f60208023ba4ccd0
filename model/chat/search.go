package chat

import (
	"encoding/json"
	"strings"

	"agentcli/traj"
)

// search: <search>query</search> and <answer>…</answer>, as Search-R1 and its
// kin are trained. The first of the two that is complete decides, as there: what the
// model writes behind it was made up without the results, and is cut off. A closing
// tag may be missing at the end, where it was the stop string. The answer keeps its
// tags: rewards look for them. That there is a search is for the question to say.
var search = format{name: ParserSearch, find: findSearch, read: readSearch, begins: []string{openSearch},
	prompted: &prompted{call: searchCall, result: func(s string) string { return "<information>" + s + "</information>" }}}

// searchCall writes a call's query: its only argument.
func searchCall(c traj.ToolCall) string {
	query := c.Arguments
	var args map[string]any
	if json.Unmarshal([]byte(c.Arguments), &args) == nil && len(args) == 1 {
		for _, v := range args {
			if list, ok := v.([]any); ok && len(list) == 1 {
				v = list[0]
			}
			if s, ok := v.(string); ok {
				query = s
			}
		}
	}
	return openSearch + query + closeSearch
}

const (
	openSearch, closeSearch = "<search>", "</search>"
	openAnswer, closeAnswer = "<answer>", "</answer>"
)

// SearchInReply is what Search-R1 puts behind a search, into the model's own reply:
// the results, or, where the reply held neither a query nor an answer, its advice.
func SearchInReply(results []string, invalid bool) string {
	if invalid {
		return traj.InvalidSearchAction
	}
	var b strings.Builder
	for _, r := range results {
		b.WriteString("\n\n<information>" + strings.TrimSpace(r) + "</information>\n\n")
	}
	return b.String()
}

// IsSearchAnswer reports whether a reply of that form answers. open: the closing tag is a
// stop string, which servers leave out.
func IsSearchAnswer(reply string, open bool) bool {
	_, behind, ok := strings.Cut(reply, openAnswer)
	return ok && (open || strings.Contains(behind, closeAnswer))
}

// AnswerStop ends a reply with its answer.
const AnswerStop = closeAnswer

// ParserSearch is the name of that form.
const ParserSearch = "search"

// SearchStop ends a reply where its results are to stand.
const SearchStop = closeSearch

func findSearch(_ *reading, text string, at int) int {
	s, a := index(text, openSearch, at), index(text, openAnswer, at)
	if a >= 0 && (s < 0 || a < s) {
		return a
	}
	if s >= 0 && a >= 0 && index(text, closeSearch, s) < 0 && index(text, closeAnswer, a) >= 0 {
		return a // the search was never finished
	}
	return s
}

func readSearch(r *reading, text string, at int) int {
	if strings.HasPrefix(text[at:], openAnswer) {
		end := len(text)
		if i := index(text, closeAnswer, at); i >= 0 {
			end = i + len(closeAnswer)
		}
		r.out.WriteString(text[at:end])
		return len(text)
	}
	query, _, _ := strings.Cut(text[at+len(openSearch):], closeSearch)
	if query = strings.TrimSpace(query); query == "" {
		r.bad(text[at:], "the query is empty; write <search>query</search>")
		return len(text)
	}
	tool := r.tools.oneOf("search", "web_search", "retrieve", "retriever", "search")
	key, ok := r.tools.only(tool, "query")
	if !ok {
		key = "query"
	}
	value := pyString(query)
	for _, t := range r.tools[tool].types[key] {
		if t == "array" { // verl's search tool takes a list of queries
			value = "[" + value + "]"
			break
		}
	}
	var a params
	a.add(key, value)
	r.call(tool, a.object())
	return len(text)
}
