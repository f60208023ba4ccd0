//go:build libtorch

#define AGT_ISA base
#define AGT_NAME "base"
#define AGT_INSTRUCTIONS BASE

#include "row_kernels.h"
