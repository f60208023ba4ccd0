package npy

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

// Of NumPy 2.4: np.save of np.array([[[1, 2]], [[3, -1]], [[255, 7]]], np.int32), its first 128 bytes in base64.
const header = "k05VTVBZAQB2AHsnZGVzY3InOiAnPGk0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDMsIDEsIDIpLCB9" +
	"ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAo="

func TestFilesAreThoseOfNumPy(t *testing.T) {
	want, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	values := []int32{1, 2, 3, -1, 255, 7}
	got := Encode([]int{3, 1, 2}, values)
	if !strings.HasPrefix(string(got), string(want)) || len(got) != 128+24 {
		t.Fatalf("%q, want it to begin with %q", got, want)
	}
	shape, back, err := Decode(got)
	if err != nil || !slices.Equal(shape, []int{3, 1, 2}) || !slices.Equal(back, []int64{1, 2, 3, -1, 255, 7}) {
		t.Errorf("%v, %v, %v", shape, back, err)
	}
	if shape, back, err = Decode(Encode([]int{2}, values[:2])); err != nil || !slices.Equal(shape, []int{2}) || len(back) != 2 {
		t.Errorf("%v, %v, %v", shape, back, err)
	}
}

func file(head string, data ...byte) []byte {
	b := append([]byte(magic), 1, 0, byte(len(head)), byte(len(head)>>8))
	return append(append(b, head...), data...)
}

func TestWidthsAreReadWithTheirSigns(t *testing.T) {
	for _, c := range []struct {
		kind string
		data []byte
		want int64
	}{
		{"|i1", []byte{0xff}, -1}, {"|u1", []byte{0xff}, 255}, {"<i2", []byte{0xfe, 0xff}, -2}, {"<u2", []byte{0xfe, 0xff}, 65534},
		{"<u4", []byte{0, 0, 0, 0x80}, 1 << 31}, {"<i8", slices.Repeat([]byte{0xff}, 8), -1},
	} {
		shape, got, err := Decode(file("{'descr': '"+c.kind+"', 'fortran_order': False, 'shape': (), }", c.data...))
		if err != nil || len(shape) != 0 || !slices.Equal(got, []int64{c.want}) {
			t.Errorf("%s: %v, %v, %v", c.kind, shape, got, err)
		}
	}
}

func TestOtherFilesAreErrors(t *testing.T) {
	good := "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }"
	for name, b := range map[string][]byte{
		"nothing":       nil,
		"no magic":      []byte("PK\x03\x04 0123456789"),
		"short header":  file(good)[:20],
		"floats":        file(strings.Replace(good, "i4", "f4", 1), make([]byte, 8)...),
		"big endian":    file(strings.Replace(good, "<", ">", 1), make([]byte, 8)...),
		"Fortran order": file(strings.Replace(good, "False", "True", 1), make([]byte, 8)...),
		"short":         file(good, make([]byte, 7)...),
		"long":          file(good, make([]byte, 9)...),
		"huge shape":    file(strings.Replace(good, "1, 2", "4294967296, 4294967296, 0", 1)),
		"no shape":      file("{'descr': '<i4', 'fortran_order': False}", make([]byte, 8)...),
		"u8 too large":  file(strings.Replace(strings.Replace(good, "<i4", "<u8", 1), "1, 2", "1", 1), slices.Repeat([]byte{0xff}, 8)...),
		"version 2 cut": append([]byte(magic), 2, 0, 1, 0),
	} {
		if shape, values, err := Decode(b); err == nil {
			t.Errorf("%s: read as %v %v", name, shape, values)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode([]int{1, 2}, []int32{3, 4}))
	f.Add(file("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		shape, values, err := Decode(b)
		n := 1
		for _, size := range shape {
			n *= size
		}
		if err == nil && (n != len(values) || len(values) > len(b)) {
			t.Errorf("shape %v has %d values", shape, len(values))
		}
	})
}
