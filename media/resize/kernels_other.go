package resize

func (w *weights) row(dst, src []byte) { w.rowGo(dst, src) }

func (w *weights) column(dst, src []byte, stride int, k, sums []int32) {
	w.columnGo(dst, src, stride, k, sums)
}
