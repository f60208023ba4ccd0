// What our kernels for a device take: one structure each, the same for the host's compiler
// and for NVRTC. Pointers are the device's; T is float or bfloat16, as the kernel's name
// says.
#pragma once

namespace agt {
namespace gpu {

constexpr int kDecodeThreads = 128;
constexpr int kReach = 256;         // graphs are recorded for contexts of this many positions, twice as many, …
constexpr int kDecodeGroup = 4;     // query heads that a block computes at most: with eight too few blocks fit beside each other
constexpr int kHeadPart = 256;      // of a head, that a warp reads at once
constexpr int kHeadSize = 512;      // of a head at most
constexpr int kRowThreads = 256;    // of a row that a whole block computes
constexpr int kWarpRow = 256;       // rows up to here are normed by a warp
constexpr int kShortRow = 1024;     // the gradients of rows up to here are a warp's
constexpr int kLongRow = 8192;      // the longest whose gradient is computed
constexpr int kSumBlocks = 264;     // blocks that add up a weight's gradient
constexpr int kFewRows = 4;         // rows that `product` computes
constexpr int kNormThreads = 512;   // of a row that a block norms, at most
constexpr int kFewBlocks = 396;     // of a product at most: three on each of 132 multiprocessors
constexpr int kManyBlocks = 528;    // decoding reads a key several times rather than with fewer blocks
// The bytes of normed rows that a block of a product holds.
constexpr int few_bytes(int rows) { return rows > 2 ? 45 << 10 : rows * (16 << 10); }
constexpr int kMostExperts = 512;   // of a layer
constexpr int kMostChosen = 32;     // experts of a row
constexpr int kExpertThreads = 128; // of a product of experts
constexpr int kExpertRows = 16;     // outputs that a block of it computes, of matrices by rows
constexpr int kExpertColumns = 64;  // and by columns
constexpr int kExpertTiles = 4;     // times eight rows of an expert are computed together
constexpr int kRowsOfExpert = 8 * kExpertTiles;
constexpr int kMostGroups = 32;     // of experts
constexpr int kMostDelta = 256;     // numbers of a key or a value of the gated delta rule
constexpr int kDeltaThreads = 512;
constexpr int kSampleThreads = 512;
constexpr int kSampleBlock = 1024;  // entries of the vocabulary that are summed together
constexpr int kSamplePiece = 32;    // of these are summed by a thread
constexpr int kSampleBlocks = 1024; // of these at most

// How many positions a block reads of `seen`: it depends on nothing else, so that neighbours change
// no bit.
constexpr long long decode_split(long long seen) { return seen <= 512 ? 64 : seen <= 2048 ? 128 : 256; }
// How many blocks the contexts need of which none sees more.
constexpr long long decode_splits(long long most) {
  const long long n = (most + decode_split(most) - 1) / decode_split(most);
  const long long shorter = most > 2048 ? 16 : most > 512 ? 8 : 0;
  return n > shorter ? n : shorter;
}

// Attention of one new token a sequence to the paged cache. Grid: splits, pieces of heads,
// sequences.
struct Decode {
  const void *q;           // T [rows, heads, dim]
  const void *keys, *values;  // T [blocks, block, kv_heads, dim]
  void *out;               // T [rows, heads, dim]
  float *parts;            // [sequences, heads, splits, dim + 2]: maximum, sum, weighted values
  const int *row;          // [sequences]: of q and out
  const int *context;      // [sequences]: positions, the new one included
  const int *width;        // how many blocks a row of the table has
  const int *table;        // [sequences, width]: blocks of the cache
  const float *sinks;      // [heads], or null: logits that only the sum sees
  long long splits, window;  // window > 0: how many positions are seen
  int heads, kv_heads, dim, block, lanes;
  float scale;             // of the products, times log2(e)
};

// The rows of an embedding, times scale.
struct Embed {
  const void *table;  // T [vocabulary, n]
  const int *ids;     // [rows]
  void *y;            // T [rows, n]
  long long rows, n;
  float scale;
};

// y = (offset + w)·x / √(mean(x²) + eps) of x, or of sum = x + add. y may be x, and sum may be x.
struct Norm {
  const void *x, *add, *w;  // T [rows, n] twice, add may be null, and T [n]
  void *sum, *y;            // T [rows, n]
  long long rows, n, stride;  // stride: from a row to the next
  float eps, offset;
};

// y = act(g)·u, where act is SiLU, or GELU's approximation by tanh.
struct Gate {
  const void *g, *u;              // T: rows of n, the first number of one a stride behind that of the row before
  void *y;                        // T [rows, n]
  long long rows, n, g_stride, u_stride;
  int gelu;
};

// The gradients of x and, summed over the rows of each block, of w: sums [blocks, n].
struct NormGradient {
  const void *x, *w, *g;  // T [rows, n], T [n], T [rows, n]
  void *dx;               // T [rows, n]
  float *sums;
  long long rows, n;
  float eps, offset;
};
// The gradient of x = [g, u] of Gate with SiLU.
struct GateGradient {
  const void *x, *g;  // T [rows, 2·n] and T [rows, n]
  void *dx;           // T [rows, 2·n]
  long long rows, n;
};

// Heads x [rows, heads, dim] turned by an angle of each row, or back (sign −1).
struct Turn {
  const void *x;
  const float *cos, *sin;  // [rows, half]
  void *y;
  long long pairs;  // rows · heads · dim/2
  int heads, dim, half, neighbours;  // as in Heads
  float sign;
};

// y = h·Wᵀ for few rows, as fast as W can be read; h is x, or as in Norm, with all its parts.
// With gate y = silu(first half)·second half of the product.
struct Product {
  const void *x, *add, *norm;  // T [rows, k] twice, and T [k]; add and norm may be null
  const void *w, *bias;        // T [n, k] and T [n]; bias may be null
  void *sum, *y;               // T [rows, k], never x, and T [rows, n], with gate [rows, n/2]
  long long n, k;
  int split, gate;             // split: how many warps share a row of W
  float eps, offset;
};

// The experts of each row of a router's logits, the best first, and their shares. A warp computes a row.
struct ChooseExperts {
  const void *logits;       // T [rows, experts]
  const float *correction;  // [experts], or null: added for the choice alone
  const float *factors;     // [experts], or null: shares are times those of their experts
  const int *contexts;      // [rows], or null: a row with 0 has no experts, but −1
  int *ids;                 // [rows, active]
  float *shares;            // [rows, active]
  long long rows;
  int experts, active, groups, top_groups;  // groups 1: all experts are one
  int sigmoid, normalise, round;            // round: shares to bfloat16
  float scale, epsilon;                     // epsilon is added to what normalise divides by
};

// The pairs of a row and one of its experts in the order of the experts, by one block.
struct OrderExperts {
  const int *ids;     // [pairs]; −1: none
  int *first;         // [experts + 1]: where each expert's begin in `order`
  int *used;          // [1 + experts]: how many experts have pairs, and which
  int *order;         // [pairs]
  int pairs, experts;
};

// y[p] = W·x[p / pairs_per_row] of the pairs p of each expert, with the expert's matrix. Grid: pieces of the outputs, as many experts
// as can be used.
enum ExpertGating { kNotGated, kSilu, kGelu, kClamped };
struct ExpertProduct {
  const void *x;                   // T [pairs / pairs_per_row, k]
  const void *w;                   // T [experts, n, k]; by columns [experts, k, n]
  const void *bias;                // T [experts, n], or null
  const int *first, *used, *order; // of OrderExperts
  void *y;                         // T [pairs, n], gated [pairs, n/2]
  long long k, n;
  int pairs_per_row, gating;       // by rows: kSilu and kGelu, of [gate, up]; by columns: kClamped, of gate, up, gate, …
  float alpha, limit;              // of kClamped
};

// y[r] = Σ share·x of the pairs of row r, and beside[r] where there is one; the sum is rounded once.
struct SumExperts {
  const void *x, *beside;  // T [rows, active, n], and T [rows, n] or null
  const void *gate;        // T [rows], or null: beside is times its sigmoid
  const int *ids;          // [rows, active]
  const float *shares;
  void *y;                 // T [rows, n]
  long long rows, n;
  int active, experts;
};

// The heads of a projection: those of queries and keys are normed and rotated, keys and values
// go into the cache. A head is a warp's.
struct Heads {
  const void *x;                // T [rows, heads + 2·kv_heads, dim]; see gated, shared and keys_are_values
  const void *bias;             // T, a row of x, or null: added first
  const void *q_norm, *k_norm;  // T [dim], or null: not normed
  const float *q_cos, *q_sin, *k_cos, *k_sin;  // [rows, half], or null: not rotated
  const int *positions;         // [rows]: which rows of cos and sin, or null: the same ones
  const long long *slots;       // [rows]: rows of the cache; −1: none
  void *q;                      // T [rows, heads, dim]
  void *keys, *values;          // T [slots, kv_heads, dim]
  long long rows;
  int heads, kv_heads, dim, half, neighbours;  // half: pairs that are rotated, of i and i + half, or of neighbours
  int gated;                    // each head of queries is followed by its gate, of which nothing is read
  int shared, keys_are_values;  // x has queries alone; or values are the keys before their norm
  int value_norm;               // values are normed, without weights
  float eps, offset;            // of the norms, see Norm
};

// A convolution of each channel over a new token of each row and those before it, which the window of its slot has; the
// window moves on. copies: a slot that gets the window as well; 0: none.
struct ConvStep {
  const void *x;             // T, of rows that are `stride` apart: the channels; gated: B, C and x of as many numbers
  const void *w, *bias;      // T [channels, taps], and T [channels] or null
  void *windows;             // T [slots, taps − 1, channels]
  void *y;                   // T [rows, channels]: silu(conv(x)); gated: C·conv(B·x)
  const int *slots, *copies; // [rows]; slot −1: the row is padding
  long long rows, channels, stride;
  int taps, gated;
};

// The gated delta rule for a new token of each row, and the norm and the gate of what it gives.
struct DeltaStep {
  const void *qkv;                      // T [rows, 2·key_heads·key_dim + value_heads·value_dim]
  const void *gate, *strength, *decay;  // T, of rows that are `stride` apart: as many numbers as y, and value_heads twice
  const float *rate, *dt_bias;          // [value_heads]: exp(A_log), and what is added to the decay
  const void *norm;                     // T [value_dim]
  float *states;                        // [slots, value_heads, key_dim, value_dim]
  void *y;                              // T [rows, value_heads·value_dim]
  const int *slots, *copies;            // as in ConvStep
  long long rows, stride;
  int key_heads, value_heads, key_dim, value_dim;
  float eps;
};

// x times the sigmoid of the gates that stand behind each head of queries.
struct GateHeads {
  void *x;           // T [rows, heads, dim]
  const void *gate;  // T, of rows that are `stride` apart: [heads, 2, dim], the gates second
  long long rows, stride;
  int heads, dim;
};

// How a row's token is drawn; agt_sampling on the host.
struct Drawing {
  double temperature, top_p, min_p, uniform;
  long long top_k, tempered;
};

// One token of each row of logits, by three kernels: sample_tops and sample_masses, whose grid is
// runs / 8 by rows, look at each run of kSampleBlock entries, and sample draws.
struct Sample {
  const void *logits;   // T [rows, vocabulary]
  const Drawing *rows;
  int *ids;
  float *logprobs;
  double *totals, *masses;  // [rows, runs]: of the weights at temperature 1, and at the row's temperature
  long long *bests;         // [rows, runs]: the first entry that equals the largest logit; vocabulary: none
  float *tops;              // [rows, runs]: the largest logit
  long long vocabulary, runs;
};

// log p(target), entropy and log Σ exp of each row of s·z.
struct Head {
  const void *logits;        // T [rows, vocabulary]
  const long long *targets;  // [rows]
  const float *scale;        // [rows], or null: 1
  float *logprobs, *entropy, *lse;
  long long vocabulary;
};

// z becomes s·(g·(onehot − p) − ge·p·(log p + entropy)).
struct HeadGradient {
  void *logits;
  const long long *targets;
  const float *scale, *lse, *entropy, *g, *ge;  // ge may be null
  long long vocabulary;
};

// The numbers of blocks of a GGUF (block_types.h), a block a thread.
struct DequantiseBlocks {
  const unsigned char *data;
  const signed char *codebooks;  // or null
  void *y;                       // T [blocks, values of a block]
  long long blocks;
};

// The numbers of matrices of codes: codes.Matrices. A block of the grid computes kCodeTile rows and columns of a matrix as
// it is stored.
constexpr int kCodeTile = 32;
struct DequantiseCodes {
  const unsigned char *data;
  const float *scales, *zeros;  // zeros and groups may be null
  const int *groups;
  void *y;                      // T [count, rows, cols], transposed [count, cols, rows]
  long long count, rows, cols, stride, across, high, wide;
  int transposed, bits, order, meaning, rounding;  // code_kinds.h
};

}  // namespace gpu
}  // namespace agt
