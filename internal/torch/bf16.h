// Rounding to bfloat16 for code that the compiler vectorises.
#pragma once
#include "portable.h"

namespace agt {

// The bits of the nearest bfloat16, even of two.
AGT_INLINE uint32_t bf16_of(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  const uint32_t near = (b + 0x7fff + (b >> 16 & 1)) >> 16, none = b >> 16 | 0x40;
  return (b & 0x7fffffff) > 0x7f800000 ? none : near;
}

}  // namespace agt
