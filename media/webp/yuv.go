package webp

import (
	"image"

	"agentcli/media/raster"
)

// toRGB converts a frame of 4:2:0 as libwebp does (dsp/upsampling.c, dsp/yuv.h): chroma is
// nine, three, three and one sixteenth of its four neighbours, rounded in that file's order.
func toRGB(img *raster.Image, m *image.YCbCr) {
	w, h := img.Width, img.Height
	half := (w + 1) / 2
	at := func(plane []byte, y int) []byte { return plane[y*m.CStride : y*m.CStride+half] }
	line := func(y, near, far int) {
		if y < 0 || y >= h {
			return
		}
		row(img.Pix[3*y*w:3*(y+1)*w], m.Y[y*m.YStride:y*m.YStride+w],
			at(m.Cb, near), at(m.Cr, near), at(m.Cb, far), at(m.Cr, far))
	}
	// Rows 2i−1 and 2i lie between the rows i−1 and i of chroma; those at the edges take
	// one row twice.
	last := (h+1)/2 - 1
	for i := 0; i <= last+1; i++ {
		above, below := max(i-1, 0), min(i, last)
		line(2*i-1, above, below)
		line(2*i, below, above)
	}
}

// row converts a row of pixels with its nearer and its farther row of chroma. Both colours
// are in one number, 16 bits each.
func row(dst, luma, nearU, nearV, farU, farV []byte) {
	uv := func(x int) (near, far uint32) {
		return uint32(nearU[x]) | uint32(nearV[x])<<16, uint32(farU[x]) | uint32(farV[x])<<16
	}
	n := len(luma)
	near, far := uv(0)
	pixel(dst, luma[0], (3*near+far+0x00020002)>>2)
	for x := 1; x <= (n-1)/2; x++ {
		near2, far2 := uv(x)
		sum := near + near2 + far + far2 + 0x00080008
		across := (sum + 2*(near2+far)) >> 3 // the diagonal from near2 to far
		along := (sum + 2*(near+far2)) >> 3
		pixel(dst[3*(2*x-1):], luma[2*x-1], (across+near)>>1)
		pixel(dst[3*2*x:], luma[2*x], (along+near2)>>1)
		near, far = near2, far2
	}
	if n%2 == 0 {
		pixel(dst[3*(n-1):], luma[n-1], (3*near+far+0x00020002)>>2)
	}
}

// The parts of a colour that luma and chroma have: products of 8 bits and 16, less their low
// 8 bits, with 6 bits behind the point.
var ofLuma, redOfV, greenOfU, greenOfV, blueOfU = parts()

func parts() (y, rv, gu, gv, bu [256]int32) {
	for i := range int32(256) {
		y[i] = i * 19077 >> 8
		rv[i] = i*26149>>8 - 14234
		gu[i] = 8708 - i*6419>>8
		gv[i] = i * 13320 >> 8
		bu[i] = i*33050>>8 - 17685
	}
	return y, rv, gu, gv, bu
}

// pixel converts one pixel.
func pixel(dst []byte, luma byte, uv uint32) {
	y, u, v := ofLuma[luma], byte(uv), byte(uv>>16)
	d := dst[:3]
	d[0] = clip(y + redOfV[v])
	d[1] = clip(y + greenOfU[u] - greenOfV[v])
	d[2] = clip(y + blueOfU[u])
}

func clip(v int32) byte {
	if uint32(v) >= 256<<6 {
		return byte(^v >> 31)
	}
	return byte(v >> 6)
}
