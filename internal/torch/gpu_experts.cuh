// MoE experts: which ones a row has, products with their matrices, and the sum of what they give.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// ---- the choice ----------------------------------------------------------------------------
struct Choice {
  float value, share;
  int at;  // −1: none
};
// The larger value; of equal ones, and of NaNs, the lower number. The order of the arguments does not matter.
__device__ inline Choice better(Choice a, Choice b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  return a.value > b.value || (!(b.value > a.value) && a.at < b.at) ? a : b;
}
__device__ inline Choice best_of_warp(Choice c) {
  for (int o = 16; o > 0; o /= 2)
    c = better(c, {__shfl_xor_sync(kAll, c.value, o), __shfl_xor_sync(kAll, c.share, o), __shfl_xor_sync(kAll, c.at, o)});
  return c;
}

// A lane holds the experts lane, lane + 32, …
template <class T>
__device__ void choose_experts(const ChooseExperts &a) {
  constexpr int each = kMostExperts / 32;
  const int lane = threadIdx.x % 32;
  const i64 row = i64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  int *ids = a.ids + row * a.active;
  float *shares = a.shares + row * a.active;
  if (a.contexts && a.contexts[row] == 0) {
    if (lane < a.active) ids[lane] = -1, shares[lane] = 0;
    return;
  }
  const T *z = static_cast<const T *>(a.logits) + row * a.experts;
  float p[each], choice[each], top = -INFINITY, total = 0;
  auto has = [&](int j) { return j * 32 + lane < a.experts; };
#pragma unroll
  for (int j = 0; j < each; j++) top = max(top, p[j] = has(j) ? wide(z[j * 32 + lane]) : -INFINITY);
  top = warp_reduce(top, Max());
#pragma unroll
  for (int j = 0; j < each; j++) {
    p[j] = a.sigmoid ? sigmoid(p[j]) : expf(p[j] - top);
    total += has(j) ? p[j] : 0;
  }
  total = a.sigmoid ? 1 : warp_reduce(total, Add());
#pragma unroll
  for (int j = 0; j < each; j++) {
    p[j] /= total;
    choice[j] = p[j] + (a.correction && has(j) ? a.correction[j * 32 + lane] : 0);
  }
  // The best expert of which ok(j, its number) holds.
  auto best = [&](auto ok) {
    Choice c{0, 0, -1};
#pragma unroll
    for (int j = 0; j < each; j++)
      if (has(j) && ok(j, j * 32 + lane)) c = better(c, {choice[j], p[j], j * 32 + lane});
    return best_of_warp(c);
  };
  if (a.groups > 1) {  // of each group its two best experts count
    const int size = a.experts / a.groups;
    Choice own{0, 0, -1};
    for (int g = 0; g < a.groups; g++) {
      const Choice one = best([&](int, int e) { return e / size == g; });
      const Choice two = best([&](int, int e) { return e / size == g && e != one.at; });
      if (lane == g) own = {one.value + two.value, 0, g};
    }
    u32 in = 0;
    for (int i = 0; i < a.top_groups; i++) {
      const Choice c = best_of_warp(own);
      in |= 1u << c.at;
      if (c.at == own.at) own.at = -1;
    }
#pragma unroll
    for (int j = 0; j < each; j++)
      if (has(j) && !(in >> ((j * 32 + lane) / size) & 1)) choice[j] = -INFINITY;
  }
  u32 taken = 0;  // of the lane's experts
  Choice own{0, 0, -1};
  for (int k = 0; k < a.active; k++) {
    const Choice c = best([&](int j, int) { return !(taken >> j & 1); });
    if (c.at % 32 == lane) taken |= 1u << c.at / 32;
    if (k == lane) own = c;
  }
  const float sum = warp_reduce(own.share, Add()) + a.epsilon;
  if (lane >= a.active) return;
  float share = own.share;
  if (a.normalise) share /= sum;
  share *= a.scale;
  if (a.factors) share *= a.factors[own.at];
  ids[lane] = own.at;
  shares[lane] = a.round ? wide(narrow<bf16>(share)) : share;
}

// A thread is an expert's.
__device__ inline void order_experts(const OrderExperts &a) {
  __shared__ short ids[kRowsOfExpert * kMostExperts];
  __shared__ unsigned char has[kMostExperts];
  const int e = threadIdx.x, pairs = a.pairs;
  int at = 0, own = 0, rank = 0;
  for (int i = e; i < pairs; i += blockDim.x) ids[i] = short(a.ids[i]);
  __syncthreads();
  for (int i = 0; i < pairs; i++) {
    at += ids[i] >= 0 && ids[i] < e;
    own += ids[i] == e;
  }
  has[e] = e < a.experts && own > 0;
  __syncthreads();
  if (e >= a.experts) return;
  for (int i = 0; i < e; i++) rank += has[i];
  a.first[e] = at;
  if (e == a.experts - 1) {
    a.first[e + 1] = at + own;
    a.used[0] = rank + has[e];
  }
  if (own == 0) return;
  a.used[1 + rank] = e;
  for (int i = 0; i < pairs; i++)
    if (ids[i] == e) a.order[at++] = i;
}

// ---- products ------------------------------------------------------------------------------
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasMultiply = false;  // of bfloat16
#else
constexpr bool kHasMultiply = true;
#endif

// c += A·B of 16 × 16 and 16 × 8 numbers (PTX ISA, mma.m16n8k16). Lane 4·g + t has of A the rows g and g + 8, each at
// columns 2t, 2t + 1 and 2t + 8, 2t + 9: a[0] to a[3] are row g, row g + 8, row g, row g + 8. Of B it has the same rows of
// column g, and of c the rows g and g + 8 of columns 2t and 2t + 1.
__device__ inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !defined(__CUDA_ARCH__)
  blocks::multiply(c, a, b0, b1);
#endif  // before compute capability 8.0 nothing calls it: kHasMultiply
}

// What a product gives of one output, of sums in float32.
template <class T>
__device__ inline T gated(const ExpertProduct &a, float g, float u) {
  if (a.gating != kClamped) return narrow<T>((a.gating == kGelu ? gelu(rounded<T>(g)) : silu(rounded<T>(g))) * rounded<T>(u));
  g = rounded<T>(g), u = rounded<T>(u);
  g = g > a.limit ? a.limit : g;  // NaNs stay
  u = u > a.limit ? a.limit : u < -a.limit ? -a.limit : u;
  return narrow<T>((u + 1) * (g / (1 + expf(-a.alpha * g))));
}

// The pairs of a block's expert.
struct Pairs {
  int expert, count;
  const int *order;
};
__device__ inline Pairs pairs_of(const ExpertProduct &a) {
  if (int(blockIdx.y) >= a.used[0]) return {0, 0, nullptr};
  const int e = a.used[1 + blockIdx.y], from = a.first[e];
  return {e, a.first[e + 1] - from, a.order + from};
}

// Two outputs of one row of x, which go to `first` and `second` of y's row, or the gated one of both.
template <class T>
__device__ inline void store_outputs(const ExpertProduct &a, const Pairs &of, int index, i64 first, i64 second, float x, float y) {
  if (index >= of.count) return;
  const bool both = a.gating != kNotGated;
  if (a.bias) {
    const T *b = static_cast<const T *>(a.bias) + of.expert * a.n;
    x += first < a.n ? wide(b[first]) : 0;
    y += second < a.n ? wide(b[second]) : 0;
  }
  T *to = static_cast<T *>(a.y) + of.order[index] * (both ? a.n / 2 : a.n);
  if (both) {
    if (second < a.n) to[a.gating == kClamped ? first / 2 : first] = gated<T>(a, x, y);
    return;
  }
  if (first < a.n) to[first] = narrow<T>(x);
  if (second < a.n) to[second] = narrow<T>(y);
}

// Outputs that are rows of the matrix. Row i of a piece goes with row i + 8: two outputs, or gate and up of one.
struct PieceOfRows {
  i64 first, second;
};
__device__ inline PieceOfRows piece_of_rows(const ExpertProduct &a, int i) {
  if (a.gating == kNotGated) return {i64(blockIdx.x) * kExpertRows + i, i64(blockIdx.x) * kExpertRows + i + 8};
  const i64 at = i64(blockIdx.x) * (kExpertRows / 2) + i, half = a.n / 2;
  return at < half ? PieceOfRows{at, at + half} : PieceOfRows{a.n, a.n};
}

// The warps of a block share the numbers of a row of W; the sums of their parts are added up in shared memory, of one tile
// by each warp.
static_assert(kExpertTiles == kExpertThreads / 32, "a warp adds up a tile");
constexpr int kExpertWarps = kExpertThreads / 32;

__device__ inline void expert_rows_by_tiles(const ExpertProduct &a) {
  __shared__ float sums[kExpertWarps][kExpertTiles][4][32];
  const Pairs of = pairs_of(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const PieceOfRows r = piece_of_rows(a, g);
  const bf16 *w = static_cast<const bf16 *>(a.w) + i64(of.expert) * a.n * a.k, *x = static_cast<const bf16 *>(a.x);
  for (int done = 0; done < of.count; done += 8 * kExpertTiles) {
    const bf16 *rows[kExpertTiles];
    float acc[kExpertTiles][4];
#pragma unroll
    for (int i = 0; i < kExpertTiles; i++) {
      const int index = done + 8 * i + g;
      rows[i] = index < of.count ? x + i64(of.order[index] / a.pairs_per_row) * a.k : nullptr;
      for (int j = 0; j < 4; j++) acc[i][j] = 0;
    }
    constexpr int early = 2, step = kExpertWarps * 32;  // steps whose weights are read in advance
    Packed p[early], q[early];
    auto fetch = [&](int j, i64 from) {
      const bool in = from + 8 * t < a.k;
      p[j] = in && r.first < a.n ? load_packed(w + r.first * a.k + from + 8 * t) : Packed{};
      q[j] = in && r.second < a.n ? load_packed(w + r.second * a.k + from + 8 * t) : Packed{};
    };
#pragma unroll
    for (int j = 0; j < early; j++) fetch(j, warp * 32 + j * step);
    for (i64 base = warp * 32; base < a.k; base += early * step) {
#pragma unroll
      for (int j = 0; j < early; j++) {
        const i64 from = base + j * step, at = from + 8 * t;
        const Packed u = p[j], v = q[j];
        fetch(j, from + early * step);
#pragma unroll
        for (int i = 0; i < kExpertTiles; i++) {
          if (done + 8 * i >= of.count) break;
          const Packed b = at < a.k && rows[i] ? load_packed(rows[i] + at) : Packed{};
          // Columns of A are rows of B in any order, as long as it is the same.
          multiply(acc[i], {u.words[0], v.words[0], u.words[1], v.words[1]}, b.words[0], b.words[1]);
          multiply(acc[i], {u.words[2], v.words[2], u.words[3], v.words[3]}, b.words[2], b.words[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kExpertTiles; i++)
      for (int j = 0; j < 4; j++) sums[warp][i][j][lane] = acc[i][j];
    __syncthreads();
    float all[4] = {0, 0, 0, 0};
    for (int part = 0; part < kExpertWarps; part++)
      for (int j = 0; j < 4; j++) all[j] += sums[part][warp][j][lane];
    for (int j = 0; j < 2; j++) store_outputs<bf16>(a, of, done + 8 * warp + 2 * t + j, r.first, r.second, all[j], all[2 + j]);
    __syncthreads();
  }
}

// Without such products a warp takes one pair of outputs after the other, for one row of x after the other.
template <class T>
__device__ inline void expert_rows_by_warps(const ExpertProduct &a) {
  const Pairs of = pairs_of(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const T *w = static_cast<const T *>(a.w) + i64(of.expert) * a.n * a.k;
  for (int i = warp; i < kExpertRows / 2; i += kExpertWarps) {
    const PieceOfRows r = piece_of_rows(a, i);
    if (r.first >= a.n) continue;
    const T *p = w + r.first * a.k, *q = w + (r.second < a.n ? r.second : r.first) * a.k;
    for (int index = 0; index < of.count; index++) {
      const T *x = static_cast<const T *>(a.x) + i64(of.order[index] / a.pairs_per_row) * a.k;
      float one = 0, two = 0;
      for (i64 at = lane; at < a.k; at += 32) {
        one += wide(p[at]) * wide(x[at]);
        two += wide(q[at]) * wide(x[at]);
      }
      one = warp_reduce(one, Add());
      two = warp_reduce(two, Add());
      if (lane == 0) store_outputs<T>(a, of, index, r.first, r.second, one, two);
    }
  }
}

template <class T>
__device__ void expert_rows(const ExpertProduct &a) {
  if constexpr (kHasMultiply && sizeof(T) == 2)
    expert_rows_by_tiles(a);
  else
    expert_rows_by_warps<T>(a);
}

// Outputs that are columns of the matrix: two neighbours go together, two outputs, or gate and up of one.
__device__ inline u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
__device__ inline u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }

struct alignas(8) FourBf16 {  // four values of bfloat16, read at once
  u32 words[2];
};

__device__ inline void expert_columns_by_tiles(const ExpertProduct &a) {
  __shared__ float sums[kExpertWarps][kExpertTiles][4][4][32];
  const Pairs of = pairs_of(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const i64 column = i64(blockIdx.x) * kExpertColumns + 8 * g;  // the lane's first; the i-th product has its columns 2i, 2i + 1
  const bf16 *w = static_cast<const bf16 *>(a.w) + i64(of.expert) * a.k * a.n, *x = static_cast<const bf16 *>(a.x);
  for (int done = 0; done < of.count; done += 8 * kExpertTiles) {
    const bf16 *rows[kExpertTiles];
    float acc[kExpertTiles][4][4];
#pragma unroll
    for (int i = 0; i < kExpertTiles; i++) {
      const int index = done + 8 * i + g;
      rows[i] = index < of.count ? x + i64(of.order[index] / a.pairs_per_row) * a.k : nullptr;
      for (int j = 0; j < 16; j++) acc[i][j / 4][j % 4] = 0;
    }
    constexpr int step = kExpertWarps * 16;
    Packed next[4];  // the lane's rows of W of the next step
    auto fetch = [&](i64 at) {
#pragma unroll
      for (int j = 0; j < 4; j++) next[j] = at < a.k && column < a.n ? load_packed(w + (at + j) * a.n + column) : Packed{};
    };
    fetch(warp * 16 + 4 * t);
    for (i64 from = warp * 16; from < a.k; from += step) {
      const i64 at = from + 4 * t;  // the lane's rows of W, and numbers of x
      const Packed p[4] = {next[0], next[1], next[2], next[3]};
      fetch(at + step);
#pragma unroll
      for (int i = 0; i < kExpertTiles; i++) {
        if (done + 8 * i >= of.count) break;
        const FourBf16 v = at < a.k && rows[i] ? *reinterpret_cast<const FourBf16 *>(rows[i] + at) : FourBf16{};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          auto low = [&](int k) { return low_halves(p[k].words[j], p[k + 1].words[j]); };
          auto high = [&](int k) { return high_halves(p[k].words[j], p[k + 1].words[j]); };
          multiply(acc[i][j], {low(0), high(0), low(2), high(2)}, v.words[0], v.words[1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kExpertTiles; i++)
      for (int j = 0; j < 16; j++) sums[warp][i][j / 4][j % 4][lane] = acc[i][j / 4][j % 4];
    __syncthreads();
    for (int i = 0; i < 4; i++) {
      float all[4] = {0, 0, 0, 0};
      for (int part = 0; part < kExpertWarps; part++)
        for (int j = 0; j < 4; j++) all[j] += sums[part][warp][i][j][lane];
      const i64 first = column + 2 * i;
      for (int j = 0; j < 2; j++) store_outputs<bf16>(a, of, done + 8 * warp + 2 * t + j, first, first + 1, all[j], all[2 + j]);
    }
    __syncthreads();
  }
}

// Without such products a lane has two columns, and the warps share their numbers.
template <class T>
__device__ inline void expert_columns_by_warps(const ExpertProduct &a) {
  static_assert(kExpertColumns == 64, "two columns a lane");
  __shared__ float sums[kExpertWarps][2][32];
  const Pairs of = pairs_of(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 column = i64(blockIdx.x) * kExpertColumns + 2 * lane;
  const T *w = static_cast<const T *>(a.w) + i64(of.expert) * a.k * a.n;
  for (int index = 0; index < of.count; index++) {
    const T *x = static_cast<const T *>(a.x) + i64(of.order[index] / a.pairs_per_row) * a.k;
    float one = 0, two = 0;
    for (i64 at = warp; at < a.k && column < a.n; at += kExpertWarps) {
      one += wide(w[at * a.n + column]) * wide(x[at]);
      two += wide(w[at * a.n + column + 1]) * wide(x[at]);
    }
    sums[warp][0][lane] = one;
    sums[warp][1][lane] = two;
    __syncthreads();
    if (warp == 0) {
      for (int part = 1; part < kExpertWarps; part++) {
        one += sums[part][0][lane];
        two += sums[part][1][lane];
      }
      store_outputs<T>(a, of, index, column, column + 1, one, two);
    }
    __syncthreads();
  }
}

template <class T>
__device__ void expert_columns(const ExpertProduct &a) {
  if constexpr (kHasMultiply && sizeof(T) == 2)
    expert_columns_by_tiles(a);
  else
    expert_columns_by_warps<T>(a);
}

// ---- the sum -------------------------------------------------------------------------------
// Eight values are a thread's.
template <class T>
__device__ void sum_experts(const SumExperts &a) {
  const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8, row = at / a.n;
  if (row >= a.rows) return;
  float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int i = 0; i < a.active; i++) {
    const i64 pair = row * a.active + i;
    if (a.ids[pair] < 0 || a.ids[pair] >= a.experts) continue;
    const Eight<T> v = load(static_cast<const T *>(a.x) + pair * a.n + at % a.n);
    for (int j = 0; j < 8; j++) sum[j] += a.shares[pair] * wide(v.v[j]);
  }
  if (a.beside) {
    const Eight<T> v = load(static_cast<const T *>(a.beside) + at);
    const float gate = a.gate ? rounded<T>(sigmoid(wide(static_cast<const T *>(a.gate)[row]))) : 1;
    for (int j = 0; j < 8; j++) sum[j] += a.gate ? rounded<T>(gate * wide(v.v[j])) : wide(v.v[j]);
  }
  Eight<T> y;
  for (int j = 0; j < 8; j++) y.v[j] = narrow<T>(sum[j]);
  store(static_cast<T *>(a.y) + at, y);
}

}  // namespace gpu
}  // namespace agt
