package album

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/media"
	"agentcli/traj"
)

// black is a black grey PNG of one bit a pixel: a small file with many pixels.
func black(t *testing.T, width, height int) []byte {
	t.Helper()
	var b, body bytes.Buffer
	w, err := zlib.NewWriterLevel(&body, zlib.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, 1+(width+7)/8)
	for range height {
		if _, err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	chunk := func(name string, data []byte) {
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
		named := append([]byte(name), data...)
		b.Write(named)
		b.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(named)))
	}
	if _, err := io.WriteString(&b, "\x89PNG\r\n\x1a\n"); err != nil {
		t.Fatal(err)
	}
	size := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	chunk("IHDR", append(size, 1, 0, 0, 0, 0))
	chunk("IDAT", body.Bytes())
	chunk("IEND", nil)
	return b.Bytes()
}

// recorded is an image as a row of a trajectory file has it.
func recorded(file []byte, width, height int) traj.Image {
	return traj.Image{Hash: Hash(file), Bytes: file, Width: width, Height: height}
}

func TestAFileThatIsNotAsItsRowSaysIsNotDecoded(t *testing.T) {
	huge, small := black(t, 10_000, 10_000), black(t, 40, 30)
	crop := traj.Image{Hash: Hash([]byte("crop")), Width: 8, Height: 8}
	crop.Crop = &traj.Crop{Source: Hash(huge), File: huge, Box: [4]int{0, 0, 8, 8}}
	wide := crop
	wide.Width, wide.Crop = 9, &traj.Crop{Source: Hash(small), File: small, Box: [4]int{0, 0, 8, 8}}
	for name, c := range map[string]struct {
		im   traj.Image
		kind malformed.Kind
	}{
		"another size":                    {recorded(small, 672, 672), malformed.Mismatch},
		"sides exchanged":                 {recorded(small, 30, 40), malformed.Mismatch},
		"too large, with another size":    {recorded(huge, 672, 672), malformed.Range},
		"too large":                       {recorded(huge, 10_000, 10_000), malformed.Range},
		"too large, of unknown size":      {recorded(huge, 0, 0), malformed.Range},
		"a crop of a file that is so":     {crop, malformed.Range},
		"a crop of another size than box": {wide, malformed.Mismatch},
	} {
		pixels, err := Pixels(&c.im)
		if err == nil {
			t.Errorf("%s: decoded to %d × %d", name, pixels.Width, pixels.Height)
			continue
		}
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.im.Hash[:12]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want kind %v and the hash on one line", name, err, c.kind)
		}
	}
	for name, im := range map[string]traj.Image{"its size": recorded(small, 40, 30), "unknown size": recorded(small, 0, 0)} {
		if pixels, err := Pixels(&im); err != nil || pixels.Width != 40 || pixels.Height != 30 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASizeIsThatOfTheTurnedImage(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 30))); err != nil {
		t.Fatal(err)
	}
	// An eXIf chunk before IEND: big-endian TIFF with the tag Orientation, 6.
	exif := []byte("eXIfMM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00")
	file := slices.Clone(b.Bytes()[:b.Len()-12])
	file = binary.BigEndian.AppendUint32(file, uint32(len(exif)-4))
	file = binary.BigEndian.AppendUint32(append(file, exif...), crc32.ChecksumIEEE(exif))
	file = append(file, b.Bytes()[b.Len()-12:]...)
	turned := recorded(file, 30, 40)
	if pixels, err := Pixels(&turned); err != nil || pixels.Width != 30 || pixels.Height != 40 {
		t.Errorf("30 × 40: %v", err)
	}
	plain := recorded(file, 40, 30)
	if _, err := Pixels(&plain); !errors.Is(err, malformed.Mismatch) {
		t.Errorf("40 × 30: %v", err)
	}
}

func TestARunMayAllowMorePixels(t *testing.T) {
	defer mostPixels.Store(mostPixels.Load())
	const side = 8_100 // 65.6 million pixels
	file := black(t, side, side)
	im, err := Open(file, "", media.Limits{Pixels: side * side})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Pixels(&im); !errors.Is(err, malformed.Range) {
		t.Errorf("without AllowPixels: %v", err)
	}
	AllowPixels(side * side)
	AllowPixels(0)
	if _, err := Pixels(&im); err != nil {
		t.Errorf("with AllowPixels: %v", err)
	}
}
