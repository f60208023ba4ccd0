package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// maxBody bounds a reply in memory: ids and log-probs of 100,000 tokens fit.
const maxBody = 256 << 20

type exchangeKey struct{}

// exchange carries what go-openai has no field for past it, through the
// request's context: out, the messages and the fields to merge into the body;
// back, the body without its token ids, these, and the headers.
type exchange struct {
	messages []byte // a JSON array without its last bracket; nil: go-openai's own
	fields   map[string]json.RawMessage
	body     []byte
	ids      tokenIDs
	header   http.Header
	status   int

	stream bool                       // a stream of events is the caller's to read
	nested map[string]json.RawMessage // fields within a field, known to sent
	wanted string                     // what was asked for, if not chat completions
	whole  bool                       // the ids stay in the body
}

// transport merges an exchange's fields into the request and keeps the raw
// reply.
type transport struct {
	next  http.RoundTripper
	agent string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		return t.next.RoundTrip(req)
	}
	req = req.WithContext(req.Context()) // a copy: a RoundTripper changes no request
	if t.agent != "" {
		req.Header = maps.Clone(req.Header)
		req.Header["User-Agent"] = []string{t.agent}
	}
	if req.Body != nil {
		body, err := x.merge(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.ContentLength = int64(len(body))
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	x.header, x.status = resp.Header, resp.StatusCode
	if x.stream && resp.StatusCode/100 == 2 && strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream") {
		return resp, nil
	}
	x.stream = false
	defer resp.Body.Close()
	x.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("the reply was cut off after %d bytes: %w", len(x.body), err)
	}
	if len(x.body) > maxBody {
		return nil, fmt.Errorf("the reply is longer than %d bytes", maxBody)
	}
	if !x.whole {
		x.body, x.ids = takeIDs(x.body)
	}
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}

// merge sets top-level fields of a JSON object and writes it anew, the long
// parts as they are.
func (x *exchange) merge(body io.ReadCloser) ([]byte, error) {
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	size := len(raw) + len(x.messages)
	for k, v := range x.fields {
		all[k] = v
		size += len(k) + len(v) + 4
	}
	if x.messages != nil {
		all["messages"] = nil
	}
	out := append(make([]byte, 0, size+16), '{')
	for i, k := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), k...), '"', ':')
		if k == "messages" && x.messages != nil {
			out = append(append(out, x.messages...), ']')
		} else {
			out = append(out, all[k]...)
		}
	}
	return append(out, '}'), nil
}
