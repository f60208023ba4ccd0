// Package retrieval builds the index of a corpus and serves it, with messages for people.
package retrieval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentcli/app/console"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/retriever/bm25"
	"agentcli/retriever/dense"
	"agentcli/retriever/folder"
	"agentcli/retriever/hybrid"
)

// Kinds of indexes.
var Kinds = []string{bm25.Kind, dense.Kind, hybrid.Kind}

// IndexOptions say what is indexed and how.
type IndexOptions struct {
	Corpus  string
	Output  string // the index's folder
	Kind    string // one of Kinds
	K1, B   float64
	Replace bool // an index that is there

	// of kinds with vectors
	Encoder EncoderOptions
	Search  string // dense.Exact or dense.HNSW
}

func (o IndexOptions) validate() error {
	if o.Output == "" {
		return exit.Usagef("where to? %s FOLDER", setting.Name("Output"))
	}
	if err := (bm25.Options{K1: o.K1, B: o.B}).Validate(); err != nil {
		return exit.UsageError{Err: err}
	}
	switch o.Kind {
	case bm25.Kind:
		if o.Encoder.Model != "" {
			return exit.Usagef("%s has no effect with %s %s, which has no vectors", setting.Name("Model"), setting.Name("Kind"), o.Kind)
		}
		if o.Search != "" && o.Search != dense.Exact {
			return exit.Usagef("%s %s has no effect with %s %s, which has no vectors", setting.Name("Search"), o.Search,
				setting.Name("Kind"), o.Kind)
		}
		return nil
	case dense.Kind, hybrid.Kind:
	default:
		return exit.Usagef("%s %q is unknown; it is one of %s", setting.Name("Kind"), o.Kind, text.FirstFew(Kinds, len(Kinds)))
	}
	if err := (dense.Options{Search: o.Search}).Validate(); err != nil {
		return exit.UsageError{Err: err}
	}
	return nil
}

// Index builds the index of a corpus and prints its folder. Every kind has the passages
// and the inverted index; dense and hybrid have vectors too.
func Index(ctx context.Context, o IndexOptions, s console.Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	began := time.Now()
	var e encoder
	var model dense.Model
	if o.Kind != bm25.Kind {
		var err error
		if e, model, err = o.Encoder.open(s); err != nil {
			return err
		}
		defer e.Close()
	}
	w, err := folder.Create(o.Output, o.Replace)
	if errors.Is(err, folder.ErrExists) {
		return exit.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	defer w.Abort()
	m := folder.Manifest{Kind: o.Kind, Program: version.String()}
	p := newProgress(s, "indexed")
	err = bm25.Write(ctx, o.Corpus, w, &m, bm25.Options{K1: o.K1, B: o.B, Notify: p.notify})
	p.clear()
	if err == nil && e != nil {
		p = newProgress(s, "encoded")
		err = dense.Write(ctx, o.Corpus, w, &m, e, dense.Options{Search: o.Search, Describe: model, Notify: p.notify})
		p.clear()
	}
	if err != nil {
		return err
	}
	if err := w.Commit(&m); err != nil {
		return err
	}
	var size int64
	for _, f := range m.Files {
		size += f.Bytes
	}
	s.Say(fmt.Sprintf("%s of %s indexed in %s: %.1f MB", text.Plural(m.Corpus.Passages, "passage"), m.Corpus.Name,
		time.Since(began).Round(100*time.Millisecond), float64(size)/1e6))
	fmt.Fprintln(s.Out, o.Output)
	return nil
}

// progress tells how far an index is: a line that redraws itself on a terminal, else a
// line every now and then.
type progress struct {
	s     console.Streams
	verb  string
	last  time.Time // when a line was written, or the work began
	drawn bool
}

func newProgress(s console.Streams, verb string) *progress {
	return &progress{s: s, verb: verb, last: time.Now()}
}

func (p *progress) notify(passages int, read, of int64) {
	redraws := p.s.ErrTTY && !p.s.JSON()
	every := console.PlainEvery
	if redraws {
		every = 200 * time.Millisecond
	}
	now := time.Now()
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	line := fmt.Sprintf("%s %s, %.0f %% of the corpus", text.Plural(passages, "passage"), p.verb, 100*float64(read)/float64(max(1, of)))
	if !redraws {
		p.s.Say(line)
		return
	}
	fmt.Fprintf(p.s.Err, "\r%s\x1b[K", line)
	p.drawn = true
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.s.Err, "\r\x1b[K")
		p.drawn = false
	}
}
