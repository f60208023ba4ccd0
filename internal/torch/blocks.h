// Numbers in the blocks of a GGUF.
#pragma once
#include <cstdint>

namespace agt {

// What a block is. Its numbers are unit·scale·factor[i/group]·(q[i]−zero) + least·least_factor[i/group], without the second term
// where there is no least, and without factors where there are none.
struct BlockForm {
  int64_t values, bytes;
  int64_t group, bits;  // of q: 4 bits are 0 to 15
  int zero = 0;
  bool least = false, factors = false;
  float unit = 1;  // a power of two
};

// Scale and least are float16. What a type does not have is not set.
struct BlockScales {
  uint16_t scale, least;
  int8_t factor[16], least_factor[16];
};

struct BlockFormat : BlockForm {
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

}  // namespace agt
