package parquet

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// pooledZstd is arrow's zstd with one encoder for all pages. Arrow 17 makes an
// encoder of some megabytes for every page: more than half of the memory that a
// run of small trajectories went through, and a tenth of its time.
type pooledZstd struct{ compress.Codec }

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	// A page is a megabyte; the usual window of eight would hold 16 MB for nothing.
	e, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

// zstdDecoder writes no more than there is room for: a frame says of itself how
// large it will be, and may be anything.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxPage))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

func init() {
	for _, kind := range []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Brotli} {
		if c, err := compress.GetCodec(kind); err == nil {
			compress.RegisterCodec(kind, bounded{c, kind})
		}
	}
	if c, err := compress.GetCodec(compress.Codecs.Zstd); err == nil {
		compress.RegisterCodec(compress.Codecs.Zstd, pooledZstd{c})
	}
}

// bounded is a codec of arrow's that writes no more than the page's header said,
// which the budget has let pass.
type bounded struct {
	compress.Codec
	kind compress.Compression
}

// Decode implements compress.Codec, which has no errors: guard catches the panic.
func (b bounded) Decode(dst, src []byte) []byte {
	if len(dst) == 0 { // arrow's would make as much room as the data want
		return dst
	}
	if b.kind == compress.Codecs.Snappy {
		if n, _ := binary.Uvarint(src); n > uint64(len(dst)) {
			panic(fmt.Errorf("a page of %d bytes, whose header says %d", n, len(dst)))
		}
	}
	return b.Codec.Decode(dst, src)
}

// Decode implements compress.Codec.
func (p pooledZstd) Decode(dst, src []byte) []byte {
	out, err := zstdDecoder().DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		panic(err)
	}
	return out
}

// EncodeLevel implements compress.Codec; an encoder may be used by many at once.
func (p pooledZstd) EncodeLevel(dst, src []byte, level int) []byte {
	if level != compress.DefaultCompressionLevel {
		return p.Codec.EncodeLevel(dst, src, level)
	}
	return zstdEncoder().EncodeAll(src, dst[:0])
}
