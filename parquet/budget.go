package parquet

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// Bounds of what a file may make us allocate at once. A page's header says how
// large the page will be, and arrow allocates that before it looks at the page.
const (
	minPage = 64 << 20 // that any file may have
	maxPage = 1 << 30  // that no file may have more than
	ratio   = 256      // of a page to the whole file, in between

	maxScale = 1000 // digits of a decimal that are written out
)

// budget is an allocator that refuses what no honest page takes: it panics, as
// arrow's own do, and guard makes an error of it.
type budget struct {
	memory.Allocator
	most int
}

func newBudget(size int64) *budget {
	most := int64(maxPage)
	if size < maxPage/ratio {
		most = max(size*ratio, minPage)
	}
	return &budget{memory.NewGoAllocator(), int(most)}
}

func (b *budget) check(size int) {
	if size < 0 || size > b.most {
		panic(fmt.Errorf("a page of %d bytes; the most for a file of this size is %d", size, b.most))
	}
}

// Allocate implements memory.Allocator.
func (b *budget) Allocate(size int) []byte {
	b.check(size)
	return b.Allocator.Allocate(size)
}

// Reallocate implements memory.Allocator.
func (b *budget) Reallocate(size int, old []byte) []byte {
	b.check(size)
	return b.Allocator.Reallocate(size, old)
}

// checkChunks holds the places of the columns against the file: arrow allocates a
// chunk's length before it reads it.
func checkChunks(r *file.Reader, size int64) error {
	for g := range r.NumRowGroups() {
		group := r.MetaData().RowGroup(g)
		if group.NumRows() < 0 {
			return fmt.Errorf("%w: row group %d has %d rows", ErrNotParquet, g, group.NumRows())
		}
		for c := range group.NumColumns() {
			chunk, err := group.ColumnChunk(c)
			if err != nil {
				return fmt.Errorf("%w: its index is damaged (%w)", ErrNotParquet, err)
			}
			start, length := chunk.DataPageOffset(), chunk.TotalCompressedSize()
			if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
				start = min(start, chunk.DictionaryPageOffset())
			}
			if start < 0 || length < 0 || length > size || start > size-length || chunk.NumValues() < 0 {
				return fmt.Errorf("%w: column %d of row group %d lies outside of the file", ErrNotParquet, c, g)
			}
		}
	}
	return nil
}
