package traj

// InvalidSearchAction is what Search-R1 puts behind a reply that is neither a search nor an
// answer, as the model's own words. Rewards must not take its tags for the model's.
const InvalidSearchAction = "\nMy previous action is invalid. " +
	"If I want to search, I should put the query between <search> and </search>. " +
	"If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n"

// Conversation grows by observations and replies. The zero value is empty. It is
// used by one goroutine.
type Conversation struct {
	Messages []Message
	// Continued says that the next reply goes on with the last message.
	Continued bool
	// Inserted is the text that was put at the end of the last message since the
	// last reply, where Continued.
	Inserted string

	written string // the last message as it stands in the prompt; "": not known
	apart   string // its thinking that is not in written
	before  int    // bytes of the last message in front of the last reply
}

// Observe appends an observation's messages, or its text at the end of the last
// message, if that is the model's own.
func (c *Conversation) Observe(o Observation) {
	last := len(c.Messages) - 1
	if o.Continue == "" || len(o.Messages) > 0 || last < 0 || c.Messages[last].Role != RoleAssistant {
		c.Messages = append(c.Messages, o.Messages...)
		if len(o.Messages) > 0 {
			c.Continued, c.Inserted, c.written, c.apart = false, "", "", ""
		}
		return
	}
	m := &c.Messages[last]
	if c.written != "" {
		// What goes on is the text that the model wrote: the calls and the thinking
		// that were read out of it stand in it, and so does the stop string.
		c.written += o.Continue
		m.Content, m.ToolCalls, m.Reasoning = c.written, nil, c.apart
	} else {
		m.Content += o.Continue
	}
	c.Continued, c.Inserted = true, c.Inserted+o.Continue
}

// CanContinue reports whether a text can be put behind the last message. It cannot where
// the server read calls out of the reply and its text is not known: the calls would follow
// the text.
func (c *Conversation) CanContinue() bool {
	last := len(c.Messages) - 1
	return last < 0 || c.written != "" || len(c.Messages[last].ToolCalls) == 0
}

// Reply appends a reply, or goes on with the last message by it.
func (c *Conversation) Reply(r *Response) {
	reply := r.Message
	reply.Role = RoleAssistant
	c.before = 0
	if last := len(c.Messages) - 1; c.Continued && last >= 0 {
		m := &c.Messages[last]
		if c.before = len(m.Content); c.written != "" && r.Raw != "" {
			c.before = len(c.written)
		}
		m.Content += reply.Content
		m.ToolCalls = reply.ToolCalls
		m.Reasoning = joinLines(m.Reasoning, reply.Reasoning)
		if c.written != "" && r.Raw != "" {
			c.written += r.Raw
			if r.Apart {
				c.apart = joinLines(c.apart, reply.Reasoning)
			}
		} else {
			c.written = ""
		}
	} else {
		c.Messages = append(c.Messages, reply)
		c.written, c.apart = r.Raw, ""
		if r.Apart {
			c.apart = reply.Reasoning
		}
	}
	c.Continued, c.Inserted = false, ""
}

// joinLines are two texts, one below the other where there are two.
func joinLines(a, b string) string {
	if a != "" && b != "" {
		a += "\n"
	}
	return a + b
}

// Cut takes back the end of the last reply, which then goes on with a text.
func (c *Conversation) Cut(cut Cut, text string) {
	m := &c.Messages[len(c.Messages)-1]
	whole := m.Content
	if c.written != "" {
		whole = c.written
	} else { // what the server read out of the reply stands behind its content, and is cut off
		c.apart = m.Reasoning
	}
	kept := whole[:min(c.before+cut.Bytes, len(whole))] + text
	c.written = kept
	m.Content, m.ToolCalls, m.Reasoning = kept, nil, c.apart
	c.Continued, c.Inserted = true, cut.Rest+text
}

// Rewrite puts another conversation in the place of this one.
func (c *Conversation) Rewrite(history []Message) {
	*c = Conversation{Messages: append([]Message(nil), history...)}
}

// Cut takes back the end of the model's last reply, which then goes on from there.
type Cut struct {
	Bytes int // of the reply's text, as the model wrote it, that stay
	// Tokens are those of the reply's ids whose text is wholly within Bytes; the text of
	// the others within Bytes is Rest. Without ids both are empty.
	Tokens int
	Rest   string
}
