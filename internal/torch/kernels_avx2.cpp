//go:build libtorch

#define AGT_ISA avx2
#define AGT_NAME "avx2"
#define AGT_INSTRUCTIONS AVX2
#define AGT_AVX2
// The standard headers come before the pragma: their inline functions are
// shared with the rest of the program and must stay of the base instruction set.
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>
#pragma GCC target("avx2,fma")
#include "row_kernels.h"
