package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zlib"

	"agentcli/internal/malformed"
	"agentcli/internal/safego"
)

// checkDecode holds what comes of any bytes at all.
func checkDecode(t testing.TB, file []byte) {
	const most = 1 << 20
	m, err := Decode(file, Limits{Pixels: most})
	var panicked *safego.Panic
	switch {
	case errors.As(err, &panicked):
		t.Errorf("%v\n%s", err, panicked.Stack)
	case err == nil && (m.Width < 1 || m.Height < 1 || m.Width*m.Height > most || len(m.Pix) != 3*m.Width*m.Height):
		t.Errorf("%d × %d pixels, %d bytes", m.Width, m.Height, len(m.Pix))
	case err != nil && (malformed.Facts(err).Kind == "" || strings.ContainsAny(err.Error(), "\n\x00\x1b")):
		t.Errorf("%q is no error of one line with a kind", err)
	}
	h, herr := ReadHeader(file, Limits{Pixels: most})
	switch {
	case errors.As(herr, &panicked):
		t.Errorf("the header: %v\n%s", herr, panicked.Stack)
	case err == nil && (herr != nil || h.Width != m.Width || h.Height != m.Height):
		t.Errorf("the header says %+v (%v), the image has %d × %d pixels", h, herr, m.Width, m.Height)
	case herr != nil && (malformed.Facts(herr).Kind == "" || strings.ContainsAny(herr.Error(), "\n\x00\x1b")):
		t.Errorf("%q is no error of one line with a kind", herr)
	}
}

// Cut files end in an error, or in all pixels where only what follows them is cut; flipped
// bits in neither more nor less than an image or an error.
func TestCutAndDamagedFilesPanicNowhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, want := range hashes(t) {
		file := read(t, name)
		for range 60 {
			cut := file[:rng.IntN(len(file))]
			checkDecode(t, cut)
			m, err := Decode(cut, Limits{})
			if err == nil && m.Hash() != want[2] && m.Width*m.Height > 0 && filepath.Ext(name) != ".png" && filepath.Ext(name) != ".webp" {
				t.Errorf("%s cut to %d of %d bytes is another image", name, len(cut), len(file))
			}
			damaged := bytes.Clone(file)
			for range 1 + rng.IntN(4) {
				damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
			}
			checkDecode(t, damaged)
		}
	}
}

// chunk is a chunk of a PNG.
func chunk(name string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = append(append(b, name...), body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

func pngOf(width, height uint32, depth, colour byte, data []byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(data)
	w.Close()
	b := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", append(head, depth, colour, 0, 0, 0))...)
	return append(append(b, chunk("IDAT", z.Bytes())...), chunk("IEND", nil)...)
}

// gifOf is a GIF whose screen and frame have the given sizes.
func gifOf(screenW, screenH, w, h uint16, codes []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("GIF89a"), le.AppendUint16(le.AppendUint16(nil, screenW), screenH)...)
	b = append(b, 0, 0, 0, ',', 0, 0, 0, 0)
	b = append(le.AppendUint16(le.AppendUint16(b, w), h), 0, 8)
	return append(append(b, codes...), 0, ';')
}

func jpegOf(width, height uint16, scans int) []byte {
	be := binary.BigEndian
	b := []byte("\xff\xd8\xff\xdb\x00\x43\x00" + strings.Repeat("\x01", 64))
	b = append(be.AppendUint16(be.AppendUint16(append(b, "\xff\xc2\x00\x0b\x08"...), height), width), "\x01\x01\x11\x00"...)
	// One DC code and one AC code of a bit: a difference of 0, and the longest run of empty blocks.
	b = append(b, "\xff\xc4\x00\x14\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	b = append(b, "\xff\xc4\x00\x14\x10\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xe0"...)
	b = append(b, "\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00"...)
	b = append(b, make([]byte, (int(width)+7)/8*((int(height)+7)/8)/8+1)...)
	for i := range scans {
		b = append(b, "\xff\xda\x00\x08\x01\x01\x00"...)
		b = append(b, byte(1+i%63), byte(1+i%63), 0)
		// Enough runs of 16,384 blocks: 15 bits each.
		b = append(b, make([]byte, 2*((int(width)+7)/8*((int(height)+7)/8)/16384+2))...)
	}
	return append(b, 0xff, 0xd9)
}

// Each file claims much and holds little, or nothing of what it says. The time and the
// memory are those of the file, not of its claim.
func TestHostileFilesAreRefusedWithTheirClaimsUnpaid(t *testing.T) {
	le := binary.LittleEndian
	bmp := func(w, h uint32, bits uint16, compression uint32) []byte {
		b := append([]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00"), le.AppendUint32(le.AppendUint32(nil, w), h)...)
		b = le.AppendUint32(le.AppendUint16(append(b, 1, 0), bits), compression)
		return append(b, make([]byte, 20)...)
	}
	riff := func(body []byte) []byte {
		return append(append(le.AppendUint32([]byte("RIFF"), uint32(len(body)+4)), "WEBP"...), body...)
	}
	vp8 := func(w, h uint16) []byte {
		body := le.AppendUint16(le.AppendUint16([]byte("\x10\x02\x00\x9d\x01\x2a"), w), h)
		return append(le.AppendUint32([]byte("VP8 "), uint32(len(body)+40)), append(body, make([]byte, 40)...)...)
	}
	vp8x := "VP8X\x0a\x00\x00\x00\x00\x00\x00\x00"
	clears := append([]byte{252}, bytes.Repeat([]byte("\x00\x01\x02\x04\x08\x10\x20\x40\x80"), 28)...)
	loop := gifOf(5, 5, 5, 5, nil)
	for name, c := range map[string]struct {
		file []byte
		kind malformed.Kind
	}{
		"nothing":                     {nil, malformed.Truncated},
		"text":                        {[]byte("<svg></svg>"), malformed.Unsupported},
		"signatures alone, PNG":       {[]byte("\x89PNG\r\n\x1a\n"), malformed.Truncated},
		"signatures alone, JPEG":      {[]byte("\xff\xd8\xff"), malformed.Truncated},
		"signatures alone, GIF":       {[]byte("GIF89a"), malformed.Truncated},
		"signatures alone, WebP":      {[]byte("RIFF\x00\x00\x00\x00WEBP"), malformed.Truncated},
		"signatures alone, BMP":       {[]byte("BM"), malformed.Truncated},
		"PNG of 65535²":               {pngOf(65535, 65535, 8, 2, make([]byte, 1000)), malformed.Range},
		"PNG of 2³² − 1":              {pngOf(1<<32-1, 1<<32-1, 8, 2, nil), malformed.Range},
		"PNG of no pixels":            {pngOf(0, 5, 8, 2, nil), malformed.Range},
		"PNG of 7900², 1 kB":          {pngOf(7900, 7900, 8, 2, make([]byte, 100000)), malformed.Truncated},
		"PNG of 1 × 65535, no rows":   {pngOf(1, 65535, 16, 6, []byte{0}), malformed.Truncated},
		"PNG with a wrong filter":     {pngOf(1, 1, 8, 2, []byte{9, 1, 2, 3}), malformed.Range},
		"PNG of depth 3":              {pngOf(1, 1, 3, 0, []byte{0, 1}), malformed.Unsupported},
		"PNG without palette":         {pngOf(1, 1, 8, 3, []byte{0, 1}), malformed.Range},
		"GIF of 65535²":               {gifOf(65535, 65535, 1, 1, []byte{2, 0, 1}), malformed.Range},
		"GIF whose frame is 65535²":   {gifOf(1, 1, 65535, 65535, []byte{2, 0, 1}), malformed.Range},
		"GIF of 7900², 20 bytes":      {gifOf(1, 1, 7900, 7900, []byte{2, 0, 1}), malformed.Truncated},
		"GIF of clear codes for ever": {gifOf(9, 9, 9, 9, clears), malformed.Truncated},
		"GIF with a code of itself":   {gifOf(9, 9, 9, 9, []byte{3, 0, 0xff, 0xff}), malformed.Syntax},
		"GIF without an image":        {[]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;"), malformed.Missing},
		"GIF of extensions":           {append(loop[:13:13], bytes.Repeat([]byte("!\xf9\x00"), 1e5)...), malformed.Truncated},
		"BMP of 65535²":               {bmp(65535, 65535, 24, 0), malformed.Range},
		"BMP of 7900²":                {bmp(7900, 7900, 24, 0), malformed.Truncated},
		"BMP of 7900², run lengths":   {bmp(7900, 7900, 8, 1), malformed.Truncated},
		"BMP of 1 × −2³¹":             {bmp(1, 1<<31, 24, 0), malformed.Range},
		"BMP with a JPEG in it":       {bmp(5, 5, 24, 4), malformed.Unsupported},
		"JPEG of 65535²":              {jpegOf(65535, 65535, 0), malformed.Range},
		"JPEG of 7900², 300 bytes":    {jpegOf(7900, 7900, 0)[:200], malformed.Truncated},
		"JPEG of 900 scans":           {jpegOf(4000, 4000, 900), malformed.Range},
		"JPEG without a frame":        {[]byte("\xff\xd8\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"), malformed.Missing},
		"JPEG of 12 bits":             {[]byte("\xff\xd8\xff\xc1\x00\x0b\x0c\x00\x08\x00\x08\x01\x01\x11\x00\xff\xd9"), malformed.Unsupported},
		"JPEG of arithmetic codes":    {[]byte("\xff\xd8\xff\xc9\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00\xff\xd9"), malformed.Unsupported},
		"JPEG without loss":           {[]byte("\xff\xd8\xff\xc3\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00\xff\xd9"), malformed.Unsupported},
		"WebP of 16383²":              {riff(vp8(16383, 16383)), malformed.Range},
		"WebP of 7900², 60 bytes":     {riff(vp8(7900, 7900)), malformed.Truncated},
		"WebP of 2²⁴ squared":         {riff([]byte(vp8x + strings.Repeat("\xff", 6))), malformed.Range},
		"WebP of a canvas alone":      {riff([]byte(vp8x + strings.Repeat("\x01\x00\x00", 2))), malformed.Missing},
		"WebP of two sizes":           {riff(append([]byte(vp8x+strings.Repeat("\x01\x00\x00", 2)), vp8(5, 5)...)), malformed.Mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := Decode(c.file, Limits{})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if got := malformed.Facts(err).Kind; got != c.kind {
				t.Errorf("%v, of kind %q; want %q", err, got, c.kind)
			}
			if took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			// 16 million pixels that 900 scans go over are there: their first scan holds them.
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 4<<20+uint64(64*len(c.file)) && !strings.Contains(name, "scans") {
				t.Errorf("%d bytes of memory for a file of %d", spent, len(c.file))
			}
		})
	}
}

func TestLimitsAreKept(t *testing.T) {
	for name := range hashes(t) {
		file := read(t, name)
		m, err := Decode(file, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		area := m.Width * m.Height
		if _, err := Decode(file, Limits{Pixels: area, Bytes: len(file)}); err != nil {
			t.Errorf("%s at its limits: %v", name, err)
		}
		if _, err := Decode(file, Limits{Pixels: area - 1}); area > 1 && !errors.Is(err, malformed.Range) {
			t.Errorf("%s with a pixel too many: %v", name, err)
		}
		if _, err := Decode(file, Limits{Bytes: len(file) - 1}); !errors.Is(err, malformed.Range) {
			t.Errorf("%s with a byte too many: %v", name, err)
		}
	}
}

func TestAWebPWithALongPartitionIsRefusedByName(t *testing.T) {
	file := read(t, "0006.webp")
	if string(file[12:16]) != "VP8 " {
		t.Fatalf("the file begins with a chunk %q", file[12:16])
	}
	frame := append(bytes.Clone(file[20:]), make([]byte, 1<<24)...)
	long := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(12+len(frame)))
	long = binary.LittleEndian.AppendUint32(append(long, "WEBPVP8 "...), uint32(len(frame)))
	_, err := Decode(append(long, frame...), Limits{})
	if !errors.Is(err, malformed.Unsupported) {
		t.Fatalf("%v; want kind %v", err, malformed.Unsupported)
	}
	for _, word := range []string{"16 MiB", "PNG or JPEG"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v; want the words %q", err, word)
		}
	}
}
