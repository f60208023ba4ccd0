// The kinds of matrices of codes, by the numbers of package codes.
#pragma once
#include "portable.h"

namespace agt {

enum CodeOrder : int32_t { ALONG, DOWN, INTERLEAVED };
enum CodeMeaning : int32_t { UNSIGNED, SIGNED, E4M3, E2M1 };
enum CodeRounding : int32_t { TO_FLOAT, TO_HALF, TO_BF16 };

}  // namespace agt
