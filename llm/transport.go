package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxBody bounds a reply in memory: ids and log-probs of 100,000 tokens fit.
const maxBody = 256 << 20

type exchangeKey struct{}

// exchange carries what go-openai has no field for past it, through the
// request's context: out, the fields to merge into the body; back, the body as
// it came and the headers.
type exchange struct {
	fields map[string]json.RawMessage
	body   []byte
	header http.Header
	status int
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
	req = req.Clone(req.Context())
	if t.agent != "" {
		req.Header.Set("User-Agent", t.agent)
	}
	if req.Body != nil {
		body, err := merge(req.Body, x.fields)
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
	defer resp.Body.Close()
	x.header, x.status = resp.Header, resp.StatusCode
	x.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("the reply was cut off after %d bytes: %w", len(x.body), err)
	}
	if len(x.body) > maxBody {
		return nil, fmt.Errorf("the reply is longer than %d bytes", maxBody)
	}
	resp.Body = io.NopCloser(bytes.NewReader(x.body))
	return resp, nil
}

// merge sets top-level fields of a JSON object; a nil value removes one.
func merge(body io.ReadCloser, fields map[string]json.RawMessage) ([]byte, error) {
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for k, v := range fields {
		if v == nil {
			delete(all, k)
		} else {
			all[k] = v
		}
	}
	return json.Marshal(all)
}
