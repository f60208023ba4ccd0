// Numbers in the blocks of a GGUF.
#pragma once
#include "block_types.h"

namespace agt {

struct BlockFormat : BlockForm {
  const char *name;  // of its kernel on a device; null: there is none
  void (*unpack)(const uint8_t *block, int8_t *q, BlockScales *scales);
  void (*to_float)(const uint8_t *b, int64_t blocks, float *to);
  void (*to_bf16)(const uint8_t *b, int64_t blocks, uint16_t *to);

  void read(const char *b, int64_t blocks, bool bf16, void *to) const {
    const auto *from = reinterpret_cast<const uint8_t *>(b);
    if (bf16) to_bf16(from, blocks, static_cast<uint16_t *>(to));
    else to_float(from, blocks, static_cast<float *>(to));
  }
};

// That of a type of GGUFs, by its number.
BlockFormat block_format(int type);
// The codebooks, [CODEBOOKS].
const int8_t *codebooks();

}  // namespace agt
