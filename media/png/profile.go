package png

import (
	"bytes"
	"encoding/hex"
	"io"

	"github.com/klauspost/compress/zlib"
)

// mostProfile bounds the EXIF block of a compressed text.
const mostProfile = 1 << 20

// rawProfile is the EXIF block that ImageMagick used to write as a text: a line "exif", its
// length, and hexadecimal lines. It is nil for any other text.
func rawProfile(chunk string, body []byte) []byte {
	text, ok := bytes.CutPrefix(body, []byte("Raw profile type exif\x00"))
	if !ok {
		return nil
	}
	if chunk == "zTXt" {
		if len(text) == 0 || text[0] != 0 {
			return nil
		}
		z, err := zlib.NewReader(bytes.NewReader(text[1:]))
		if err != nil {
			return nil
		}
		if text, err = io.ReadAll(io.LimitReader(z, mostProfile)); err != nil {
			return nil
		}
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) < 4 {
		return nil
	}
	digits := bytes.Join(lines[3:], nil)
	block := make([]byte, hex.DecodedLen(len(digits)))
	n, err := hex.Decode(block, digits)
	if err != nil {
		return nil
	}
	return block[:n]
}
