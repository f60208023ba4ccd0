package retrieval

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/retriever"
	"agentcli/retriever/bert"
	"agentcli/retriever/bm25"
	"agentcli/retriever/dense"
	"agentcli/retriever/folder"
	"agentcli/retriever/hybrid"
	"agentcli/retriever/passages"
	"agentcli/retriever/server"
	"agentcli/retriever/web"
)

// opened is an open index of any kind.
type opened struct {
	retriever.Index
	kind    string
	encoder encoder // nil: none
}

// Close closes the index and its encoder.
func (x opened) Close() error {
	if x.encoder != nil {
		x.encoder.Close()
	}
	return x.Index.Close()
}

// Open opens the index in a folder. e encodes the queries of an index with vectors.
func Open(dir string, e EncoderOptions, s console.Streams) (retriever.Index, error) {
	return open(dir, e, s)
}

func open(dir string, e EncoderOptions, s console.Streams) (x opened, err error) {
	f, err := folder.Open(dir)
	if err != nil {
		return x, err
	}
	if x, err = openKind(f, e, s); err != nil {
		f.Close()
		return x, fmt.Errorf("%s: %w", dir, err)
	}
	return x, nil
}

func openKind(f *folder.Folder, e EncoderOptions, s console.Streams) (x opened, err error) {
	x.kind = f.Kind
	var rankers []retriever.Ranker
	if f.Kind == bm25.Kind || f.Kind == hybrid.Kind {
		r, err := bm25.Open(f)
		if err != nil {
			return x, err
		}
		rankers = append(rankers, r)
	}
	if f.Kind == bm25.Kind && e.Model != "" {
		return x, exit.Usagef("%s has no effect: an index of kind %s encodes no queries", setting.Name("Model"), f.Kind)
	}
	if f.Kind == dense.Kind || f.Kind == hybrid.Kind {
		var model dense.Model
		if err := dense.Described(f, &model); err != nil {
			return x, err
		}
		if x.encoder, err = e.reopen(model, s); err != nil {
			return x, err
		}
		r, err := dense.Open(f, x.encoder)
		if err != nil {
			return x, err
		}
		rankers = append(rankers, r)
	}
	switch len(rankers) {
	case 0:
		return x, fmt.Errorf("this version reads no index of kind %q", f.Kind)
	case 1:
		x.Index, err = passages.OpenIndex(f, rankers[0])
	default:
		x.Index, err = passages.OpenIndex(f, hybrid.Ranker{Rankers: rankers})
	}
	return x, err
}

// ServeOptions say what is served and where.
type ServeOptions struct {
	Dir     string
	Host    string
	Port    int // 0: a free one
	TopK    int // hits a query where a request does not say
	Encoder EncoderOptions

	Web        web.Options // a search service of the web takes the place of an index; no Service: none
	Rerank     string      // folder of a cross-encoder; "": none
	Candidates int         // hits that are reranked, where a request does not say
}

// grace is what requests under way have after ^C.
const grace = 10 * time.Second

// Serve answers searches until ^C.
func Serve(ctx context.Context, o ServeOptions, s console.Streams) error {
	switch {
	case o.Port < 0 || o.Port > 65535:
		return exit.Usagef("%s %d: want a port from 0 to 65535", setting.Name("Port"), o.Port)
	case o.TopK < 1 || o.TopK > server.MaxTopK:
		return exit.Usagef("%s %d: want a number from 1 to %d", setting.Name("Serve.TopK"), o.TopK, server.MaxTopK)
	}
	h, err := o.handler(s)
	if err != nil {
		return err
	}
	defer h.Index.Close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	if err != nil {
		return notListening(err)
	}
	what := text.Plural(h.Index.Len(), "passage") + " (" + h.Kind + ")"
	if o.Web.Service != "" {
		what = "the web (" + h.Kind + ")"
	}
	s.Say(fmt.Sprintf("%s at http://%s/retrieve; ^C ends it", what, l.Addr()))
	return server.Serve(ctx, l, h, console.StopRequested(ctx), grace)
}

// notListening says which part of the address is to be another.
func notListening(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return setting.Errorf("%w; name another by %s", err, setting.Name("Port"))
	}
	return setting.Errorf("%w; name an address of this machine by %s", err, setting.Name("Serve.Host"))
}

// handler opens what answers. Its index is to be closed.
func (o ServeOptions) handler(s console.Streams) (*server.Handler, error) {
	h := &server.Handler{TopK: o.TopK, Candidates: o.Candidates}
	if o.Web.Service != "" {
		e, err := web.New(o.Web)
		if err != nil {
			return nil, exit.UsageError{Err: setting.Errorf("%s: %w", setting.Name("Serve.Web"), err)}
		}
		h.Index, h.Kind = e, o.Web.Service
	}
	if o.Rerank != "" {
		if o.Candidates < 1 || o.Candidates > server.MaxTopK {
			return nil, exit.Usagef("%s %d: want a number from 1 to %d", setting.Name("Serve.Candidates"), o.Candidates, server.MaxTopK)
		}
		m, err := bert.OpenCrossEncoder(o.Rerank)
		if err != nil {
			return nil, setting.Errorf("%s: %w", setting.Name("Serve.Rerank"), err)
		}
		h.Reranker = m
	}
	if h.Index != nil {
		return h, nil
	}
	x, err := open(o.Dir, o.Encoder, s)
	if err != nil {
		return nil, err
	}
	h.Index, h.Kind = x, x.kind
	return h, nil
}
