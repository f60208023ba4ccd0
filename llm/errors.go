package llm

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"

	openai "github.com/sashabaranov/go-openai"
)

// failure is one try's end: what to tell, and whether another try makes sense.
type failure struct {
	err   error
	retry bool
	now   bool          // at once: the request itself was changed
	after time.Duration // not sooner than this
	quick bool          // no API answers there: give up early if none ever has
	why   string        // one of Reasons; "": ReasonReply

	status      int  // of the reply; 0: none
	key         bool // the key was refused
	slow        bool // no reply, or no more of one, in time
	unreachable bool // nothing takes connections there
	badGateway  bool // something does, but perhaps no server is behind it
	overloaded  bool // the server says that it is asked too much
}

// ServerError is a request that a server did not answer, or not with a reply. The errors that
// it wraps say more.
type ServerError struct {
	Server string // its address
	Status int    // of what it answered; 0: nothing came back
	err    error
}

func (e *ServerError) Error() string { return e.err.Error() }

// Unwrap gives what is wrong.
func (e *ServerError) Unwrap() error { return e.err }

// What may be wrong with a server or its address.
var (
	// ErrKey: the server wants a key, or another one.
	ErrKey = errors.New("the key is refused")
	// ErrNoModel: the server does not have the model.
	ErrNoModel = errors.New("no such model")
	// ErrNoAPI: nothing of the API is at the address.
	ErrNoAPI = errors.New("no API at this address")
	// ErrNoCredit: the account has no credit left, or its quota is spent.
	ErrNoCredit = errors.New("no credit left")
	// ErrNoTLS: the server does not speak TLS.
	ErrNoTLS = errors.New("no TLS")
	// ErrField: the server refuses a field of the request that was asked for.
	ErrField = errors.New("a field is refused")
	// ErrWait: the server asks to wait longer than a run waits.
	ErrWait = errors.New("too long a wait")
)

// What may be wrong with a reply.
var (
	errNoReply    = errors.New("no usable reply")
	errEmptyBody  = fmt.Errorf("%w: an empty body", errNoReply)
	errWebPage    = fmt.Errorf("%w: a web page", errNoReply)
	errCutOff     = fmt.Errorf("%w: cut off", errNoReply)
	errNotAPI     = fmt.Errorf("%w: not the JSON of the API", errNoReply)
	errNoChoices  = fmt.Errorf("%w: no choices", errNoReply)
	errUnfinished = fmt.Errorf("%w: no finish_reason, or no message", errNoReply)
	errBrokenOff  = fmt.Errorf("%w: broken off", errNoReply)
	errIDCount    = fmt.Errorf("%w: ids that do not fit the count of tokens", errNoReply)
)

// tooLong matches what servers say of a prompt beyond the model's window:
// OpenAI and vLLM ("maximum context length"), newer vLLM ("longer than the
// maximum model length"), SGLang ("longer than the model's context length"),
// llama.cpp ("exceeds the available context size"), Ollama's service ("prompt too
// long; exceeded max context length"; a local one cuts the prompt without a word),
// and proxies.
var tooLong = regexp.MustCompile(`(?i)context_length_exceeded|maximum context length|longer than the maximum model length|` +
	`longer than the model'?s context length|exceeds? the available context size|exceed_context_size|` +
	`exceeds? (?:the )?(?:model'?s )?(?:maximum )?(?:allowed )?(?:context|input) (?:length|window|size)|` +
	`prompt (?:is )?too long|input is too long|exceeded max(?:imum)? context length|model'?s context length is only`)

// The numbers in such a message: the window, and what the prompt alone takes.
var (
	windowSize = regexp.MustCompile(`(?i)(?:maximum context length (?:is|of)|model'?s context length is only) (\d+)`)
	promptSize = regexp.MustCompile(
		`(?i)(\d+) (?:tokens )?(?:in the messages|in the prompt|from the input messages|input tokens|of text input)`)
)

// counted matches how a newer vLLM says that prompt and reply together are too
// long: it stops to count the prompt's tokens where there is no room for the reply,
// so that its number is no length.
var counted = regexp.MustCompile(`(?i)resulting in a maximum input length of (\d+)`)

// unknownField matches how servers say that they do not know a field.
var unknownField = regexp.MustCompile(
	`(?i)unrecognized|unknown|unexpected|extra|not permitted|additional propert|unsupported|not supported|does not support|not allowed|` +
		`invalid (?:field|parameter|argument)|not available`)

// noTools matches how servers say that they take no tools in a request, or none
// for this model: vLLM without a tool parser, Ollama, llama.cpp without --jinja,
// and routers.
var noTools = regexp.MustCompile(
	`(?i)tool choice requires --enable-auto-tool-choice|does not support (?:tools|tool use|tool calling|function calling)|` +
		`tools param requires --jinja|no endpoints found that support tool use`)

// idsOrStream matches how SGLang says that its chat streams have no token ids.
var idsOrStream = regexp.MustCompile(`(?is)return_token_ids.*stream|stream.*return_token_ids`)

const withoutTools = "they are written into the prompt, and calls are read out of the replies' text (vLLM takes tools with " +
	"--enable-auto-tool-choice and --tool-call-parser)"

// classify turns what go-openai returned into one line and a decision.
func classify(s *server, err error, x *exchange, b *body) (end *failure) {
	defer func() {
		end.why = reasonOf(x.status)
		end.status = x.status
		end.overloaded = end.retry && overload(x.status)
		end.badGateway = end.badGateway || end.retry && noServerBehind(x.status)
		if end.err != nil {
			end.err = &ServerError{Server: s.name, Status: x.status, err: end.err}
		}
	}()
	switch {
	case x.status == 0:
		return noReply(s, err)
	case x.status >= 200 && x.status < 300:
		return badReply(s, err, x)
	}
	s.answered.Store(true)
	return refusal(s, x, b)
}

// saidError recognises an error that a server sends with status 200, as an event or
// as the whole reply.
func saidError(s *server, data []byte, x *exchange, b *body) *failure {
	if !bytes.Contains(data, []byte(`"error"`)) {
		return nil
	}
	var e struct {
		Object string          `json:"object"`
		Error  json.RawMessage `json:"error"`
		Code   json.RawMessage `json:"code"`
	}
	err := json.Unmarshal(data, &e)
	if said := e.Object == "error" || len(e.Error) > 0 && string(e.Error) != "null"; err != nil || !said {
		return nil //nolint:nilerr // what is no JSON is complained of where the reply is read
	}
	var inner struct {
		Code json.RawMessage `json:"code"`
	}
	code := e.Code
	if json.Unmarshal(e.Error, &inner) == nil && len(inner.Code) > 0 {
		code = inner.Code
	}
	status := 0
	if json.Unmarshal(code, &status) != nil || status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	x.status, x.body = status, slices.Clone(data)
	return classify(s, errors.New("an error with status 200"), x, b)
}

// noReply is the failure of a request that got no reply, or none to its end.
func noReply(s *server, err error) *failure {
	base := s.name
	f := &failure{retry: true}
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.err = traj.Mark(fmt.Errorf("cannot reach %s: connection refused; is the server running there?", base), syscall.ECONNREFUSED)
		f.quick, f.unreachable = true, true
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // ours, and none of the server's
		f.err = setting.Errorf("cannot open another connection to %s: too many files are open here; raise ulimit -n, or lower %s",
			base, setting.Name("Parallel"))
		f.slow = true
	case errors.As(err, &dns):
		f.err = traj.Mark(fmt.Errorf("cannot reach %s: there is no host %s", base, dns.Name), dns)
		f.quick, f.unreachable = true, true
	default:
		f.err = fmt.Errorf("%s: %s", base, s.clean(trimURL(err)))
		var op *net.OpError
		var record tls.RecordHeaderError
		switch {
		case errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
			f.err = traj.Mark(fmt.Errorf("cannot reach %s: what listens there does not speak TLS; is it http:// instead?", base), ErrNoTLS)
			f.quick, f.unreachable = true, true
		case errors.Is(err, io.EOF):
			f.err = fmt.Errorf("%s closed the connection without a reply", base)
			f.quick, f.badGateway = true, true
		default:
			f.quick = errors.As(err, &op) && op.Op == "dial"
			f.unreachable = f.quick
		}
	}
	return f
}

// badReply is the failure of a request that the server took, with a reply that is none.
func badReply(s *server, err error, x *exchange) *failure {
	base := s.name
	f := &failure{retry: true}
	switch trimmed := bytes.TrimSpace(x.body); {
	case len(trimmed) == 0:
		f.err = traj.Mark(fmt.Errorf("%s answered with an empty body", base), errEmptyBody)
	case trimmed[0] == '<':
		f.err = traj.Mark(
			fmt.Errorf("%s answered with a web page, not with JSON; is this the API's address (it often ends in /v1)?", base), errWebPage)
		f.quick = true
	case errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "cut off"):
		f.err = traj.Mark(fmt.Errorf("%s sent a reply that was cut off after %d bytes", base, len(x.body)), errCutOff)
	default:
		f.err = traj.Mark(fmt.Errorf("%s sent a reply that is not the API's JSON (%s): %s", base,
			s.clean(err.Error()), s.clean(excerpt(x.body))), errNotAPI)
		f.quick = true
	}
	return f
}

// fatal marks an error with a kind, and as one after which no other request makes sense.
func fatal(err, kind error) error { return traj.Mark(traj.Mark(err, kind), traj.ErrFatal) }

// refusal is the failure of a request that the server answered with an error's status.
func refusal(s *server, x *exchange, b *body) *failure {
	base := s.name
	said := s.clean(message(x.body))
	if said == "" {
		said = http.StatusText(x.status)
	}
	f := &failure{err: fmt.Errorf("%s answered %d: %s", base, x.status, said)}
	lower := strings.ToLower(string(x.body))
	if b != nil && b.tools != nil && noTools.MatchString(lower) {
		if s.c.InText == nil {
			f.err = traj.Mark(
				setting.Errorf("%s takes no tools (%s); start it with tools switched on, or let agentcli read the calls out of the text: %s",
					base, said, setting.Name("InText")), traj.ErrFatal)
			return f
		}
		s.drop("tools", withoutTools)
		f.now = true
		return f
	}
	switch x.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		remedy := "it wants a key: set OPENAI_API_KEY"
		if s.c.APIKey != "" {
			remedy = "the key in OPENAI_API_KEY was refused: look at it, and at what it may do"
		}
		f.key = true
		f.err = fatal(fmt.Errorf("%s answered %d (%s); %s", base, x.status, said, remedy), ErrKey)
	case http.StatusNotFound:
		if strings.Contains(lower, "model") {
			f.err = fatal(setting.Errorf("%s has no model %q (%s); name another one with %s",
				base, s.c.Model, said, setting.Name("Model")), ErrNoModel)
		} else {
			wanted := x.wanted
			if wanted == "" {
				wanted = "chat completions"
			}
			f.err = fatal(fmt.Errorf("%s has no %s (404: %s); is this the API's address (it often ends in /v1)?", base, wanted, said), ErrNoAPI)
		}
	case http.StatusPaymentRequired:
		f.err = fatal(fmt.Errorf("%s answered 402: the account has no credit left (%s)", base, said), ErrNoCredit)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		f.retry = true
	case http.StatusTooManyRequests:
		if strings.Contains(lower, "insufficient_quota") {
			f.err = fatal(fmt.Errorf("%s: the account's quota is spent (%s)", base, said), ErrNoCredit)
			return f
		}
		f.retry, f.after = true, retryAfter(x.header, s.c.Now())
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		badRequest(s, f, x, b, said)
	default:
		if x.status >= 500 {
			f.retry, f.after = true, retryAfter(x.header, s.c.Now())
			if tooLong.MatchString(lower) { // some servers answer 500 to it
				badRequest(s, f, x, b, said)
				f.retry = f.now
			}
		}
	}
	return f
}

// badRequest mends the request where it can: fewer tokens, or without the
// field that the server does not know.
func badRequest(s *server, f *failure, x *exchange, b *body, said string) {
	raw := string(x.body)
	if tooLong.MatchString(raw) {
		if counted.MatchString(raw) && b != nil && !b.inIDs && !b.open && b.sampling.MaxTokens > 0 {
			b.open = true // then the reply may take what the prompt leaves, which is less than was asked for
			f.now = true
			return
		}
		if room := roomLeft(raw); room > 0 && b != nil && b.clamp == 0 && b.sampling.MaxTokens > room {
			b.clamp = room // the prompt fits; only the reply we asked for does not
			f.now = true
			return
		}
		f.err = fmt.Errorf("%s: %s: %w", s.name, said, traj.ErrPromptTooLong)
		return
	}
	if b == nil || probeGrammar(s, f, x, b, said) || !unknownField.MatchString(raw) {
		return
	}
	if strings.Contains(raw, "max_tokens") && strings.Contains(raw, "max_completion_tokens") && sent(x, "max_tokens") {
		s.drop("max_tokens", "")
		f.now = true
		return
	}
	for _, name := range []string{"reasoning", "reasoning_content"} {
		if bytes.Contains(b.messages, []byte(`"`+name+`":`)) && mentions(raw, name) {
			s.drop(name, "")
			f.now = true
		}
	}
	if f.now {
		if s.thoughts() == (thoughts{}) {
			s.tell("thoughts", "takes no past reasoning: the model does not see what it thought in earlier turns")
		}
		return
	}
	for _, name := range []string{"repetition_penalty", "min_p", "top_k", "top_p", "temperature"} {
		if sent(x, name) && b.neutral(name) && mentions(raw, name) {
			s.drop(name, "") // ours, to keep the server's own default out; this one has no such default
			f.now = true
		}
	}
	if f.now {
		return
	}
	for name, field := range asked {
		if sent(x, name) && mentions(raw, name) {
			if b.inIDs && name == "stop_token_ids" { // the chat format's, whoever else's
				f.err = fatal(fmt.Errorf("%s does not take stop_token_ids (%s), which prompts of token ids need", s.name, said), ErrField)
				return
			}
			f.err = fatal(setting.Errorf("%s does not take %s (%s); leave %s out", s.name, name, said, field), ErrField)
			return
		}
	}
	if f.now = idsOrStream.MatchString(raw) && sent(x, "stream") && sent(x, "return_token_ids"); f.now {
		s.drop("stream", "token ids come with whole replies only, so its replies come in one piece")
		return
	}
	for name, meaning := range optional {
		if sent(x, name) && mentions(raw, name) {
			s.drop(name, meaning)
			f.now = true
		}
	}
	if f.now {
		return
	}
	// It names no field of ours: those that only some servers know go first.
	for _, name := range []string{"repetition_penalty", "min_p", "top_k"} {
		if sent(x, name) && b.neutral(name) {
			s.drop(name, "")
			f.now = true
		}
	}
	if f.now {
		return
	}
	for _, name := range []string{"return_tokens_as_token_ids", "stream_options", "skip_special_tokens",
		"return_token_ids", "logprobs", "logit_bias", "seed"} {
		if sent(x, name) {
			s.drop(name, optional[name])
			f.now = true
			return
		}
	}
}

// overload reports whether a status says that a server is asked too much: 529 is
// how some routers write 503.
func overload(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529
}

// noServerBehind reports whether a proxy says with this status that it reaches no
// server; from 521 on they are Cloudflare's.
func noServerBehind(status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 521, 522, 523:
		return true
	}
	return false
}

func sent(x *exchange, field string) bool {
	_, ok := x.fields[field]
	_, in := x.nested[field]
	return ok || in
}

// mentions looks for a whole word: "stop" is not named by "stop_token_ids".
func mentions(s, field string) bool {
	for i := 0; ; {
		j := strings.Index(s[i:], field)
		if j < 0 {
			return false
		}
		start, end := i+j, i+j+len(field)
		if (start == 0 || !wordByte(s[start-1])) && (end == len(s) || !wordByte(s[end])) {
			return true
		}
		i = end
	}
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// roomLeft is how many tokens the window leaves beside the prompt, or 0.
func roomLeft(reply string) int {
	w, p := windowSize.FindStringSubmatch(reply), promptSize.FindStringSubmatch(reply)
	if w == nil || p == nil {
		return 0
	}
	window, err1 := strconv.Atoi(w[1])
	prompt, err2 := strconv.Atoi(p[1])
	if err1 != nil || err2 != nil {
		return 0
	}
	return window - prompt
}

// message finds the words in an error's body; servers disagree on the shape.
func message(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &e) != nil {
		if t := bytes.TrimSpace(body); len(t) > 0 && t[0] == '<' {
			return "a web page, not JSON"
		}
		return string(body)
	}
	var inner struct {
		Message string `json:"message"`
	}
	var words string
	switch {
	case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(e.Error, &words) == nil && words != "":
		return words
	case e.Message != "":
		return e.Message
	case json.Unmarshal(e.Detail, &words) == nil && words != "":
		return words
	}
	return string(body)
}

// retryAfter reads the header, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s <= 0 || s != s {
			return 0
		}
		return time.Duration(min(s, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// keyless is an error in whose words our key does not stand: it goes into the
// journal, the trajectory file and the log, and servers echo what they are sent.
func keyless(err error, key string) error {
	if err == nil {
		return nil
	}
	words := withoutKey(err.Error(), key)
	if words == err.Error() {
		return err
	}
	return keylessError{words, err}
}

type keylessError struct {
	words string
	err   error
}

func (e keylessError) Error() string { return e.words }
func (e keylessError) Unwrap() error { return e.err }

// keyStart is how much of a key is known to be ours where the rest was cut off.
const keyStart = 8

// withoutKey replaces a key that a server echoes, whole or cut off.
func withoutKey(s, key string) string {
	if key == "" {
		return s
	}
	s = strings.ReplaceAll(s, key, "***")
	if len(key) < 2*keyStart {
		return s
	}
	for from := 0; ; {
		i := strings.Index(s[from:], key[:keyStart])
		if i < 0 {
			return s
		}
		i += from
		n := keyStart
		for n < len(key) && i+n < len(s) && s[i+n] == key[n] {
			n++
		}
		s = s[:i] + "***" + s[i+n:]
		from = i + 3
	}
}

// oneLine is s in one line of bounded length.
func oneLine(s string) string { return text.Cut(text.OneLine(s), 300) }

func excerpt(b []byte) string {
	if len(b) > 400 {
		b = b[:400]
	}
	return text.Cut(text.OneLine(string(b)), 120)
}

// trimURL drops the method and address that net/http puts before an error: the
// base URL is named already.
func trimURL(err error) string {
	var api *openai.RequestError
	if errors.As(err, &api) && api.Err != nil {
		err = api.Err
	}
	s := err.Error()
	if i := strings.Index(s, `": `); i >= 0 && (strings.HasPrefix(s, "Post ") || strings.HasPrefix(s, "Get ")) {
		s = s[i+3:]
	}
	return s
}
