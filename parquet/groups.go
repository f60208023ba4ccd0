package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/apache/thrift/lib/go/thrift"
)

// groupWriter writes a file's row groups. Arrow's own writer keeps what the footer
// will say of each, some 30 KB, as structs until the end, which is most of what a
// long run has in memory; here every group has a writer of its own, and what its
// footer says is kept as the footer of the whole file will have it, a fifth of that.
// The file is the same, byte for byte.
type groupWriter struct {
	out    io.Writer
	at     int64 // written to out
	schema *arrow.Schema
	props  *parquet.WriterProperties
	rows   int64
	groups [][]byte // of the footer
}

// magic begins and ends a Parquet file.
var magic = []byte("PAR1")

// tailSize is that of what follows a footer: its length and magic.
const tailSize = 8

func newGroupWriter(out io.Writer, schema *arrow.Schema, props *parquet.WriterProperties) (*groupWriter, error) {
	g := &groupWriter{out: out, schema: schema, props: props}
	return g, g.put(magic)
}

func (g *groupWriter) put(b []byte) error {
	n, err := g.out.Write(b)
	g.at += int64(n)
	return err
}

// write adds a row group. The record's schema is that of bare. files stand for the tokens
// in the record's fileColumns.
func (g *groupWriter) write(rec arrow.Record, files [][]byte) error {
	start := g.at
	s := &section{g: g, skip: len(magic), hold: files != nil}
	w, err := g.open(s, g.bare())
	if err != nil {
		return err
	}
	if err := w.Write(rec); err != nil {
		return err
	}
	s.hold = true
	if err := w.Close(); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	footer, pages, err := cutFooter(s.held)
	if err != nil {
		return err
	}
	further := start - int64(len(magic))
	if files == nil {
		if err := g.put(pages); err != nil {
			return err
		}
		return g.keep(footer, further, nil)
	}
	chunks := chunkCopier{g: g, pages: pages, files: files, done: int64(len(magic))}
	if err := g.keep(footer, further, chunks.copy); err != nil {
		return err
	}
	return g.put(pages[chunks.done:])
}

// bare is the schema without what the file says of itself.
func (g *groupWriter) bare() *arrow.Schema { return arrow.NewSchema(g.schema.Fields(), nil) }

func (g *groupWriter) open(w io.Writer, schema *arrow.Schema) (*pqarrow.FileWriter, error) {
	return pqarrow.NewFileWriter(schema, w, g.props, pqarrow.NewArrowWriterProperties(pqarrow.WithAllocator(memory.NewGoAllocator())))
}

// cutFooter parts what a writer wrote last.
func cutFooter(b []byte) (footer, before []byte, err error) {
	n := -1
	if end := len(b) - tailSize; end >= 0 {
		if n = int(binary.LittleEndian.Uint32(b[end:])); n <= end {
			return b[end-n : end], b[:end-n], nil
		}
	}
	return nil, nil, fmt.Errorf("arrow wrote %d bytes of footer, of %d", n, len(b))
}

// keep takes what a footer says of its one row group, which stands so many bytes
// further back in the whole file. copyChunk, if there is one, is called for each column in
// order, with the place of its pages in the group, and says by how many bytes more it
// has written them.
func (g *groupWriter) keep(footer []byte, further int64, copyChunk func(column string, from, to int64) (grown int64, err error)) error {
	meta, err := metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return err
	}
	if len(meta.RowGroups) != 1 {
		return fmt.Errorf("arrow wrote %d row groups, want 1", len(meta.RowGroups))
	}
	group := meta.RowGroups[0]
	move := func(at *int64, by int64) {
		if at != nil {
			*at += by
		}
	}
	ordinal := int16(len(g.groups))
	group.Ordinal = &ordinal
	move(group.FileOffset, further)
	for _, c := range group.Columns {
		m := c.MetaData
		var grown int64
		if copyChunk != nil {
			from := m.DataPageOffset
			if m.DictionaryPageOffset != nil && *m.DictionaryPageOffset > 0 {
				from = min(from, *m.DictionaryPageOffset)
			}
			if grown, err = copyChunk(strings.Join(m.PathInSchema, "."), from, from+m.TotalCompressedSize); err != nil {
				return err
			}
		}
		if c.FileOffset > 0 {
			c.FileOffset += further
		}
		move(c.OffsetIndexOffset, further)
		move(c.ColumnIndexOffset, further)
		move(m.IndexPageOffset, further)
		move(m.DictionaryPageOffset, further)
		move(m.BloomFilterOffset, further)
		m.DataPageOffset += further + grown // its dictionary has grown, which is in front
		m.TotalCompressedSize += grown
		m.TotalUncompressedSize += grown
		group.TotalByteSize += grown
		move(group.TotalCompressedSize, grown)
		further += grown
	}
	b := thrift.NewTMemoryBuffer()
	if err := group.Write(context.Background(), thrift.NewTCompactProtocolConf(b, nil)); err != nil {
		return err
	}
	g.rows += group.NumRows
	g.groups = append(g.groups, bytes.Clone(b.Bytes()))
	return nil
}

// close writes the footer.
func (g *groupWriter) close() error {
	var empty bytes.Buffer
	w, err := g.open(&empty, g.schema)
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	footer, _, err := cutFooter(empty.Bytes())
	if err != nil {
		return err
	}
	meta, err := metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return err
	}
	meta.NumRows = g.rows
	b := thrift.NewTMemoryBuffer()
	p := &footerProtocol{TCompactProtocol: thrift.NewTCompactProtocolConf(b, nil), b: b, groups: len(g.groups), at: -1}
	if err := meta.FileMetaData.Write(context.Background(), p); err != nil {
		return err
	}
	if p.at < 0 {
		return errors.New("arrow wrote a footer without row groups")
	}
	start := g.at
	parts := append([][]byte{b.Bytes()[:p.at]}, g.groups...)
	for _, part := range append(parts, b.Bytes()[p.at:]) {
		if err := g.put(part); err != nil {
			return err
		}
	}
	return g.put(append(binary.LittleEndian.AppendUint32(nil, uint32(g.at-start)), magic...))
}

// section is where the writer of one group writes. It keeps the sink's first error
// for itself and takes the rest of the group without writing it: after a failed page,
// arrow reads pages that it has given back to the pool of all writers.
type section struct {
	g    *groupWriter
	skip int  // bytes that do not go into the file
	hold bool // pages and the footer come together: they are parted later
	held []byte
	err  error
}

func (s *section) Write(b []byte) (int, error) {
	n := len(b)
	if s.err != nil {
		return n, nil //nolint:nilerr // groupWriter.write gives it
	}
	if s.hold {
		s.held = append(s.held, b...)
		return n, nil
	}
	cut := min(s.skip, n)
	s.skip -= cut
	if cut == n {
		return n, nil
	}
	s.err = s.g.put(b[cut:])
	return n, nil
}

// footerProtocol writes a footer of no row groups as one of so many, and remembers
// where they belong.
type footerProtocol struct {
	*thrift.TCompactProtocol
	b      *thrift.TMemoryBuffer
	groups int
	at     int // -1: not there yet
	depth  int
	field  int16
}

// rowGroupsField is the number of FileMetaData.row_groups in parquet.thrift.
const rowGroupsField = 4

func (p *footerProtocol) WriteStructBegin(ctx context.Context, name string) error {
	p.depth++
	return p.TCompactProtocol.WriteStructBegin(ctx, name)
}

func (p *footerProtocol) WriteStructEnd(ctx context.Context) error {
	p.depth--
	return p.TCompactProtocol.WriteStructEnd(ctx)
}

func (p *footerProtocol) WriteFieldBegin(ctx context.Context, name string, kind thrift.TType, id int16) error {
	if p.depth == 1 {
		p.field = id
	}
	return p.TCompactProtocol.WriteFieldBegin(ctx, name, kind, id)
}

func (p *footerProtocol) WriteListBegin(ctx context.Context, kind thrift.TType, n int) error {
	ours := p.depth == 1 && p.field == rowGroupsField
	if ours {
		n = p.groups
	}
	err := p.TCompactProtocol.WriteListBegin(ctx, kind, n)
	if ours {
		p.at = p.b.Len()
	}
	return err
}
