package llm

import (
	"bytes"
	"encoding/json"
	"errors"
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

// exchange goes with a request, in its context: out, what its body is made of;
// back, the reply's body without its token ids, these, and the headers.
type exchange struct {
	messages []byte // a JSON array without its last bracket; nil: none
	fields   map[string]json.RawMessage
	body     []byte
	ids      tokenIDs
	header   http.Header
	status   int

	stream bool                       // a stream of events is the caller's to read
	nested map[string]json.RawMessage // fields within a field, known to sent
	wanted string                     // what was asked for, if not chat completions
	whole  bool                       // the ids stay in the body
	ours   bool                       // the transport writes the request's body, and its caller reads the reply from here
}

// transport says who we are and keeps the raw reply.
type transport struct {
	next  http.RoundTripper
	agent string
}

var emptyReply = []byte("{}")

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		return t.next.RoundTrip(req)
	}
	if t.agent != "" {
		req = req.WithContext(req.Context()) // a copy: a RoundTripper changes no request
		req.Header = maps.Clone(req.Header)
		req.Header["User-Agent"] = []string{t.agent}
	}
	if x.ours {
		if t.agent == "" {
			req = req.WithContext(req.Context())
		}
		body := x.encode()
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
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
	x.body, err = readAll(resp.Body, resp.ContentLength)
	if err != nil {
		return nil, fmt.Errorf("the reply was cut off after %d bytes: %w", len(x.body), err)
	}
	if len(x.body) > maxBody {
		return nil, fmt.Errorf("the reply is longer than %d bytes", maxBody)
	}
	if !x.whole {
		x.body, x.ids = takeIDs(x.body)
	}
	read := x.body
	if x.ours && resp.StatusCode/100 == 2 {
		read = emptyReply // go-openai has nothing to read
	}
	resp.Body = io.NopCloser(bytes.NewReader(read))
	return resp, nil
}

// readAll is io.ReadAll of at most a byte more than maxBody, into a buffer of the
// size that the server announced, if that is to be believed.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	b := make([]byte, 0, min(max(announced+1, 512), 64<<10)) // the byte more is where the end is found
	r = io.LimitReader(r, maxBody+1)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			b = slices.Grow(b, len(b))
		}
	}
}

// encode writes the request's body, the long parts as they are, the names in order.
func (x *exchange) encode() []byte {
	names := make([]string, 0, len(x.fields)+1)
	size := len(x.messages) + 16
	for k, v := range x.fields {
		names = append(names, k)
		size += len(k) + len(v) + 4
	}
	if x.messages != nil {
		names = append(names, "messages")
	}
	slices.Sort(names)
	out := append(make([]byte, 0, size), '{')
	for i, k := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), k...), '"', ':')
		if k == "messages" && x.messages != nil {
			out = append(append(out, x.messages...), ']')
		} else {
			out = append(out, x.fields[k]...)
		}
	}
	return append(out, '}')
}
