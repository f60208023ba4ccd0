package jpeg

// twiceBothAVX2 is the inner part of twiceBoth: 32 bytes of out from 16 samples each time,
// blocks times. near, far and out point at the second sample and its first byte of output;
// a sample before and one behind are read.
//
//go:noescape
func twiceBothAVX2(out, near, far *byte, blocks int)

// toRGBAVX2 is fromYCbCr for n pixels, a multiple of 16.
//
//go:noescape
func toRGBAVX2(dst, luma, cb, cr *byte, n int)

// twiceBothVector does as much of twiceBoth as the processor has vectors for, from sample 1
// on, and gives the first sample that is left.
func twiceBothVector(out, near, far []byte) int {
	blocks := (len(near) - 2) / 16
	if !vectors || blocks < 1 {
		return 1
	}
	_, _ = far[len(near)-1], out[2*len(near)-1]
	twiceBothAVX2(&out[2], &near[1], &far[1], blocks)
	return 1 + 16*blocks
}

// toRGBVector converts as many pixels as the processor has vectors for, and says how many.
func toRGBVector(dst, luma, cb, cr []byte) int {
	n := len(dst) / 3 &^ 15
	if !vectors || n == 0 {
		return 0
	}
	_, _, _ = luma[n-1], cb[n-1], cr[n-1]
	toRGBAVX2(&dst[0], &luma[0], &cb[0], &cr[0], n)
	return n
}
