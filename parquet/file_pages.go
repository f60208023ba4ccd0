package parquet

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/thrift/lib/go/thrift"
)

// chunkCopier writes the pages of a row group whose fileColumns have tokens for values: the
// dictionaries of these columns get the files that the tokens stand for. So arrow never
// holds a file, and a row group has each one once.
type chunkCopier struct {
	g     *groupWriter
	pages []byte // of the group, behind the magic of a file
	files [][]byte
	done  int64 // bytes of pages that are written
}

// copy writes the pages up to the end of a column's, which stand in from and to.
func (c *chunkCopier) copy(column string, from, to int64) (grown int64, err error) {
	if from < c.done || to < from || to > int64(len(c.pages)) {
		return 0, fmt.Errorf("arrow wrote column %s at bytes %d to %d of %d", column, from, to, len(c.pages))
	}
	if !slices.Contains(fileColumns, column) {
		err = c.g.put(c.pages[c.done:to])
		c.done = to
		return 0, err
	}
	if err := c.g.put(c.pages[c.done:from]); err != nil {
		return 0, err
	}
	c.done = to
	head, size, err := readPageHead(c.pages[from:to])
	if err != nil {
		return 0, fmt.Errorf("column %s: %w", column, err)
	}
	if head.kind != dictionaryPage {
		return 0, c.g.put(c.pages[from:to]) // the row group has no image in this column
	}
	tokens, rest := c.pages[from+int64(size):][:head.size], c.pages[from+int64(size)+int64(head.size):to]
	grown, err = c.putDictionary(head, size, tokens)
	if err != nil {
		return 0, fmt.Errorf("column %s: %w", column, err)
	}
	return grown, c.g.put(rest)
}

// tokenSize is that of a token in a dictionary: its length, and four bytes.
const tokenSize = 8

// putDictionary writes a dictionary of tokens as one of files. It grows by so many bytes.
func (c *chunkCopier) putDictionary(head pageHead, headSize int, tokens []byte) (grown int64, err error) {
	if len(tokens)%tokenSize != 0 || len(tokens)/tokenSize != int(head.values) {
		return 0, fmt.Errorf("arrow wrote a dictionary of %d bytes for %d tokens", len(tokens), head.values)
	}
	var files [][]byte
	size := 0
	for ; len(tokens) > 0; tokens = tokens[tokenSize:] {
		token := binary.LittleEndian.Uint32(tokens[4:])
		if int(token) >= len(c.files) {
			return 0, fmt.Errorf("token %d of %d images", token, len(c.files))
		}
		files = append(files, c.files[token])
		size += 4 + len(c.files[token])
	}
	if size >= 1<<31 {
		return 0, fmt.Errorf("the images of a row group have %d bytes", size)
	}
	was := headSize + int(head.size)
	head.size = int32(size)
	text, err := head.bytes()
	if err != nil {
		return 0, err
	}
	if err := c.g.put(text); err != nil {
		return 0, err
	}
	for _, f := range files {
		if err := c.g.put(binary.LittleEndian.AppendUint32(nil, uint32(len(f)))); err != nil {
			return 0, err
		}
		if err := c.g.put(f); err != nil {
			return 0, err
		}
	}
	return int64(len(text) + size - was), nil
}

// pageHead is a PageHeader of parquet.thrift, as far as a dictionary's page needs it.
type pageHead struct {
	kind     int32
	size     int32 // of the page, which is not compressed
	values   int32
	encoding int32
}

const dictionaryPage = 2 // PageType.DICTIONARY_PAGE

// readPageHead reads the head of a page, and how many bytes it has.
func readPageHead(b []byte) (h pageHead, size int, err error) {
	ctx := context.Background()
	buf := thrift.NewTMemoryBuffer()
	buf.Buffer.Write(b[:min(len(b), 1<<10)])
	all := buf.Len()
	p := thrift.NewTCompactProtocolConf(buf, nil)
	number := func(to *int32) error {
		v, err := p.ReadI32(ctx)
		*to = v
		return err
	}
	var compressed int32
	err = eachField(p, func(id int16, kind thrift.TType) error {
		switch id {
		case 1:
			return number(&h.kind)
		case 2:
			return number(&h.size)
		case 3:
			return number(&compressed)
		case 7:
			return eachField(p, func(id int16, kind thrift.TType) error {
				switch id {
				case 1:
					return number(&h.values)
				case 2:
					return number(&h.encoding)
				}
				return p.Skip(ctx, kind)
			})
		}
		return p.Skip(ctx, kind)
	})
	size = all - buf.Len()
	if err == nil && (h.kind == dictionaryPage && compressed != h.size || h.size < 0 || size+int(compressed) > len(b)) {
		err = fmt.Errorf("arrow wrote a page of %d bytes as %d", h.size, compressed)
	}
	return h, size, err
}

// eachField reads a struct.
func eachField(p *thrift.TCompactProtocol, do func(id int16, kind thrift.TType) error) error {
	ctx := context.Background()
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, kind, id, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		if kind == thrift.STOP {
			return p.ReadStructEnd(ctx)
		}
		if err := do(id, kind); err != nil {
			return err
		}
	}
}

// bytes writes the head of a dictionary's page.
func (h pageHead) bytes() ([]byte, error) {
	ctx := context.Background()
	b := thrift.NewTMemoryBuffer()
	p := thrift.NewTCompactProtocolConf(b, nil)
	var first error
	do := func(errs ...error) {
		for _, err := range errs {
			if first == nil {
				first = err
			}
		}
	}
	number := func(id int16, v int32) {
		do(p.WriteFieldBegin(ctx, "", thrift.I32, id), p.WriteI32(ctx, v), p.WriteFieldEnd(ctx))
	}
	do(p.WriteStructBegin(ctx, ""))
	number(1, h.kind)
	number(2, h.size)
	number(3, h.size)
	do(p.WriteFieldBegin(ctx, "", thrift.STRUCT, 7), p.WriteStructBegin(ctx, ""))
	number(1, h.values)
	number(2, h.encoding)
	do(p.WriteFieldStop(ctx), p.WriteStructEnd(ctx), p.WriteFieldEnd(ctx))
	do(p.WriteFieldStop(ctx), p.WriteStructEnd(ctx), p.Flush(ctx))
	return b.Bytes(), first
}
