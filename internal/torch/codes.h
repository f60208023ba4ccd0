// Numbers of matrices of codes (package codes).
#pragma once
#include "code_kinds.h"
#include "shim.h"

namespace agt {

// How codes are read with the kernels in use.
struct CodeReader {
  static constexpr int64_t MOST = 512;  // columns at a time
  // Rounded numbers of a stored row, of so many columns from one on that is a multiple of 16. There is room
  // for 16 more.
  void (*numbers)(const agt_codes &c, int64_t row, int64_t from, int64_t n, float *to);
  void (*to_bf16)(const float *x, int64_t n, uint16_t *to);
  // Pairs of bfloat16, one of each row, for n columns, a multiple of 16. The stores bypass the caches.
  void (*pair)(const float *first, const float *second, int64_t n, uint32_t *to);
  void (*store)(const float *x, int64_t n, uint32_t *to);  // as pair, of float32
  // Eight columns of so many rows, a multiple of 8, as rows.
  void (*transpose)(const float *from, int64_t ld, int64_t rows, float *to, int64_t to_ld);
};

CodeReader code_reader();

// Throws where the bytes, scales and groups are not as many as the shape needs.
void check_codes(const agt_codes &c);

}  // namespace agt
