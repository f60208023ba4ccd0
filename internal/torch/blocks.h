// Numbers in the blocks of a GGUF.
#pragma once
#include <cstdint>

namespace agt {

constexpr int64_t BLOCK_GROUP = 32;  // numbers that are computed together

// The scales of a block whose numbers are scale·factor[i/group]·q[i] + least·least_factor[i/group]. Scale and least
// are float16. What a type does not have is not set.
struct BlockScales {
  uint16_t scale, least;
  int8_t factor[16], least_factor[8];
};

struct BlockFormat {
  int64_t values, bytes;  // of a block
  void (*groups)(const uint8_t *row, int64_t g, int64_t groups, float *to);
  void (*unpack)(const uint8_t *block, int8_t *q, BlockScales *scales);
  int64_t group, bits;  // of q: 4 bits are 0 to 15
  bool least, factors;
};

// That of a type of GGUFs, by its number.
BlockFormat block_format(int type);

// n numbers of a row from at on, both multiples of BLOCK_GROUP, in float32 or bfloat16.
void read_blocks(const BlockFormat &f, const char *row, int64_t at, int64_t n, bool bf16, void *to);

}  // namespace agt
