//go:build libtorch

#define AGT_ISA base
#define AGT_NAME "base"

#include "row_kernels.h"
