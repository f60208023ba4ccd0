// Numbers in the blocks of a GGUF.
#pragma once
#include <cstdint>

namespace agt {

constexpr int64_t BLOCK_GROUP = 32;  // numbers that are computed together

struct BlockFormat {
  int64_t values, bytes;  // of a block
  void (*groups)(const uint8_t *row, int64_t g, int64_t groups, float *to);
};

// That of a type of GGUFs, by its number.
BlockFormat block_format(int type);

// n numbers of a row from at on, both multiples of BLOCK_GROUP, in float32 or bfloat16.
void read_blocks(const BlockFormat &f, const char *row, int64_t at, int64_t n, bool bf16, void *to);

}  // namespace agt
