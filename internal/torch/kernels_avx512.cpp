//go:build libtorch

#define AGT_ISA avx512
#define AGT_NAME "avx512"
#define AGT_INSTRUCTIONS AVX512
#define AGT_AVX512  // GCC before 13 defines no macro of its own at the pragma below
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
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,prefer-vector-width=512")
#include "row_kernels.h"
