// Drawing tokens.
#pragma once
#include "gpu_common.cuh"

namespace agt {
namespace gpu {

// The rule of the CPU's sample (row_kernels.h): the token at which the sum of the weights, in
// the order of ids, exceeds uniform × their total. Kept are those whose bits are above
// `bits`, and of those that equal it the first `equal`: weights are not negative, so their
// bits are in the order of their values.
struct Kept {
  u32 bits;
  i64 equal;
};

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

// A walk over masses in order to the one within which their sum exceeds target. It is a warp's: each
// lane has one mass.
struct Walk {
  double target, before;  // before: the sum of what is passed
  i64 left;               // of entries on the edge that are kept

  // The sum over the lanes before this one, and over all.
  template <class A>
  __device__ static A passed(A x, A &all) {
    A sum = 0;
    all = x;
    for (int o = 1; o < 32; o *= 2) {
      const A theirs = __shfl_xor_sync(kAll, all, o);
      if (threadIdx.x & o) sum += theirs;
      all += theirs;
    }
    return sum;
  }
  // What is kept of a lane's mass and of its entries on the edge.
  __device__ double kept(double mass, int on, float edge) const {
    int all;
    const i64 rest = left - passed(on, all);
    return mass + double(rest < 0 ? 0 : rest < on ? rest : i64(on)) * edge;
  }
  // The lane whose mass it is; −1: none has any.
  __device__ int to(double mass, int on, float edge) {
    const int lane = threadIdx.x % 32;
    const double here = kept(mass, on, edge);
    double all;
    int edges;
    const double sum = before + passed(here, all);
    const int earlier = passed(on, edges), first = warp_reduce(here > 0 && sum + here > target ? lane : 32, Min());
    const int chosen = first < 32 ? first : warp_reduce(here > 0 ? lane : -1, Max());  // rounding at the very end
    if (chosen < 0) return chosen;
    before = warp_reduce(lane == chosen ? sum : 0., Add());
    left -= warp_reduce(lane == chosen ? earlier : 0, Add());
    left = left > 0 ? left : 0;
    return chosen;
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
  for (i64 from = threadIdx.x % 32; from < a.runs; from += 8 * 32) {
    float of[8];  // asked for together
    for (int k = 0; k < 8; k++) of[k] = from + k * 32 < a.runs ? a.tops[row * a.runs + from + k * 32] : -INFINITY;
    for (int k = 0; k < 8; k++) top = fmaxf(top, of[k]);
  }
  return warp_reduce(top, Max());
}
// Whether the likeliest entry of a row is taken.
__device__ inline bool is_greedy(const Drawing &o) { return o.temperature <= 0 || !(float(1 / o.temperature) < INFINITY); }
// What a row's logits are multiplied by: 1/temperature, or 1.
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
  __shared__ double masses[kSampleBlocks], few[kSampleThreads / 32][15], sums[32];
  __shared__ i64 firsts[32];
  __shared__ int equals[kSampleBlocks];
  const Drawing o = a.rows[blockIdx.x];
  const i64 n = a.vocabulary, runs = a.runs, at = blockIdx.x * runs;
  const T *z = static_cast<const T *>(a.logits) + i64(blockIdx.x) * n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = kSampleThreads / 32;

  double total = 0, tempered = 0;
  i64 best = n;
  for (i64 i = threadIdx.x; i < runs; i += kSampleThreads) {
    total += a.totals[at + i];
    tempered += masses[i] = a.masses[at + i];
    equals[i] = 0;  // what is not cut has no edge
    best = a.bests[at + i] < best ? a.bests[at + i] : best;
  }
  const float top = top_of(a, blockIdx.x);
  const bool greedy = is_greedy(o), cut = !greedy && (o.top_k > 0 || (o.top_p > 0 && o.top_p < 1) || o.min_p > 0);
  const Weights<T> w{z, n, top, inverse_of(o)};
  total = block_reduce(total, Add(), sums);
  tempered = block_reduce(tempered, Add(), sums);
  best = block_reduce(best, Min(), firsts);
  const double lse = top + log(total);
  if (!(lse < INFINITY && lse > -INFINITY)) {  // the host sees it in the log-prob
    if (threadIdx.x == 0) {
      a.ids[blockIdx.x] = 0;
      a.logprobs[blockIdx.x] = NAN;
    }
    return;
  }
  if (!greedy) {
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
    if (warp > 0) return;
    // The group of runs in which the token is, then the run, the piece of it, and the entry.
    const float edge = __uint_as_float(kept.bits);
    const i64 length = (runs + 31) / 32;  // of a group
    double mass = 0;
    int on = 0;
    for (i64 b = lane * length; b < (lane + 1) * length && b < runs; b++) {
      mass += masses[b];
      on += equals[b];
    }
    Walk walk{0, 0, kept.equal};
    double all;
    Walk::passed(walk.kept(mass, on, edge), all);
    walk.target = o.uniform * all;
    const i64 begin = max(walk.to(mass, on, edge), 0) * length;
    const bool has = lane < length && begin + lane < runs;
    const i64 run = (begin + max(walk.to(has ? masses[begin + lane] : 0., has ? equals[begin + lane] : 0, edge), 0)) * kSampleBlock;
    mass = 0;
    on = 0;
    weigh(w, kept, run + lane * kSamplePiece, 8, mass, on);
    const i64 from = run + max(walk.to(mass, on, edge), 0) * kSamplePiece;
    const float x = w(from + lane);
    const u32 bits = __float_as_uint(x);
    best = from + max(walk.to(bits > kept.bits ? double(x) : 0., x > 0 && bits == kept.bits ? 1 : 0, edge), 0);
  }
  if (threadIdx.x == 0) {
    a.ids[blockIdx.x] = int(best);
    a.logprobs[blockIdx.x] = !greedy && o.tempered ? float(double(wide(z[best]) - top) / o.temperature - log(tempered)) : float(wide(z[best]) - lse);
  }
}

}  // namespace gpu
}  // namespace agt
