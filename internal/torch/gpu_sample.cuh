// Drawing tokens.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// The rule of the CPU's sample (kernels.inc): the token at which the sum of the weights, in
// the order of ids, exceeds uniform × their total. Kept are those whose bits are above
// `bits`, and of those that equal it the first `equal`: weights are not negative, so their
// bits are in the order of their values.
struct Kept {
  u32 bits;
  i64 equal;
};

// f(i, logit) for the entries that are this thread's, of a block's.
template <class T, class F>
__device__ void each_entry(const T *z, i64 n, F f) {
  if (n % 8 == 0) {
#pragma unroll 1  // eight are enough at once, and NVRTC takes seconds for more
    for (i64 i = i64(threadIdx.x) * 8; i < n; i += kSampleThreads * 8) {
      const Eight<T> v = load(z + i);
      for (int j = 0; j < 8; j++) f(i + j, wide(v.v[j]));
    }
    return;
  }
#pragma unroll 1
  for (i64 i = threadIdx.x; i < n; i += kSampleThreads) f(i, wide(z[i]));
}

// The weights of the entries: 0 beyond the vocabulary.
template <class T>
struct Weights {
  const T *z;
  i64 n;
  float top, inverse;  // the largest logit, 1/temperature
  __device__ float of(float logit) const { return expf((logit - top) * inverse); }
  __device__ float operator()(i64 i) const { return i < n ? of(wide(z[i])) : 0.f; }
  template <class F>
  __device__ void each(F f) const {  // f(weight)
    const Weights w = *this;
    each_entry(z, n, [&](i64, float logit) { f(w.of(logit)); });
  }
};

// The largest number t with enough(sum of `of` over the entries whose bits are at least t),
// four bits at a time; 0 where none is enough.
template <class A, class T, class Of, class Enough>
__device__ u32 threshold(const Weights<T> &w, Of of, Enough enough, A (*shared)[15]) {
  u32 found = 0;
#pragma unroll 1
  for (int shift = 28; shift >= 0; shift -= 4) {
    A sums[15];
    for (int c = 0; c < 15; c++) sums[c] = 0;
    for (i64 i = threadIdx.x; i < w.n; i += kSampleThreads) {
      const float x = w(i);
      const u32 bits = __float_as_uint(x);
      for (int c = 0; c < 15; c++)
        if (bits >= (found | u32(c + 1) << shift)) sums[c] += of(x);
    }
    for (int c = 0; c < 15; c++) {
      sums[c] = warp_reduce(sums[c], Add());
      if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][c] = sums[c];
    }
    __syncthreads();
    u32 digit = 0;
    for (int c = 0; c < 15; c++) {
      A sum = 0;
      for (int k = 0; k < kSampleThreads / 32; k++) sum += shared[k][c];
      if (enough(found | u32(c + 1) << shift, sum)) digit = c + 1;
    }
    found |= digit << shift;
    __syncthreads();
  }
  return found;
}

// keep finds what top-k, top-p and min-p leave, each of what the one before left.
template <class T>
__device__ inline Kept keep(const Weights<T> &w, const Drawing &o, double (*shared)[15], double *sums) {
  Kept k{0, w.n};
  auto above = [&](u32 bits, double &mass, i64 &equal) {  // the mass above bits, how many equal it
    double m = 0, e = 0;
    w.each([&](float x) {
      const u32 b = __float_as_uint(x);
      if (b > bits) m += x;
      if (b == bits) e += 1;
    });
    mass = block_reduce(m, Add(), sums);
    equal = i64(block_reduce(e, Add(), sums));
  };
  if (o.top_k > 0 && o.top_k < w.n) {
    const double want = o.top_k;
    k.bits = threshold<double>(w, [](float) { return 1.; }, [want](u32, double n) { return n >= want; }, shared);
    double more = 0;
    w.each([&](float x) { more += __float_as_uint(x) > k.bits; });
    k.equal = o.top_k - i64(block_reduce(more, Add(), sums));
  }
  if (o.top_p > 0 && o.top_p < 1) {
    double mass;
    i64 equal;
    above(k.bits, mass, equal);
    const u32 least = k.bits;
    k.equal = k.equal < equal ? k.equal : equal;
    const double want = o.top_p * (mass + double(k.equal) * __uint_as_float(least));
    const u32 bits = threshold<double>(
        w, [](float x) { return double(x); }, [want, least](u32 t, double m) { return t <= least || m >= want; }, shared);
    if (bits > least) {
      k.bits = bits;
      above(bits, mass, k.equal);
    }
    const double each = __uint_as_float(k.bits);
    i64 few = each > 0 ? i64((want - mass) / each) - 1 : 0;  // a little less than are needed
    few = few > 0 ? few : 0;
    while (few < k.equal && mass + double(few) * each < want) few++;
    k.equal = few > 0 ? few : mass > 0 ? 0 : 1;
  }
  const u32 least = __float_as_uint(float(o.min_p));  // the likeliest token's weight is 1
  if (o.min_p > 0 && least > k.bits) k = {least, w.n};
  return k;
}

// Adds up kSamplePiece entries, eight at `from` and each `step` behind: the mass above the edge, and
// how many are on it.
template <class T>
__device__ inline void weigh(const Weights<T> &w, const Kept &kept, i64 from, i64 step, double &mass, int &on) {
  for (int k = 0; k < kSamplePiece / 8; k++) {
    const i64 i = from + k * step;
    const bool whole = w.n % 8 == 0 && i < w.n;
    Eight<T> v{};
    if (whole) v = load(w.z + i);
    for (int j = 0; j < 8; j++) {
      const float x = whole ? w.of(wide(v.v[j])) : w(i + j);
      const u32 bits = __float_as_uint(x);
      if (bits > kept.bits) mass += x;
      if (bits == kept.bits) on++;
    }
  }
}

// A walk over masses in order to the one within which their sum exceeds target.
struct Walk {
  double target, before;  // before: the sum of what is passed
  i64 left;               // of entries on the edge that are kept
  __device__ int to(const double *masses, const int *equals, int count, float edge) {
    const Walk begin = *this;
    int last = 0;
    Walk at_last = begin;
    for (int b = 0; b < count; b++) {
      const i64 on = equals[b] < left ? equals[b] : left;
      const double here = masses[b] + double(on) * edge;
      if (here > 0) {
        last = b;
        at_last = *this;
      }
      if (before + here > target) return b;
      before += here;
      left -= on;
    }
    *this = at_last;  // rounding at the very end: the last that has any
    return last;
  }
};

// A warp's run of kSampleBlock entries, in the kernels that look at each.
struct Run {
  i64 run, row, at, from;  // at: in the arrays of Sample; from: this lane's first eight entries
  bool live;
  __device__ explicit Run(const Sample &a)
      : run(i64(blockIdx.x) * (kRowThreads / 32) + threadIdx.x / 32), row(blockIdx.y), at(row * a.runs + run),
        from(run * kSampleBlock + threadIdx.x % 32 * 8), live(run < a.runs) {}
};
// f(i, logit) for the entries of a run that are this lane's.
template <class T, class F>
__device__ inline void each_of_run(const T *z, i64 n, const Run &r, F f) {
#pragma unroll
  for (int k = 0; k < kSamplePiece / 8; k++) {
    const i64 i = r.from + k * 32 * 8;
    if (n % 8 == 0) {
      if (i >= n) return;
      const Eight<T> v = load(z + i);
      for (int j = 0; j < 8; j++) f(i + j, wide(v.v[j]));
    } else {
      for (int j = 0; j < 8 && i + j < n; j++) f(i + j, wide(z[i + j]));
    }
  }
}

template <class T>
__device__ void sample_tops(const Sample &a) {
  const Run r(a);
  if (!r.live) return;
  float top = -INFINITY;
  each_of_run(static_cast<const T *>(a.logits) + r.row * a.vocabulary, a.vocabulary, r, [&](i64, float logit) { top = logit > top ? logit : top; });
  top = warp_reduce(top, Max());
  if (threadIdx.x % 32 == 0) a.tops[r.at] = top;
}

// The largest logit of a row, which all lanes of a warp get.
__device__ inline float top_of(const Sample &a, i64 row) {
  float top = -INFINITY;
  for (i64 i = threadIdx.x % 32; i < a.runs; i += 32) top = fmaxf(top, a.tops[row * a.runs + i]);
  return warp_reduce(top, Max());
}
// What the weights of a row are multiplied by in the exponent; 1 where the likeliest entry is taken.
__device__ inline bool is_greedy(const Drawing &o) { return o.temperature <= 0 || !(float(1 / o.temperature) < INFINITY); }
__device__ inline float inverse_of(const Drawing &o) { return is_greedy(o) ? 1.f : float(1 / o.temperature); }

template <class T>
__device__ void sample_masses(const Sample &a) {
  const Run r(a);
  if (!r.live) return;
  const T *z = static_cast<const T *>(a.logits) + r.row * a.vocabulary;
  const float top = top_of(a, r.row), inverse = inverse_of(a.rows[r.row]);
  const Weights<T> plain{z, a.vocabulary, top, 1.f}, w{z, a.vocabulary, top, inverse};
  double total = 0, mass = 0;
  i64 best = a.vocabulary;
  each_of_run(z, a.vocabulary, r, [&](i64 i, float logit) {
    total += plain.of(logit);
    if (inverse != 1) mass += w.of(logit);
    if (logit == top && i < best) best = i;
  });
  total = warp_reduce(total, Add());
  mass = inverse != 1 ? warp_reduce(mass, Add()) : total;
  best = warp_reduce(best, Min());
  if (threadIdx.x % 32 > 0) return;
  a.totals[r.at] = total;
  a.masses[r.at] = mass;
  a.bests[r.at] = best;
}

template <class T>
__device__ void sample(const Sample &a) {
  constexpr int groups = 32;
  __shared__ double masses[kSampleBlocks], grouped[groups], few[kSampleThreads / 32][15], sums[32];
  __shared__ i64 whole[32];
  __shared__ float entries[kSamplePiece];
  __shared__ int equals[kSampleBlocks], grouped_equals[groups];
  const Drawing o = a.rows[blockIdx.x];
  const i64 n = a.vocabulary, runs = a.runs, at = blockIdx.x * runs;
  const T *z = static_cast<const T *>(a.logits) + i64(blockIdx.x) * n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = kSampleThreads / 32;

  const float top = top_of(a, blockIdx.x);
  const bool greedy = is_greedy(o), cut = !greedy && (o.top_k > 0 || (o.top_p > 0 && o.top_p < 1) || o.min_p > 0);
  const Weights<T> w{z, n, top, inverse_of(o)};
  double total = 0, tempered = 0;
  i64 best = n;
  for (i64 i = threadIdx.x; i < runs; i += kSampleThreads) {
    total += a.totals[at + i];
    tempered += masses[i] = a.masses[at + i];
    equals[i] = 0;  // what is not cut has no edge
    best = a.bests[at + i] < best ? a.bests[at + i] : best;
  }
  total = block_reduce(total, Add(), sums);
  tempered = block_reduce(tempered, Add(), sums);
  const double lse = top + log(total);
  if (!(lse < INFINITY && lse > -INFINITY)) {  // the host sees it in the log-prob
    if (threadIdx.x == 0) {
      a.ids[blockIdx.x] = 0;
      a.logprobs[blockIdx.x] = NAN;
    }
    return;
  }
  if (greedy) {
    best = block_reduce(best, Min(), whole);
  } else {
    Kept kept{0, n};
    if (cut) {
      kept = keep(w, o, few, sums);
      for (i64 b = warp; b < runs; b += warps) {  // above the edge, and how many are on it
        double mass = 0;
        int on = 0;
        weigh(w, kept, b * kSampleBlock + lane * 8, 32 * 8, mass, on);
        mass = warp_reduce(mass, Add());
        on = warp_reduce(on, Add());
        if (lane == 0) {
          masses[b] = mass;
          equals[b] = on;
        }
      }
      __syncthreads();
    }
    const float edge = __uint_as_float(kept.bits);
    const i64 length = (runs + groups - 1) / groups;  // of a group of runs
    if (warp == 0) {
      double mass = 0;
      int on = 0;
      for (i64 b = lane * length; b < (lane + 1) * length && b < runs; b++) {
        mass += masses[b];
        on += equals[b];
      }
      grouped[lane] = mass;
      grouped_equals[lane] = on;
    }
    __syncthreads();
    double mass = 0;
    i64 left = kept.equal;
    for (int g = 0; g < groups; g++) {
      const i64 on = grouped_equals[g] < left ? grouped_equals[g] : left;
      mass += grouped[g] + double(on) * edge;
      left -= on;
    }
    // The group in which the token is, then the run, then the piece of it: all threads walk, it is short.
    Walk walk{o.uniform * mass, 0, kept.equal};
    const i64 begin = walk.to(grouped, grouped_equals, groups, edge) * length;
    const i64 run = (begin + walk.to(masses + begin, equals + begin, int(runs - begin < length ? runs - begin : length), edge)) * kSampleBlock;
    __syncthreads();
    if (warp == 0) {
      double mass = 0;
      int on = 0;
      weigh(w, kept, run + lane * kSamplePiece, 8, mass, on);
      grouped[lane] = mass;
      grouped_equals[lane] = on;
    }
    __syncthreads();
    const i64 from = run + walk.to(grouped, grouped_equals, 32, edge) * kSamplePiece;
    if (warp == 0) entries[lane] = w(from + lane);
    __syncthreads();
    // Within the piece one entry after the other.
    if (threadIdx.x == 0) {
      i64 chosen = -1;
      for (int i = 0; i < kSamplePiece && from + i < n; i++) {
        const float x = entries[i];
        const u32 bits = __float_as_uint(x);
        if (bits < kept.bits || (bits == kept.bits && walk.left-- <= 0) || !(x > 0)) continue;
        chosen = from + i;
        walk.before += x;
        if (walk.before > walk.target) break;
      }
      whole[0] = chosen < 0 ? 0 : chosen;
    }
    __syncthreads();
    best = whole[0];
  }
  if (threadIdx.x == 0) {
    a.ids[blockIdx.x] = int(best);
    a.logprobs[blockIdx.x] = !greedy && o.tempered ? float(double(wide(z[best]) - top) / o.temperature - log(tempered)) : float(wide(z[best]) - lse);
  }
}

}  // namespace gpu
}  // namespace agt
