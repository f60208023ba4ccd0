package resize

// The kernels compute what rowGo and columnGo do, to the bit, with weights of 16 bits.

// columnKernel is columnGo for rows of at least 16 bytes.
func (w *weights) columnKernel() func(dst, src []byte, y int) {
	pairs := make([]int32, (w.taps+1)/2)
	return func(dst, src []byte, y int) {
		k := w.of(y)
		for i := range k {
			if i%2 == 0 {
				pairs[i/2] = k[i] & 0xffff
			} else {
				pairs[i/2] |= k[i] << 16
			}
		}
		_ = src[len(k)*len(dst)-1] // the kernel reads so far
		columnAVX2(&dst[0], &src[0], len(dst), len(dst), &pairs[0], len(k), w.bits)
	}
}

// rowKernel is rowGo for rows of width pixels. It works on a copy of the row with room
// behind it, since the kernel takes four pixels at a time, the last with weights of zero.
func (w *weights) rowKernel(width int) func(dst, src []byte) {
	perPixel := (w.taps + 3) / 4
	n := len(w.first)
	quads := make([]int16, 4*perPixel*n)
	offsets := make([]int32, n)
	for i := range n {
		offsets[i] = int32(3 * w.first[i])
		for k, v := range w.of(i) {
			quads[4*perPixel*i+k] = int16(v)
		}
	}
	row := make([]byte, 3*width+12*perPixel+16)
	last := make([]byte, 4)
	return func(dst, src []byte) {
		copy(row, src)
		dst = dst[:3*n]
		// The kernel writes a byte behind the last pixel: that one goes elsewhere.
		rowAVX2(&dst[0], &row[0], &offsets[0], n-1, &quads[0], perPixel, w.bits)
		rowAVX2(&last[0], &row[0], &offsets[n-1], 1, &quads[4*perPixel*(n-1)], perPixel, w.bits)
		copy(dst[3*(n-1):], last[:3])
	}
}
