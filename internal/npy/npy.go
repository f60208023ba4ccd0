// Package npy reads and writes arrays of whole numbers as NumPy's save does (NEP 1).
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	magic     = "\x93NUMPY"
	alignment = 64 // of the numbers behind the header
	maxDims   = 32 // NumPy's own
)

// Encode is the file of an array of int32 in C order.
func Encode(shape []int, values []int32) []byte {
	sizes := ""
	for _, n := range shape {
		sizes += strconv.Itoa(n) + ", "
	}
	if len(shape) > 1 {
		sizes = strings.TrimSuffix(sizes, ", ")
	}
	header := "{'descr': '<i4', 'fortran_order': False, 'shape': (" + strings.TrimSuffix(sizes, " ") + "), }"
	begin := len(magic) + 4 // of the header
	header += strings.Repeat(" ", alignment-1-(begin+len(header))%alignment) + "\n"
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	b = append(b, header...)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

var (
	descr = regexp.MustCompile(`'descr':\s*'([<|=>])([iu])([1248])'`)
	order = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	sizes = regexp.MustCompile(`'shape':\s*\(([0-9,\s]*)\)`)
)

// Is reports whether a file begins as NumPy's do.
func Is(file []byte) bool { return strings.HasPrefix(string(file[:min(len(file), len(magic))]), magic) }

// Decode reads a file of whole numbers in C order and little endian. It fails for other kinds of
// numbers, for a number beyond an int64, and where the file is longer or shorter than its header says.
func Decode(file []byte) (shape []int, values []int64, err error) {
	if !Is(file) || len(file) < len(magic)+4 {
		return nil, nil, errors.New("no file of NumPy's")
	}
	begin, length := len(magic)+4, int(binary.LittleEndian.Uint16(file[len(magic)+2:]))
	if file[len(magic)] > 1 {
		if begin += 2; len(file) < begin {
			return nil, nil, errors.New("the file ends within its header")
		}
		length = int(binary.LittleEndian.Uint32(file[len(magic)+2:]))
	}
	if length > len(file)-begin {
		return nil, nil, errors.New("the file ends within its header")
	}
	header, data := string(file[begin:begin+length]), file[begin+length:]
	kind, ordered, sized := descr.FindStringSubmatch(header), order.FindStringSubmatch(header), sizes.FindStringSubmatch(header)
	switch {
	case kind == nil || ordered == nil || sized == nil:
		return nil, nil, errors.New("the header has no whole numbers, or no shape")
	case ordered[1] == "True" || kind[1] == ">":
		return nil, nil, errors.New("the array is not in C order and little endian")
	}
	width, n := int(kind[3][0]-'0'), 1
	for _, text := range strings.Split(sized[1], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		size, err := strconv.Atoi(text)
		if err != nil || len(shape) == maxDims || size > 0 && n > len(data)/size {
			return nil, nil, fmt.Errorf("the shape (%s) does not fit the %d bytes behind the header", sized[1], len(data))
		}
		shape, n = append(shape, size), n*size
	}
	if n > len(data) || n*width != len(data) {
		return nil, nil, fmt.Errorf("the shape (%s) of numbers of %d bytes does not fit the %d bytes behind the header",
			sized[1], width, len(data))
	}
	values = make([]int64, n)
	for i := range values {
		at := data[i*width:]
		switch kind[2] + kind[3] {
		case "i1":
			values[i] = int64(int8(at[0]))
		case "u1":
			values[i] = int64(at[0])
		case "i2":
			values[i] = int64(int16(binary.LittleEndian.Uint16(at)))
		case "u2":
			values[i] = int64(binary.LittleEndian.Uint16(at))
		case "i4":
			values[i] = int64(int32(binary.LittleEndian.Uint32(at)))
		case "u4":
			values[i] = int64(binary.LittleEndian.Uint32(at))
		default:
			v := binary.LittleEndian.Uint64(at)
			if kind[2] == "u" && v > math.MaxInt64 {
				return nil, nil, fmt.Errorf("number %d is beyond 63 bits", i)
			}
			values[i] = int64(v)
		}
	}
	return shape, values, nil
}
