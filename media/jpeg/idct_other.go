//go:build !amd64

package jpeg

var vectors = false

func idct(b *[64]int16, quant *[64]uint16, out []byte, stride int) { idctGo(b, quant, out, stride) }
