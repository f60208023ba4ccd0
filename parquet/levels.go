package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// checkedPages are the pages of a column chunk, each looked at before it is
// decoded: has it as many levels as its header says values? arrow-go reads on for
// ever where they end too early, as in a damaged file.
type checkedPages struct {
	file.PageReader
	column *schema.Column
	err    error
}

// openColumn opens a column chunk of a row group.
func openColumn(r *file.Reader, rg *file.RowGroupReader, i int) (file.ColumnChunkReader, error) {
	pages, err := rg.GetColumnPageReader(i)
	if err != nil {
		return nil, err
	}
	column := r.MetaData().Schema.Column(i)
	return file.NewColumnReader(column, &checkedPages{PageReader: pages, column: column}, memory.NewGoAllocator(), r.BufferPool()), nil
}

// Next implements file.PageReader.
func (p *checkedPages) Next() bool {
	if p.err != nil || !p.PageReader.Next() {
		return false
	}
	p.err = p.check(p.Page())
	return p.err == nil
}

// Err implements file.PageReader.
func (p *checkedPages) Err() error { return errors.Join(p.err, p.PageReader.Err()) }

func (p *checkedPages) check(page file.Page) error {
	n, data := int(page.NumValues()), page.Data()
	if n < 0 {
		return fmt.Errorf("a page says that it has %d values; the file is damaged", n)
	}
	rep, def := p.column.MaxRepetitionLevel(), p.column.MaxDefinitionLevel()
	switch page := page.(type) {
	case *file.DataPageV1:
		for _, l := range []struct {
			most     int16
			encoding parquet.Encoding
		}{{rep, page.RepetitionLevelEncoding()}, {def, page.DefinitionLevelEncoding()}} {
			if l.most == 0 {
				continue
			}
			if l.encoding != parquet.Encodings.RLE {
				return nil // of bit-packed ones arrow-go itself checks the length
			}
			if len(data) < 4 {
				return errLevels
			}
			size := int(binary.LittleEndian.Uint32(data))
			if size > len(data)-4 || levels(data[4:4+size], l.most, n) < n {
				return errLevels
			}
			data = data[4+size:]
		}
	case *file.DataPageV2:
		for _, l := range []struct {
			most int16
			size int32
		}{{rep, page.RepetitionLevelByteLen()}, {def, page.DefinitionLevelByteLen()}} {
			if l.size < 0 || int(l.size) > len(data) || (l.most > 0 && levels(data[:l.size], l.most, n) < n) {
				return errLevels
			}
			data = data[l.size:]
		}
	}
	return nil
}

var errLevels = errors.New("a page ends before its values do; the file is damaged")

// levels counts the levels in runs of Parquet's RLE and bit-packed hybrid, up to n
// of them: https://parquet.apache.org/docs/file-format/data-pages/encodings
func levels(data []byte, most int16, n int) (count int) {
	width := bits.Len16(uint16(most))
	for count < n {
		head, used := binary.Uvarint(data)
		if used <= 0 || head>>1 == 0 || head>>1 > math.MaxInt32 {
			return count
		}
		data = data[used:]
		run := int(head >> 1)
		if head&1 == 0 {
			if len(data) < (width+7)/8 {
				return count
			}
			data = data[(width+7)/8:]
		} else {
			// Groups of eight; the last may be cut off behind its last value.
			size := min(run*width, len(data))
			run = min(run*8, size*8/width)
			data = data[size:]
		}
		if run == 0 {
			return count
		}
		count += min(run, n-count)
	}
	return count
}
