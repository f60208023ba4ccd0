package jpeg

import "golang.org/x/sys/cpu"

var vectors = cpu.X86.HasAVX2

// idctAVX2 is idctGo: eight rows of eight bytes, stride apart.
//
//go:noescape
func idctAVX2(b *[64]int16, quant *[64]uint16, out *byte, stride int)

func idct(b *[64]int16, quant *[64]uint16, out []byte, stride int) {
	if !vectors {
		idctGo(b, quant, out, stride)
		return
	}
	_ = out[7*stride+7]
	idctAVX2(b, quant, &out[0], stride)
}
