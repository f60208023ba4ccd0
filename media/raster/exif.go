package raster

import (
	"bytes"
	"encoding/binary"
	"regexp"
)

var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)

// Orientation reads the orientation of an image, 1 to 8, from its EXIF block (a TIFF file,
// with or without "Exif\0\0" before it) or, where that has none, from its XMP packet. It is
// 1 where neither says, or the block is damaged: such a block is no reason to refuse pixels.
func Orientation(exif, xmp []byte) int {
	if n := exifOrientation(bytes.TrimPrefix(exif, []byte("Exif\x00\x00"))); n != 0 {
		return n
	}
	if m := xmpOrientation.FindSubmatch(xmp); m != nil {
		return int(m[1][0] - '0')
	}
	return 1
}

// exifOrientation is 0 where the tag is not there.
func exifOrientation(b []byte) int {
	const tagOrientation, typeShort, typeLong = 0x0112, 3, 4
	if len(b) < 8 {
		return 0
	}
	var order binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 0
	}
	at := uint64(order.Uint32(b[4:]))
	if at+2 > uint64(len(b)) {
		return 0
	}
	entries := b[at+2:]
	for range order.Uint16(b[at:]) {
		if len(entries) < 12 {
			return 0
		}
		if order.Uint16(entries) == tagOrientation && order.Uint32(entries[4:]) == 1 {
			switch order.Uint16(entries[2:]) {
			case typeShort:
				return int(order.Uint16(entries[8:]))
			case typeLong:
				return int(order.Uint32(entries[8:]) & 0xffff)
			}
		}
		entries = entries[12:]
	}
	return 0
}
