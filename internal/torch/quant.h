// A weight [n, k] as a GGUF has it, for the products of a decoder:
//
//   w[o][i] = scale[o][i/block]·factor[o][i/group]·q[o][i] + least[o][i/block]·least_factor[o][i/group]
//
// One tensor of bytes holds it all: a QuantHead, a QuantPanel for each 64 outputs, and what they
// point at. A panel's q are [k/2][64] pairs of inputs of 8 bits; of 4 bits [k/4][64] twos of
// bytes, whose low halves are one pair and whose high halves are the next.
#pragma once
#include <stdint.h>

namespace agt {

// Scales are float16, [k/block][64], and with least values [k/block][2][64]: the scales, then
// the least values. Factors are int8, [k/group][64] or [k/group][2][64].
struct QuantPanel {
  int64_t q, scale, factor;         // places in the tensor; factor −1: all are 1
  int64_t group, block, bits, kinds;  // 16 or 32 inputs; a multiple of it; 4 or 8; 2: with least values
};
struct QuantHead {
  int64_t magic, n, k;
  static constexpr int64_t MAGIC = 0x716167656e746300;
};

// Inputs [rows, k] in 16 bits: x ≈ scale[row][i/32]·q[row][i]; sum [row][i/16] is that of 16 inputs.
// The error of a number is at most 2^-16 of the largest of its 32.
struct QuantRows {
  int16_t *q;
  float *scale, *sum;
};

}  // namespace agt
