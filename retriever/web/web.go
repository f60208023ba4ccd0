// Package web is a retriever.Index in front of a search service of the web. What it finds
// has Search-R1's form: the title in quotes, a line break, the snippet
// (search_r1/search/serp_search_server.py, google_search_server.py).
package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"agentcli/internal/remote"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/retriever"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many queries of a request are asked at the same time.
const atOnce = 8

// maxAnswer is the longest answer of a service, in bytes.
const maxAnswer = 16 << 20

// Options of an Engine.
type Options struct {
	Service string        // one of Services
	Address string        // "": the service's own
	Key     string        // sent to the service; never in an error
	CSE     string        // google: id of the search engine
	Timeout time.Duration // of one query (default: 10 s)
}

// Engine asks one service. It is safe for concurrent use.
type Engine struct {
	service
	o    Options
	http *http.Client
}

// ErrOptions is the error of options that name no service, or lack what it needs.
var ErrOptions = errors.New("the web search cannot be asked")

// New makes an Engine. Its error is ErrOptions.
func New(o Options) (*Engine, error) {
	i := slices.IndexFunc(services, func(s service) bool { return s.name == o.Service })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no service %q; they are %s", ErrOptions, o.Service, strings.Join(Services(), ", "))
	}
	e := &Engine{service: services[i], o: o}
	e.o.Address = cmp.Or(o.Address, e.address)
	u, err := url.Parse(e.o.Address)
	switch {
	case e.o.Address == "":
		return nil, setting.Errorf("%w: %s has no address of its own; give one by %s", ErrOptions, o.Service, setting.Name("Web.Address"))
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: %q is no address; want http://HOST/PATH", ErrOptions, text.Address(e.o.Address))
	case e.keyName != "" && o.Key == "":
		return nil, fmt.Errorf("%w: %s needs a key; set %s", ErrOptions, o.Service, e.keyName)
	case e.name == google && o.CSE == "":
		return nil, fmt.Errorf("%w: google needs the id of a search engine; set %s", ErrOptions, CSEName)
	}
	e.http = &http.Client{Timeout: cmp.Or(o.Timeout, 10*time.Second)}
	return e, nil
}

// Len is 0: how many pages there are is not known.
func (e *Engine) Len() int { return 0 }

// Close lets idle connections go.
func (e *Engine) Close() error {
	e.http.CloseIdleConnections()
	return nil
}

// Search asks the service for each query. A hit's score is 1/rank. The errors are
// remote.ErrUnreachable, remote.ErrTimeout, remote.ErrProtocol, a remote.StatusError, and
// the context's.
func (e *Engine) Search(ctx context.Context, queries []string, k int) ([][]retriever.Hit, error) {
	hits := make([][]retriever.Hit, len(queries))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, q := range queries {
		if q = clean(q); q == "" {
			continue
		}
		g.Go(func() (err error) {
			defer safego.Into(&err)
			hits[i], err = e.one(ctx, q, k)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("web search %s: %w", e.name, err)
	}
	return hits, nil
}

// clean is a query as Search-R1 sends it to Google: punctuation becomes space.
func clean(q string) string {
	return strings.Join(strings.FieldsFunc(q, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '_' && !unicode.IsMark(r)
	}), " ")
}

func (e *Engine) one(ctx context.Context, query string, k int) ([]retriever.Hit, error) {
	body, err := e.get(ctx, query, k)
	if err != nil {
		return nil, err
	}
	pages, err := e.read(body, k)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no JSON of %s", remote.ErrProtocol, e.name)
	}
	var hits []retriever.Hit
	for _, p := range pages {
		if p.title == "" && p.snippet == "" {
			continue
		}
		contents := fmt.Sprintf("\"%s\"\n%s", cmp.Or(p.title, "No title."), cmp.Or(p.snippet, "No snippet available."))
		row, err := json.Marshal(map[string]string{"contents": contents})
		if err != nil {
			return nil, err
		}
		passage, err := retriever.ParseRow(row)
		if err != nil {
			return nil, fmt.Errorf("%w: a page %w", remote.ErrProtocol, err)
		}
		hits = append(hits, retriever.Hit{Passage: passage, Score: 1 / float64(len(hits)+1)})
	}
	return hits[:min(k, len(hits))], nil
}

// get asks once. What is wrong is told without the address, which has the key.
func (e *Engine) get(ctx context.Context, query string, k int) ([]byte, error) {
	u, err := url.Parse(e.o.Address)
	if err != nil {
		return nil, err
	}
	values := u.Query()
	for name, value := range e.query(e.o, query, k) {
		values.Set(name, value)
	}
	u.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, e.hide(err)
	}
	req.Header.Set("Accept", "application/json")
	if e.header != "" {
		req.Header.Set(e.header, e.o.Key)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, e.broken(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, e.broken(ctx, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%w: it is longer than %d MB", remote.ErrProtocol, maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		said := text.Harmless(text.Cut(text.OneLine(string(body)), 200))
		return nil, &remote.StatusError{Status: resp.StatusCode, Detail: text.Without(said, []string{e.o.Key})}
	}
	return body, nil
}

func (e *Engine) broken(ctx context.Context, err error) error {
	var timed interface{ Timeout() bool }
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &timed) && timed.Timeout():
		return fmt.Errorf("%w (%v)", remote.ErrTimeout, e.http.Timeout)
	}
	return fmt.Errorf("%w: %w", remote.ErrUnreachable, e.hide(err))
}

// hide takes the address out of an error.
func (e *Engine) hide(err error) error {
	if where := (*url.Error)(nil); errors.As(err, &where) {
		err = where.Err
	}
	return errors.New(text.Without(text.Address(text.Line(err)), []string{e.o.Key}))
}
