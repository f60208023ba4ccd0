package parquet

import (
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

func init() {
	if c, err := compress.GetCodec(compress.Codecs.Zstd); err == nil {
		compress.RegisterCodec(compress.Codecs.Zstd, pooledZstd{c})
	}
}

// EncodeLevel implements compress.Codec; an encoder may be used by many at once.
func (p pooledZstd) EncodeLevel(dst, src []byte, level int) []byte {
	if level != compress.DefaultCompressionLevel {
		return p.Codec.EncodeLevel(dst, src, level)
	}
	return zstdEncoder().EncodeAll(src, dst[:0])
}
