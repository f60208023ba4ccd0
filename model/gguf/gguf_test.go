package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"agentcli/internal/malformed"
)

// builder writes small files by hand, so that each test can lie where it wants.
type builder struct{ bytes.Buffer }

func (b *builder) put(vs ...any) *builder {
	for _, v := range vs {
		switch v := v.(type) {
		case string:
			binary.Write(b, binary.LittleEndian, uint64(len(v)))
			b.WriteString(v)
		default:
			binary.Write(b, binary.LittleEndian, v)
		}
	}
	return b
}

func header(nt, nkv uint64) *builder {
	b := &builder{}
	b.WriteString("GGUF")
	return b.put(uint32(3), nt, nkv)
}

func good() []byte {
	b := header(2, 4)
	b.put("general.architecture", uint32(String), "llama")
	b.put("a.strings", uint32(Array), uint32(String), uint64(2), "x", "yy")
	b.put("a.ints", uint32(Array), uint32(Int32), uint64(3), int32(-1), int32(2), int32(3))
	b.put("a.float", uint32(Float32), float32(1.5))
	b.put("w", uint32(2), uint64(2), uint64(3), uint32(F32), uint64(0))
	b.put("q", uint32(1), uint64(32), uint32(Q8_0), uint64(32))
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	b.Write(make([]byte, 32+34))
	return b.Bytes()
}

func TestParse(t *testing.T) {
	f, err := Parse("f.gguf", good())
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := f.Str("general.architecture"); s != "llama" {
		t.Errorf("architecture %q", s)
	}
	if s := f.Strings("a.strings"); len(s) != 2 || s[1] != "yy" {
		t.Errorf("strings %q", s)
	}
	if n := f.Ints("a.ints"); len(n) != 3 || n[0] != -1 {
		t.Errorf("ints %v", n)
	}
	if x, ok := f.Float("a.float"); !ok || x != 1.5 {
		t.Errorf("float %v", x)
	}
	w, ok := f.Lookup("w")
	if !ok || w.Size != 24 || len(f.Data(w)) != 24 {
		t.Errorf("tensor %+v", w)
	}
	q, _ := f.Lookup("q")
	if q.Size != 34 || q.Type.String() != "Q8_0" {
		t.Errorf("tensor %+v", q)
	}
}

func TestHostile(t *testing.T) {
	nested := header(0, 1).put("deep", uint32(Array))
	for range 40 {
		nested.put(uint32(Array), uint64(1))
	}
	pad := func(b *builder) []byte { b.Write(make([]byte, 256)); return b.Bytes() }
	tests := []struct {
		name, field string
		kind        error
		b           []byte
	}{
		{"empty", "", ErrNotGGUF, nil},
		{"magic", "", ErrNotGGUF, []byte("PK\x03\x04....")},
		{"version", "version", malformed.Unsupported, []byte("GGUF\x09\x00\x00\x00")},
		{"big endian", "byte order", malformed.Unsupported, []byte("GGUF\x00\x00\x00\x03")},
		{"short", "tensor count", malformed.Truncated, []byte("GGUF\x03\x00\x00\x00")},
		{"kv count", "metadata count", malformed.Truncated, header(0, 1<<60).Bytes()},
		{"tensor count", "tensor count", malformed.Truncated, header(1<<64-1, 0).Bytes()},
		{"key length", "key of metadata entry 0", malformed.Truncated, pad(header(0, 1).put(uint64(1 << 40)))},
		{"string length", "k", malformed.Truncated, pad(header(0, 1).put("k", uint32(String), uint64(1<<62)))},
		{"array count", "k", malformed.Truncated, pad(header(0, 1).put("k", uint32(Array), uint32(Uint8), uint64(1<<62)))},
		{"string array count", "k", malformed.Truncated, pad(header(0, 1).put("k", uint32(Array), uint32(String), uint64(1<<40)))},
		{"value type", "k", malformed.Unsupported, pad(header(0, 1).put("k", uint32(77)))},
		{"element type", "k", malformed.Unsupported, pad(header(0, 1).put("k", uint32(Array), uint32(77), uint64(1)))},
		{"nested", "deep", malformed.Unsupported, nested.Bytes()},
		{"key twice", "k", malformed.Duplicate, pad(header(0, 2).put("k", uint32(Bool), uint8(1), "k", uint32(Bool), uint8(1)))},
		{"alignment", "general.alignment", malformed.Range, pad(header(0, 1).put("general.alignment", uint32(Uint32), uint32(3)))},
		{"dims", "tensor w", malformed.Range, pad(header(1, 0).put("w", uint32(99)))},
		{"product", "tensor w", malformed.Range, pad(header(1, 0).put("w", uint32(2), uint64(1<<40), uint64(1<<40), uint32(F32), uint64(0)))},
		{"tensor type", "tensor w", malformed.Unsupported, pad(header(1, 0).put("w", uint32(1), uint64(4), uint32(255), uint64(0)))},
		{"block", "tensor w", malformed.Mismatch, pad(header(1, 0).put("w", uint32(1), uint64(33), uint32(Q4_1), uint64(0)))},
		{"unaligned", "tensor w", malformed.Mismatch, pad(header(1, 0).put("w", uint32(1), uint64(4), uint32(F32), uint64(4)))},
		{"past the end", "tensor w", malformed.Truncated,
			pad(header(1, 0).put("w", uint32(1), uint64(4), uint32(F32), uint64(1<<40)))},
		{"offset wraps", "tensor w", malformed.Truncated, pad(header(1, 0).put("w", uint32(1), uint64(4), uint32(F32), uint64(1<<64-32)))},
		{"overlap", "tensor v", malformed.Mismatch,
			pad(header(2, 0).put("w", uint32(1), uint64(4), uint32(F32), uint64(0), "v", uint32(1), uint64(4), uint32(F32), uint64(0)))},
		{"tensor twice", "tensor w", malformed.Duplicate,
			pad(header(2, 0).put("w", uint32(1), uint64(4), uint32(F32), uint64(0), "w", uint32(1), uint64(4), uint32(F32), uint64(32)))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("bad.gguf", tt.b)
			if err == nil {
				t.Fatal("no error")
			}
			s := err.Error()
			if !strings.HasPrefix(s, "bad.gguf: ") || strings.Contains(s, "\n") {
				t.Errorf("%q is not one line that begins with the path", s)
			}
			if field := malformed.Facts(err).Field; field != tt.field || !errors.Is(err, tt.kind) {
				t.Errorf("%v: field %q, want %q and the kind %q", err, field, tt.field, tt.kind)
			}
		})
	}
}

func TestEveryTruncationFails(t *testing.T) {
	b := good()
	for i := range b {
		if _, err := Parse("cut.gguf", b[:i]); err == nil {
			t.Fatalf("a file cut to %d of %d bytes was accepted", i, len(b))
		}
	}
}

func TestHostileAllocatesLittle(t *testing.T) {
	b := header(1<<58, 1<<58).put(make([]byte, 4096)).Bytes()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Parse("f", b)
	runtime.ReadMemStats(&after)
	if d := after.TotalAlloc - before.TotalAlloc; d > 1<<20 {
		t.Errorf("%d bytes were allocated", d)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "a.gguf")
	if err := os.WriteFile(p, good(), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.gguf")
	if err := os.Symlink(p, link); err != nil {
		t.Skip("no symbolic links here")
	}
	f, err := Open(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !Sniff(link) || Sniff(dir) {
		t.Error("Sniff")
	}
	if _, err := Open(dir); err == nil {
		t.Error("a folder was opened")
	}
	empty := filepath.Join(dir, "empty.gguf")
	os.WriteFile(empty, nil, 0o600)
	if _, err := Open(empty); !errors.Is(err, ErrNotGGUF) {
		t.Errorf("empty file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good())
	f.Add(header(1, 1).Bytes())
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Parse("f", b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		for _, x := range g.Tensors {
			if uint64(len(g.Data(x))) != x.Size {
				t.Errorf("tensor %s", x.Name)
			}
		}
	})
}

// A tensor of any type that is cut off, or whose rows do not divide into blocks,
// is named.
func TestEveryTypeIsChecked(t *testing.T) {
	for kind, l := range layouts {
		file := func(values uint64, data int) []byte {
			b := header(1, 0).put("w", uint32(1), values, uint32(kind), uint64(0))
			for b.Len()%32 != 0 {
				b.WriteByte(0)
			}
			b.Write(make([]byte, data))
			return b.Bytes()
		}
		f, err := Parse("f.gguf", file(uint64(2*l.block), int(2*l.size)))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if w, _ := f.Lookup("w"); w.Size != uint64(2*l.size) {
			t.Errorf("%s: %d bytes for two blocks of %d", kind, w.Size, l.size)
		}
		_, err = Parse("f.gguf", file(uint64(2*l.block), int(2*l.size)-1))
		if want := (malformed.Error{Path: "f.gguf", Field: "tensor w", Kind: malformed.Truncated}); malformed.Facts(err) != want {
			t.Errorf("%s cut off: %v", kind, err)
		}
		if l.block == 1 {
			continue
		}
		_, err = Parse("f.gguf", file(uint64(l.block)+1, int(2*l.size)))
		if want := (malformed.Error{Path: "f.gguf", Field: "tensor w", Kind: malformed.Mismatch}); malformed.Facts(err) != want {
			t.Errorf("%s with a part of a block: %v", kind, err)
		}
	}
}
