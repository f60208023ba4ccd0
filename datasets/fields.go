package datasets

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"agentcli/datasets/registry"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// The names that files use for our fields, the first that is there wins.
var fieldNames = map[string][]string{
	"question": {"question", "problem", "prompt", "query"},
	"messages": {"messages"},
	"answer":   {"answer", "answers", "golden_answers", "final_answer", "target", "solution", "reward_model.ground_truth"},
	"id":       {"id", "unique_id", "task_id", "ID"},
	"env":      {"env", "env_name"},
	imagesKey:  {"images", "image"},
}

const imagesKey = "images"

// problem is one row in our terms.
type problem struct {
	ID       string          `json:"id,omitempty"`
	Question string          `json:"question,omitempty"`
	Messages []traj.Message  `json:"messages,omitempty"`
	Answers  []string        `json:"answer"`
	Env      string          `json:"env,omitempty"`
	Meta     json.RawMessage `json:"meta,omitempty"`

	row          int            // its number in the file
	verbatim     bool           // the question is a whole prompt already
	choices      []string       // of a multiple-choice question
	columns      map[string]any // the whole row
	answerColumn string         // that the answers are from
	tools        []traj.ToolSpec
	images       []traj.Image // of the row's column, in order
	looks        bool         // the row can have images
	source       string       // data_source of a row in verl's form, which decides its reward there
}

// answered reports whether there is something to score a reply against.
func (p *problem) answered() bool {
	return slices.ContainsFunc(p.Answers, func(a string) bool { return a != "" })
}

// mapping finds our fields in a file's rows.
type mapping struct {
	fields     map[string]string // ours → the file's
	soft       map[string]bool   // of these, a row that lacks the column has the usual names
	choices    []string          // columns; none: no choices
	answerForm string            // of registry.Fields
	shuffle    bool
	meta       []string // columns to keep; nil: all others
	isSoft     bool     // a row may have the usual columns in place of the entry's
	envs       []string // that a row may name; nil: any
	objects    bool     // an answer may be an object, which is kept as JSON
	images     imageReader
	blind      bool // images are left out
}

// newMapping takes what the user names and what an entry says, where it is silent. With
// soft a file may also have the usual names in place of the entry's.
func newMapping(named map[string]string, own registry.Fields, soft bool) (mapping, error) {
	m := mapping{fields: map[string]string{}, soft: map[string]bool{}, choices: own.Choices, answerForm: own.AnswerForm,
		shuffle: own.ShuffleChoices, meta: own.Meta, isSoft: soft}
	entry := map[string]string{"question": own.Question, "messages": own.Messages, "answer": own.Answer, "id": own.ID, toolsKey: own.Tools}
	for ours := range named {
		switch ours {
		case "question", "prompt", "problem", "messages":
			entry["question"], entry["messages"] = "", ""
		case "answer", "id", "env", toolsKey, imagesKey:
			entry[ours] = ""
		default:
			return mapping{}, misfitOf("Fields", []string{"question", "prompt", "messages", "answer", "id", "env", toolsKey, imagesKey},
				"%s %s=%s: we have no field %q; ours are question, prompt, messages, answer, id, env, tools, images",
				setting.Name("Fields"), ours, named[ours], ours)
		}
	}
	for ours, column := range entry {
		if column != "" {
			m.fields[ours], m.soft[ours] = column, soft
		}
	}
	maps.Copy(m.fields, named)
	if column, ok := named[imagesKey]; ok && column == "" {
		m.blind = true
	}
	return m, nil
}

// find returns the value of one of our fields and the name that it has in the
// row; ok is false where the row has none.
func (m mapping) find(row map[string]any, ours string) (v any, name string, ok bool) {
	if name := m.fields[ours]; name != "" {
		if v, ok = lookup(row, name); ok || !m.soft[ours] {
			return v, name, ok
		}
	}
	for _, name := range fieldNames[ours] {
		if v, ok := lookup(row, name); ok {
			return v, name, true
		}
	}
	return nil, "", false
}

// named is the column that a row must have for one of our fields; "" where it may have the
// usual ones.
func (m mapping) named(ours string) string {
	if m.soft[ours] {
		return ""
	}
	return m.fields[ours]
}

// lookup finds name as it is, or a dotted path into nested objects and lists.
func lookup(row map[string]any, name string) (any, bool) {
	if v, ok := row[name]; ok {
		return v, v != nil
	}
	var v any = row
	for part := range strings.SplitSeq(name, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, v != nil
}

// open takes a row's messages for the conversation; the last of the user's is
// the question.
func (p *problem) open(v any, images imageReader) error {
	ms, err := images.messages(v)
	if err != nil {
		return err
	}
	p.Messages = ms
	for _, m := range ms {
		if m.Role == traj.RoleUser {
			p.Question = m.WithoutImages(imageWord)
		}
		p.looks = p.looks || len(m.Images) > 0
	}
	return nil
}

// read makes a problem of a row.
func (m mapping) read(row map[string]any) (problem, error) {
	p := problem{columns: row}
	used := map[string]bool{}
	if v, name, ok := m.find(row, "messages"); ok {
		used[name] = true
		if err := p.open(v, m.images); err != nil {
			return p, &malformed.Error{Field: name, Err: err}
		}
	} else if column := m.named("messages"); column != "" {
		return p, malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", column, keys(row))
	}
	if err := m.readQuestion(&p, row, used); err != nil {
		return p, err
	}
	if err := m.readAnswer(&p, row, used); err != nil {
		return p, err
	}
	if v, name, ok := m.find(row, "id"); ok {
		used[name] = true
		s, err := scalar(v)
		if err != nil {
			return p, &malformed.Error{Field: name, Err: err}
		}
		p.ID = s
	} else if column := m.named("id"); column != "" {
		return p, malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", column, keys(row))
	}
	if err := m.readEnv(&p, row, used); err != nil {
		return p, err
	}
	p.source = sourceOf(row)
	if err := m.readImages(&p, row, used); err != nil {
		return p, err
	}
	if m.hasChoices(row) {
		if err := m.readChoices(&p, row); err != nil {
			return p, err
		}
		for _, column := range m.choices {
			used[column] = true
		}
	}
	return p, m.readMeta(&p, row, used)
}

// readQuestion reads the question, unless the row has messages.
func (m mapping) readQuestion(p *problem, row map[string]any, used map[string]bool) error {
	ours := "question"
	for _, alias := range []string{"prompt", "problem"} {
		if m.fields[alias] != "" && m.fields["question"] == "" {
			ours = alias
		}
	}
	v, name, ok := m.find(row, ours)
	if ok && len(p.Messages) == 0 {
		used[name] = true
		if list, isList := v.([]any); isList { // a prompt column of chat messages, as some RL datasets have
			if err := p.open(list, m.images); err != nil {
				return &malformed.Error{Field: name, Err: err}
			}
		} else {
			s, err := scalar(v)
			if err != nil {
				return &malformed.Error{Field: name, Err: err}
			}
			p.Question, p.verbatim = s, ours == "prompt" || name == "prompt"
		}
	}
	if strings.TrimSpace(p.Question) != "" || len(p.Messages) > 0 {
		return nil
	}
	if ok {
		return malformed.Field(name, malformed.Missing, "is empty, and a task needs a question")
	}
	if column := m.named(ours); column != "" {
		return malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", column, keys(row))
	}
	return &malformed.Error{Kind: malformed.Missing, Err: setting.Errorf(
		"has no question: none of the fields %s is there (it has %s); name it with %s question=NAME",
		strings.Join(fieldNames["question"], ", "), keys(row), setting.Name("Fields"))}
}

// readAnswer reads the gold answers, in the form that they have.
func (m mapping) readAnswer(p *problem, row map[string]any, used map[string]bool) error {
	v, name, ok := m.find(row, "answer")
	if !ok {
		if column := m.named("answer"); column != "" {
			return malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", column, keys(row))
		}
		return nil
	}
	used[name] = true
	p.answerColumn = name
	var err error
	switch {
	case m.answerForm == registry.JSON && name == m.fields["answer"]:
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			p.Answers = []string{string(b)}
		}
	case m.answerForm == registry.Boxed && name == m.fields["answer"]:
		var s, in string
		if s, err = scalar(v); err == nil {
			if in, ok = lastBoxed(s); !ok {
				err = malformed.Errorf(malformed.Missing, "has no \\boxed{} with the answer")
			}
			p.Answers = []string{in}
		}
	case m.answerForm == registry.LiveCodeBench && name == m.fields["answer"]:
		public, _ := row["public_test_cases"].(string)
		var s string
		if s, err = scalar(v); err == nil {
			s, err = liveTests(public, s)
		}
		p.Answers = []string{s}
	default:
		p.Answers, err = answers(v, m.objects)
	}
	if err != nil {
		return &malformed.Error{Field: name, Err: err}
	}
	return nil
}

// readImages reads the row's images and whether it has a column for them.
func (m mapping) readImages(p *problem, row map[string]any, used map[string]bool) error {
	if m.blind {
		return nil
	}
	v, name, ok := m.find(row, imagesKey)
	if !ok {
		if column := m.named(imagesKey); column != "" {
			if _, null := row[column]; !null {
				return malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", column, keys(row))
			}
			p.looks = true
		}
		for _, column := range fieldNames[imagesKey] {
			if _, null := row[column]; null && m.fields[imagesKey] == "" {
				p.looks = true
			}
		}
		return nil
	}
	used[name], p.looks = true, true
	all, err := m.images.list(v)
	if err != nil {
		return &malformed.Error{Field: name, Err: err}
	}
	p.images = all
	return nil
}

// readEnv reads the environment that a row names. An object is a column of another meaning.
func (m mapping) readEnv(p *problem, row map[string]any, used map[string]bool) error {
	v, name, ok := m.find(row, "env")
	if !ok {
		if _, null := row[name]; name != "" && !null { // a null row names none
			return malformed.Errorf(malformed.Missing, "has no field %q (it has %s)", name, keys(row))
		}
		return nil
	}
	s, isText := v.(string)
	if !isText {
		return nil
	}
	used[name] = true
	if err := m.checkEnv(s); err != nil {
		return &malformed.Error{Field: name, Kind: malformed.Unsupported, Err: err}
	}
	p.Env = s
	return nil
}

// sourceOf is the data_source of a row in verl's form, or of one that was imported, which has it
// in its meta. Without verl's reward_model the name is some other column's.
func sourceOf(row map[string]any) string {
	if nested, ok := row["meta"].(map[string]any); ok && row["reward_model"] == nil {
		row = nested
	}
	name, _ := row["data_source"].(string)
	if _, ok := row["reward_model"].(map[string]any); !ok {
		return ""
	}
	return name
}

// readMeta keeps the other columns, or those that are to be kept, and the choices.
func (m mapping) readMeta(p *problem, row map[string]any, used map[string]bool) error {
	rest := map[string]any{}
	if m.meta != nil {
		for _, column := range m.meta {
			if v, ok := lookup(row, column); ok {
				rest[column[strings.LastIndexByte(column, '.')+1:]] = v
			}
		}
	} else {
		for k, v := range row {
			if !used[k] && v != nil {
				rest[k] = v
			}
		}
	}
	if nested, ok := row["meta"].(map[string]any); ok && (m.meta != nil && len(rest) == 0 || m.meta == nil && len(rest) == 1 &&
		!used["meta"]) {
		rest = nested // a row that we wrote ourselves
	}
	if p.choices != nil {
		rest = maps.Clone(rest)
		rest["choices"] = p.choices
	}
	if err := m.readOwnTools(p, row, rest); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil
	}
	b, err := json.Marshal(rest)
	p.Meta = b
	return err
}

// checkEnv refuses an environment that there is not.
func (m mapping) checkEnv(name string) error {
	if m.envs == nil || name == "" || slices.Contains(m.envs, name) {
		return nil
	}
	remedy := "they are " + strings.Join(m.envs, ", ") + ";"
	if near := text.Nearest(name, m.envs); near != "" {
		remedy = "did you mean " + near + "?"
	}
	return setting.Errorf("there is no environment %q; %s %s plays all rows in one", text.Name(name, 40), remedy, setting.Name("Env"))
}

func keys(row map[string]any) string {
	var ks []string
	for k := range row {
		ks = append(ks, k)
	}
	sort.Strings(ks)
	if len(ks) > 12 {
		ks = append(ks[:12], "...")
	}
	return strings.Join(ks, ", ")
}

// scalar is a value as text, its digits as the file has them.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []byte:
		return string(v), nil
	case time.Time:
		return v.Format(time.RFC3339), nil
	}
	return "", malformed.Errorf(malformed.Type, "want text or a number, found a list or an object")
}

// answers reads a string, a number or a list, nested lists flattened; with objects also
// objects, as JSON. Of a worked solution in the style of GSM8K only what follows #### counts.
func answers(v any, objects bool) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		var out []string
		for _, e := range v {
			a, err := answers(e, objects)
			if err != nil {
				return nil, err
			}
			out = append(out, a...)
		}
		return out, nil
	case map[string]any:
		if objects {
			b, err := json.Marshal(v)
			return []string{string(b)}, err
		}
		return nil, &malformed.Error{Kind: malformed.Type, Err: setting.Errorf(
			"want text, a number or a list, found an object (a dot goes into it: %s answer=NAME.PART; "+
				"of code, countdown, json-schema and tool-call an answer may be one: %s)", setting.Name("Fields"), setting.Name("Reward"))}
	}
	s, err := scalar(v)
	if err != nil {
		return nil, err
	}
	if i := strings.LastIndex(s, "####"); i >= 0 && !isTests(s) {
		s = s[i+4:]
	}
	return []string{strings.TrimSpace(s)}, nil
}

// isTests reports whether a gold answer is the tests of a program: JSON, or Python.
func isTests(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") || strings.Contains(s, "assert ")
}

// messages reads a list of chat messages in the OpenAI shape.
func (r imageReader) messages(v any) ([]traj.Message, error) {
	list, ok := v.([]any)
	if !ok {
		if s, isText := v.(string); isText { // CSV holds it as JSON text
			if err := json.Unmarshal([]byte(s), &list); err != nil {
				return nil, malformed.Errorf(malformed.Type, "want a list of messages")
			}
		} else {
			return nil, malformed.Errorf(malformed.Type, "want a list of messages")
		}
	}
	if len(list) == 0 {
		return nil, malformed.Errorf(malformed.Missing, "the list of messages is empty")
	}
	var out []traj.Message
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, malformed.Errorf(malformed.Type, "message %d is not an object", i)
		}
		msg, err := r.message(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		out = append(out, msg)
	}
	return out, nil
}

func (r imageReader) message(m map[string]any) (msg traj.Message, err error) {
	field := func(key string) string {
		s, _ := m[key].(string)
		return s
	}
	msg.Role = field("role")
	switch msg.Role {
	case traj.RoleSystem, traj.RoleUser, traj.RoleAssistant, traj.RoleTool:
	default:
		return msg, malformed.Field("role", malformed.Unsupported, "is %q, want system, user, assistant or tool", msg.Role)
	}
	switch c := m["content"].(type) {
	case nil:
	case string:
		msg.Content = c
		if msg.Images, err = r.namedImages(m["images"]); err != nil {
			return msg, &malformed.Error{Field: "images", Err: err}
		}
	case []any:
		if msg.Content, msg.Images, err = r.contentParts(c); err != nil {
			return msg, &malformed.Error{Field: "content", Err: err}
		}
	default:
		return msg, malformed.Field("content", malformed.Type, "is no text")
	}
	msg.Reasoning, msg.Name, msg.ToolCallID = field("reasoning"), field("name"), field("tool_call_id")
	if msg.Reasoning == "" {
		msg.Reasoning = field("reasoning_content")
	}
	calls, _ := m["tool_calls"].([]any)
	for i, c := range calls {
		o, ok := c.(map[string]any)
		if !ok {
			return msg, malformed.Errorf(malformed.Type, "tool call %d is not an object", i)
		}
		call := traj.ToolCall{}
		call.ID, _ = o["id"].(string)
		if f, ok := o["function"].(map[string]any); ok {
			o = f
		}
		call.Name, _ = o["name"].(string)
		switch a := o["arguments"].(type) {
		case string:
			call.Arguments = a
		case nil:
			call.Arguments = "{}"
		default:
			b, err := json.Marshal(a)
			if err != nil {
				return msg, err
			}
			call.Arguments = string(b)
		}
		if call.Name == "" {
			return msg, malformed.Errorf(malformed.Missing, "tool call %d has no name", i)
		}
		msg.ToolCalls = append(msg.ToolCalls, call)
	}
	return msg, nil
}

// ReadMessages reads a list of chat messages of a row. Images stand in it, in base64.
func ReadMessages(v any) ([]traj.Message, error) {
	ms, err := newImageReader(ImageLimits{}, "").messages(v)
	if err != nil {
		return nil, err
	}
	return placeImages(ms, nil)
}

// ReadStoredMessages reads a list of messages as this program keeps them: images stand in their
// places, named by their hash, and the word <image> is text.
func ReadStoredMessages(v any) ([]traj.Message, error) {
	return newImageReader(ImageLimits{}, "").messages(v)
}

// ReadAnswers reads the gold answers of a row: text, a number, or a list; with objects also
// objects, as JSON.
func ReadAnswers(v any, objects bool) ([]string, error) { return answers(v, objects) }
