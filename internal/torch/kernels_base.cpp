//go:build libtorch

#define AGT_ISA base
#define AGT_NAME "base"

#include "kernels.inc"
