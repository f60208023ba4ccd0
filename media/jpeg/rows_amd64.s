#include "textflag.h"

#define WORDS(name, pair) \
	DATA name<>+0(SB)/4, $pair; \
	DATA name<>+4(SB)/4, $pair; \
	DATA name<>+8(SB)/4, $pair; \
	DATA name<>+12(SB)/4, $pair; \
	DATA name<>+16(SB)/4, $pair; \
	DATA name<>+20(SB)/4, $pair; \
	DATA name<>+24(SB)/4, $pair; \
	DATA name<>+28(SB)/4, $pair; \
	GLOBL name<>(SB), RODATA|NOPTR, $32

WORDS(seven, 0x00070007)
WORDS(eight, 0x00080008)
WORDS(centre, 0x00800080)
WORDS(half, 0x00008000)

// Factors of blue (lower word) and red chroma, times 2^16, less the whole parts that are
// added apart: red 91881 − 65536, green −22554 and −46802 + 65536, blue 116130 − 131072.
WORDS(ofRed, 0x66e90000)
WORDS(ofGreen, 0x492ea7e6)
WORDS(ofBlue, 0x0000c5a2)

// SUM is 3·near + far of 16 samples at an offset.
#define SUM(offset, y, t) \
	VPMOVZXBW offset(SI), y; \
	VPMOVZXBW offset(DX), t; \
	VPADDW y, t, t; \
	VPADDW y, y, y; \
	VPADDW t, y, y

// func twiceBothAVX2(out, near, far *byte, blocks int)
TEXT ·twiceBothAVX2(SB), NOSPLIT, $0-32
	MOVQ out+0(FP), DI
	MOVQ near+8(FP), SI
	MOVQ far+16(FP), DX
	MOVQ blocks+24(FP), CX
	VMOVDQU seven<>(SB), Y14
	VMOVDQU eight<>(SB), Y15

block:
	SUM(-1, Y0, Y3)
	SUM(0, Y1, Y4)
	SUM(1, Y2, Y5)
	VPADDW Y1, Y1, Y6
	VPADDW Y1, Y6, Y6
	VPADDW Y6, Y0, Y0
	VPADDW Y6, Y2, Y2
	VPADDW Y15, Y0, Y0
	VPADDW Y14, Y2, Y2
	VPSRLW $4, Y0, Y0
	VPSRLW $4, Y2, Y2
	VPSLLW $8, Y2, Y2
	VPOR Y2, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $16, SI
	ADDQ $16, DX
	ADDQ $32, DI
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET

// Where the bytes of 16 pixels' red, green and blue go in three times 16 bytes.
DATA red0<>+0(SB)/8, $0x8002808001808000
DATA red0<>+8(SB)/8, $0x0580800480800380
GLOBL red0<>(SB), RODATA|NOPTR, $16
DATA green0<>+0(SB)/8, $0x0280800180800080
DATA green0<>+8(SB)/8, $0x8080048080038080
GLOBL green0<>(SB), RODATA|NOPTR, $16
DATA blue0<>+0(SB)/8, $0x8080018080008080
DATA blue0<>+8(SB)/8, $0x8004808003808002
GLOBL blue0<>(SB), RODATA|NOPTR, $16
DATA red1<>+0(SB)/8, $0x8080078080068080
DATA red1<>+8(SB)/8, $0x800a808009808008
GLOBL red1<>(SB), RODATA|NOPTR, $16
DATA green1<>+0(SB)/8, $0x8007808006808005
DATA green1<>+8(SB)/8, $0x0a80800980800880
GLOBL green1<>(SB), RODATA|NOPTR, $16
DATA blue1<>+0(SB)/8, $0x0780800680800580
DATA blue1<>+8(SB)/8, $0x8080098080088080
GLOBL blue1<>(SB), RODATA|NOPTR, $16
DATA red2<>+0(SB)/8, $0x0d80800c80800b80
DATA red2<>+8(SB)/8, $0x80800f80800e8080
GLOBL red2<>(SB), RODATA|NOPTR, $16
DATA green2<>+0(SB)/8, $0x80800c80800b8080
DATA green2<>+8(SB)/8, $0x800f80800e80800d
GLOBL green2<>(SB), RODATA|NOPTR, $16
DATA blue2<>+0(SB)/8, $0x800c80800b80800a
DATA blue2<>+8(SB)/8, $0x0f80800e80800d80
GLOBL blue2<>(SB), RODATA|NOPTR, $16

// PART is the third of the 48 bytes that the masks make.
#define PART(r, g, b, offset) \
	VPSHUFB r<>(SB), X0, X3; \
	VPSHUFB g<>(SB), X1, X4; \
	VPSHUFB b<>(SB), X2, X5; \
	VPOR X4, X3, X3; \
	VPOR X5, X3, X3; \
	VMOVDQU X3, offset(DI)

// CHROMA is, as words, (factors · (cb, cr) + 2^15) >> 16 of the pairs in Y6 and Y7.
#define CHROMA(factors, y, t) \
	VPMADDWD factors<>(SB), Y6, y; \
	VPMADDWD factors<>(SB), Y7, t; \
	VPADDD Y13, y, y; \
	VPADDD Y13, t, t; \
	VPSRAD $16, y, y; \
	VPSRAD $16, t, t; \
	VPACKSSDW t, y, y

// BYTES packs 16 words to bytes from 0 to 255.
#define BYTES(y) \
	VPACKUSWB y, y, y; \
	VPERMQ $0xd8, y, y

// func toRGBAVX2(dst, luma, cb, cr *byte, n int)
TEXT ·toRGBAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ luma+8(FP), SI
	MOVQ cb+16(FP), DX
	MOVQ cr+24(FP), R8
	MOVQ n+32(FP), CX
	VMOVDQU half<>(SB), Y13
	VMOVDQU centre<>(SB), Y14

block:
	VPMOVZXBW (SI), Y8
	VPMOVZXBW (DX), Y9
	VPMOVZXBW (R8), Y10
	VPSUBW Y14, Y9, Y9
	VPSUBW Y14, Y10, Y10
	VPUNPCKLWD Y10, Y9, Y6
	VPUNPCKHWD Y10, Y9, Y7
	CHROMA(ofRed, Y0, Y3)
	CHROMA(ofGreen, Y1, Y3)
	CHROMA(ofBlue, Y2, Y3)
	VPADDW Y8, Y0, Y0
	VPADDW Y10, Y0, Y0
	VPADDW Y8, Y1, Y1
	VPSUBW Y10, Y1, Y1
	VPADDW Y8, Y2, Y2
	VPADDW Y9, Y2, Y2
	VPADDW Y9, Y2, Y2
	BYTES(Y0)
	BYTES(Y1)
	BYTES(Y2)
	PART(red0, green0, blue0, 0)
	PART(red1, green1, blue1, 16)
	PART(red2, green2, blue2, 32)
	ADDQ $16, SI
	ADDQ $16, DX
	ADDQ $16, R8
	ADDQ $48, DI
	SUBQ $16, CX
	JNZ  block
	VZEROUPPER
	RET
