#include "textflag.h"

// func columnAVX2(dst, src *byte, stride, n int, pairs *int32, taps, bits int)
// Sixteen bytes at a time: two rows are interleaved as words, so that one instruction
// multiplies both and adds them. The last sixteen may overlap those before.
TEXT ·columnAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ n+24(FP), CX
	MOVQ pairs+32(FP), R9
	MOVQ taps+40(FP), R10
	MOVQ bits+48(FP), AX
	VMOVQ AX, X15
	MOVQ $1, DX
	DECQ AX
	SHLXQ AX, DX, DX
	VMOVQ DX, X14
	VPBROADCASTD X14, Y14
	XORQ BX, BX // first byte of the block

block:
	MOVQ CX, AX
	SUBQ BX, AX
	JLE  done
	CMPQ AX, $16
	JGE  whole
	LEAQ -16(CX), BX

whole:
	LEAQ (SI)(BX*1), R11 // row of this tap
	MOVQ R9, R12
	MOVQ R10, R13
	VMOVDQA Y14, Y0
	VMOVDQA Y14, Y1

pair:
	VMOVDQU (R11), X2
	VMOVDQA X2, X3
	CMPQ R13, $1
	JEQ  alone
	VMOVDQU (R11)(R8*1), X3

alone:
	VPBROADCASTD (R12), Y4
	VPUNPCKLBW X3, X2, X5
	VPUNPCKHBW X3, X2, X6
	VPMOVZXBW X5, Y5
	VPMOVZXBW X6, Y6
	VPMADDWD Y4, Y5, Y5
	VPMADDWD Y4, Y6, Y6
	VPADDD Y5, Y0, Y0
	VPADDD Y6, Y1, Y1
	LEAQ (R11)(R8*2), R11
	ADDQ $4, R12
	SUBQ $2, R13
	JG   pair

	VPSRAD X15, Y0, Y0
	VPSRAD X15, Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VPACKUSWB Y0, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPUNPCKLDQ X1, X0, X0
	VMOVDQU X0, (DI)(BX*1)
	ADDQ $16, BX
	JMP  block

done:
	VZEROUPPER
	RET

// Bytes of two pixels to words, the channels' two beside each other: of pixels 0 and 1, and
// of 2 and 3.
DATA pixels<>+0(SB)/8, $0x8004800180038000
DATA pixels<>+8(SB)/8, $0x8080808080058002
DATA pixels<>+16(SB)/8, $0x800a800780098006
DATA pixels<>+24(SB)/8, $0x80808080800b8008
GLOBL pixels<>(SB), RODATA|NOPTR, $32

// The first two of four weights in the lower half, the others in the upper one.
DATA halves<>+0(SB)/8, $0x0302010003020100
DATA halves<>+8(SB)/8, $0x0302010003020100
DATA halves<>+16(SB)/8, $0x0706050407060504
DATA halves<>+24(SB)/8, $0x0706050407060504
GLOBL halves<>(SB), RODATA|NOPTR, $32

// func rowAVX2(dst, src *byte, offsets *int32, n int, quads *int16, perPixel, bits int)
TEXT ·rowAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ offsets+16(FP), R8
	MOVQ n+24(FP), CX
	MOVQ quads+32(FP), R9
	MOVQ perPixel+40(FP), R10
	MOVQ bits+48(FP), AX
	VMOVQ AX, X15
	MOVQ $1, DX
	DECQ AX
	SHLXQ AX, DX, DX
	VMOVQ DX, X14
	VPBROADCASTD X14, X14
	VMOVDQU pixels<>(SB), Y13
	VMOVDQU halves<>(SB), Y12
	TESTQ CX, CX
	JLE   end

pixel:
	MOVLQSX (R8), R11
	ADDQ SI, R11
	MOVQ R10, R12
	VPXOR Y0, Y0, Y0

four:
	VBROADCASTI128 (R11), Y1
	VPBROADCASTQ (R9), Y2
	VPSHUFB Y13, Y1, Y1
	VPSHUFB Y12, Y2, Y2
	VPMADDWD Y2, Y1, Y1
	VPADDD Y1, Y0, Y0
	ADDQ $12, R11
	ADDQ $8, R9
	DECQ R12
	JNZ  four

	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X0
	VPADDD X14, X0, X0
	VPSRAD X15, X0, X0
	VPACKSSDW X0, X0, X0
	VPACKUSWB X0, X0, X0
	VMOVD X0, (DI)
	ADDQ $3, DI
	ADDQ $4, R8
	DECQ CX
	JNZ  pixel

end:
	VZEROUPPER
	RET
