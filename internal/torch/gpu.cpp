//go:build libtorch

// Our kernels on a device: what each is called with.
#include "gpu.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "blocks.h"
#include "shim.h"
#include "tensors.h"
#include "upload.h"

namespace agt {
namespace gpu {
namespace {

using at::Tensor;

// How each kind of device runs and records kernels; null: not at all.
std::atomic<Launch> on_cuda{nullptr}, on_test_device{nullptr};
std::atomic<Record> records_cuda{nullptr}, records_test_device{nullptr};

Launch launcher(const Tensor &x) { return x.is_cuda() ? on_cuda.load() : x.is_privateuseone() ? on_test_device.load() : nullptr; }

struct Grid {
  int64_t x, y = 1, z = 1;
};

void launch(const char *kernel, const Tensor &of, at::ScalarType type, Grid g, int threads, const void *args, at::TensorList used) {
  for (auto &t : used)
    TORCH_CHECK(!t.defined() || (t.device() == of.device() && t.is_contiguous()), kernel, " is given a tensor ", t.sizes(), " on ", t.device(),
                ", one beside it is on ", of.device(), "; all must be contiguous on one device");
  if (g.x * g.y * g.z == 0) return;
  TORCH_CHECK(g.x <= INT32_MAX && g.y <= 65535 && g.z <= 65535, kernel, " is asked for a grid of ", g.x, " × ", g.y, " × ", g.z);
  launcher(of)({kernel, type, unsigned(g.x), unsigned(g.y), unsigned(g.z), unsigned(threads), args}, used);
}

const void *data(const Tensor &t) { return t.defined() ? t.const_data_ptr() : nullptr; }
template <class A>
const A *data(const Tensor &t) { return t.defined() ? t.const_data_ptr<A>() : nullptr; }
void *out(Tensor &t) { return t.mutable_data_ptr(); }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void set_cuda(Launch l, Record r) {
  records_cuda = r;
  on_cuda = l;
}
void set_test_device(Launch l, Record r) {
  records_test_device = r;
  on_test_device = l;
}
std::unique_ptr<Graph> record(at::Device device, const std::function<void()> &work) {
  return (device.is_cuda() ? records_cuda : records_test_device).load()(device, work);
}
void wait(at::Device device) { c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize(); }

bool have(const Tensor &x) {
  return launcher(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && (!x.is_cuda() || loaded(x.get_device()));
}
bool takes(const Tensor &x, int64_t n) {
  return have(x) && n % 8 == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

void embed(const Tensor &table, const Tensor &ids, double scale, Tensor &y) {
  int64_t rows = y.size(0), n = table.size(1);
  TORCH_CHECK(n % 8 == 0 && ids.numel() == rows && y.size(1) == n, "embed: ", table.sizes(), ", ", ids.sizes(), ", ", y.sizes());
  Embed a{data(table), data<int32_t>(ids), out(y), rows, n, float(scale)};
  launch("embed", y, y.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {table, ids, y});
}

namespace {
// u begins `from` numbers behind the first of a tensor's.
void gate_rows(const Tensor &g, int64_t g_stride, const Tensor &u, int64_t from, int64_t u_stride, bool gelu, Tensor &y) {
  const int64_t n = y.size(-1), rows = n ? y.numel() / n : 0;
  Gate a{data(g), static_cast<const char *>(data(u)) + from * u.element_size(), out(y), rows, n, g_stride, u_stride, int(gelu)};
  launch("gate", y, y.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {g, u, y});
}
}  // namespace

void gate(const Tensor &x, bool gelu, Tensor &y) {
  const int64_t n = y.size(-1);
  TORCH_CHECK(n % 8 == 0 && x.numel() == 2 * y.numel() && x.size(-1) == 2 * n, "gate: ", x.sizes(), ", ", y.sizes());
  gate_rows(x, 2 * n, x, n, 2 * n, gelu, y);
}

void gate_columns(const Tensor &g, const Tensor &u, int64_t from, bool gelu, Tensor &y) {
  const int64_t n = y.size(1), wide = u.size(1);
  TORCH_CHECK(n % 8 == 0 && wide % 8 == 0 && from % 8 == 0 && g.sizes() == y.sizes() && u.size(0) == y.size(0) && from + n <= wide,
              "gate: ", g.sizes(), ", columns from ", from, " of ", u.sizes(), ", ", y.sizes());
  gate_rows(g, n, u, from, wide, gelu, y);
}

bool takes_norm_gradient(const Tensor &x, int64_t n) { return takes(x, n) && n <= kLongRow && x.numel() > 0; }

Tensor rms_norm_gradient(const Tensor &x, const Tensor &w, const Tensor &g, Rms r, Tensor &dx) {
  int64_t n = w.size(0), rows = x.numel() / n, blocks = std::min<int64_t>(n <= kShortRow ? divide_up(rows, kRowThreads / 32) : rows, kSumBlocks);
  Tensor sums = at::empty({blocks, n}, x.options().dtype(at::kFloat));
  NormGradient a{data(x), data(w), data(g), out(dx), static_cast<float *>(out(sums)), rows, n, float(r.eps), float(r.offset)};
  launch(n <= kShortRow ? "norm_rows_gradient" : "norm_long_gradient", x, x.scalar_type(), {blocks}, kRowThreads, &a, {x, w, g, dx, sums});
  return sums.sum(0).to(w.scalar_type());
}

void gate_gradient(const Tensor &x, const Tensor &g, Tensor &dx) {
  int64_t n = x.size(-1) / 2, rows = g.numel() / n;
  GateGradient a{data(x), data(g), out(dx), rows, n};
  launch("gate_gradient", x, x.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {x, g, dx});
}

void turn(const Tensor &x, const Tensor &cos, const Tensor &sin, bool neighbours, double sign, Tensor &y) {
  int64_t dim = x.size(2), pairs = x.numel() / 2;
  Turn a{data(x), data<float>(cos), data<float>(sin), out(y), pairs, int(x.size(1)), int(dim), int(cos.size(1)), int(neighbours), float(sign)};
  launch("turn", x, x.scalar_type(), {divide_up(pairs, 8 * kDecodeThreads)}, kDecodeThreads, &a, {x, cos, sin, y});
}

bool takes_few(int64_t rows, int64_t k, int64_t n, at::ScalarType type) {
  return type == at::kBFloat16 && (rows == 1 || rows == 2 || rows == kFewRows) && k % 8 == 0 && n % 2 == 0 && rows * k * int64_t(at::elementSize(type)) <= few_bytes(int(rows));
}

void product(const Tensor &x, const Tensor *add, const Tensor &norm, Rms r, const Tensor &w, const Tensor &bias, bool gated, Tensor *sum, Tensor &y) {
  int64_t rows = x.size(0), k = x.size(1), n = w.size(0), units = gated ? n / 2 : divide_up(n, 2);
  TORCH_CHECK(w.size(1) == k && k % 8 == 0 && y.size(0) == rows && y.size(1) == (gated ? units : n) && (rows == 1 || rows == 2 || rows == kFewRows),
              "product: ", x.sizes(), ", ", w.sizes(), ", ", y.sizes());
  constexpr int warps = kRowThreads / 32;
  int split = 1;
  while (split < warps && 2 * units * split <= kFewBlocks * warps && k >= 512 * split) split *= 2;
  // All blocks are there at once, and each has as much to do.
  const int64_t needed = divide_up(units * split, warps), rounds = divide_up(needed, kFewBlocks);
  Product a{data(x), add ? data(*add) : nullptr, data(norm), data(w), data(bias), sum ? out(*sum) : nullptr, out(y), n, k, split, int(gated),
            float(r.eps), float(r.offset)};
  std::vector<Tensor> used{x, norm, w, bias, y};
  if (add) used.insert(used.end(), {*add, *sum});
  std::string name = std::string(norm.defined() ? "normed_product" : "product") + std::to_string(rows);
  launch(name.c_str(), x, x.scalar_type(), {divide_up(needed, rounds)}, kRowThreads, &a, used);
}

namespace {
void launch_norm(const Norm &a, const Tensor &of, at::TensorList used) {
  if (a.n <= kWarpRow)
    launch("norm_rows", of, of.scalar_type(), {divide_up(a.rows, kDecodeThreads / 32)}, kDecodeThreads, &a, used);
  else
    launch("norm_long", of, of.scalar_type(), {a.rows}, int(std::min<int64_t>(divide_up(a.n, 8 * 32) * 32, kNormThreads)), &a, used);
}
}  // namespace

void rms_norm(const Tensor &x, const Tensor *add, const Tensor &w, Tensor *sum, Rms r, Tensor &y) {
  int64_t n = w.size(0), rows = n ? x.numel() / n : 0;
  Norm a{data(x), add ? data(*add) : nullptr, data(w), sum ? out(*sum) : nullptr, out(y), rows, n, n, float(r.eps), float(r.offset)};
  std::vector<Tensor> used{x, w, y};
  if (add) used.insert(used.end(), {*add, *sum});
  launch_norm(a, x, used);
}

void norm_columns(Tensor &x, int64_t from, const Tensor &w, Rms r) {
  int64_t n = w.size(0), wide = x.size(1);
  TORCH_CHECK(n % 8 == 0 && from % 8 == 0 && wide % 8 == 0 && from + n <= wide, "norm of ", n, " columns from ", from, " on, of ", wide);
  void *at = static_cast<char *>(out(x)) + from * int64_t(x.element_size());
  launch_norm({at, nullptr, data(w), nullptr, at, x.size(0), n, wide, float(r.eps), float(r.offset)}, x, {x, w});
}

void heads(const Tensor &x, const HeadRule &r, const Tensor &slots, Tensor &kpool, Tensor &vpool, Tensor &q) {
  int64_t rows = x.size(0), kv = kpool.size(2), dim = x.size(2), n = q.size(1), half = r.k.cos.defined() ? r.k.cos.size(1) : 0;
  const int64_t stored = (r.gated ? 2 : 1) * n + (r.shared ? 0 : r.keys_are_values ? kv : 2 * kv);
  TORCH_CHECK(dim % 8 == 0 && dim <= kHeadSize && x.size(1) == stored, "heads: ", x.sizes(), " for ", n, " of queries and ", kv, " of keys");
  Heads a{data(x), data(r.bias), data(r.q_norm), data(r.k_norm), data<float>(r.q.cos), data<float>(r.q.sin), data<float>(r.k.cos),
          data<float>(r.k.sin), data<int32_t>(r.positions), reinterpret_cast<const long long *>(data<int64_t>(slots)), out(q), out(kpool),
          out(vpool), rows, int(n), int(kv), int(dim), int(half), int(r.neighbours), int(r.gated), int(r.shared),
          int(r.keys_are_values), int(r.value_norm), float(r.eps), float(r.offset)};
  const int64_t all = rows * (n + (r.shared ? 0 : 2 * kv));
  launch(dim > kHeadPart ? "long_heads" : "heads", x, x.scalar_type(), {divide_up(all, kDecodeThreads / 32)}, kDecodeThreads, &a,
         {x, r.bias, r.q_norm, r.k_norm, r.q.cos, r.q.sin, r.k.cos, r.k.sin, r.positions, slots, q, kpool, vpool});
}

void conv_step(const Tensor &x, const Tensor &w, const Tensor &bias, bool gated, Tensor &windows, const StateSlots &slots, Tensor &y) {
  const int64_t rows = x.size(0), channels = w.size(0), taps = w.size(2);
  for (const Tensor &t : {w, bias, windows, y})
    TORCH_CHECK(!t.defined() || t.scalar_type() == x.scalar_type(), "convolution: ", t.scalar_type(), " beside ", x.scalar_type());
  TORCH_CHECK(x.size(1) >= (gated ? 3 : 1) * channels && windows.size(1) == taps - 1 && windows.size(2) == channels &&
                  y.sizes() == at::IntArrayRef({rows, channels}),
              "convolution: ", x.sizes(), ", ", w.sizes(), ", ", windows.sizes(), ", ", y.sizes());
  ConvStep a{data(x), data(w), data(bias), out(windows), out(y), data<int32_t>(slots.own), data<int32_t>(slots.copies), rows, channels, x.size(1),
             int(taps), int(gated)};
  launch("conv_step", x, x.scalar_type(), {divide_up(channels, kDecodeThreads), rows}, kDecodeThreads, &a,
         {x, w, bias, windows, slots.own, slots.copies, y});
}

void delta_step(const Tensor &qkv, const Tensor &x, const DeltaRule &r, Tensor &states, const StateSlots &slots, Tensor &y) {
  const auto &h = r.heads;
  for (const Tensor &t : {qkv, r.norm, y})
    TORCH_CHECK(t.scalar_type() == x.scalar_type(), "delta rule: ", t.scalar_type(), " beside ", x.scalar_type());
  const int64_t rows = qkv.size(0), channels = qkv.size(1), values = h.value_heads * h.value_dim;
  TORCH_CHECK(channels == 2 * h.key_heads * h.key_dim + values && x.size(1) == channels + values + 2 * h.value_heads && h.key_dim <= kMostDelta &&
                  h.value_dim <= kMostDelta && y.sizes() == at::IntArrayRef({rows, values}) && states.numel() % (values * h.key_dim) == 0,
              "delta rule: ", qkv.sizes(), ", ", x.sizes(), ", ", states.sizes(), ", ", y.sizes());
  const char *gate = static_cast<const char *>(data(x)) + channels * int64_t(x.element_size());
  const char *strength = gate + values * int64_t(x.element_size()), *decay = strength + h.value_heads * int64_t(x.element_size());
  DeltaStep a{data(qkv), gate, strength, decay, data<float>(r.rate), data<float>(r.dt_bias), data(r.norm), states.mutable_data_ptr<float>(), out(y),
              data<int32_t>(slots.own), data<int32_t>(slots.copies), rows, x.size(1), int(h.key_heads), int(h.value_heads), int(h.key_dim),
              int(h.value_dim), float(r.eps)};
  const int64_t columns = divide_up(h.value_dim, 32) * 32;
  launch("delta_step", x, x.scalar_type(), {h.value_heads, rows}, int(kDeltaThreads / columns * columns), &a,
         {qkv, x, r.rate, r.dt_bias, r.norm, states, slots.own, slots.copies, y});
}

void gate_heads(Tensor &y, const Tensor &x) {
  const int64_t rows = y.size(0), heads = y.size(1), dim = y.size(2);
  TORCH_CHECK(dim % 8 == 0 && x.size(0) == rows && x.size(1) >= 2 * heads * dim, "gates of heads ", y.sizes(), " in ", x.sizes());
  GateHeads a{out(y), data(x), rows, x.size(1), int(heads), int(dim)};
  launch("gate_heads", y, y.scalar_type(), {divide_up(y.numel(), 8 * kDecodeThreads)}, kDecodeThreads, &a, {y, x});
}

namespace {
int64_t splits_of(int64_t longest, int64_t window) { return decode_splits(window > 0 ? std::min(window, longest) : longest); }
}  // namespace

int64_t decode_parts(int64_t rows, int64_t heads, int64_t dim, int64_t longest, int64_t window) {
  int64_t splits = splits_of(longest, window);
  return splits > 1 ? rows * heads * splits * (dim + 2) : 0;
}

void decode(const Tensor &q, const Tensor &kpool, const Tensor &vpool, const Decoding &d, Look look, Tensor &parts, Tensor &to) {
  int64_t heads = q.size(1), kv = kpool.size(2), dim = q.size(2), group = heads / kv;
  TORCH_CHECK(dim % 8 == 0 && dim <= kHeadSize, "heads of ", dim, " are not decoded by our kernel");
  int64_t n = d.rows.numel(), splits = splits_of(d.longest, look.window);
  TORCH_CHECK(parts.numel() >= decode_parts(n, heads, dim, d.longest, look.window), "decoding has ", parts.numel(), " numbers to work with");
  const bool long_heads = dim > kHeadPart;
  int lanes = 1;
  while (lanes < 32 && lanes * 8 < dim) lanes *= 2;
  // The heads that share a key are computed together, which reads it once, unless that makes too few
  // blocks for the device.
  int g = 1;
  while (g < group && g < (long_heads ? 2 : kDecodeGroup)) g *= 2;
  while (g > 1 && splits * kv * divide_up(group, g) * n < kManyBlocks) g /= 2;
  Decode a{data(q), data(kpool), data(vpool), out(to), static_cast<float *>(out(parts)), data<int32_t>(d.rows), data<int32_t>(d.contexts), data<int32_t>(d.width),
           data<int32_t>(d.table), data<float>(look.sinks), splits, look.window, int(heads), int(kv), int(dim), int(kpool.size(1)), lanes,
           float(look.scale_of(q) * 1.4426950408889634)};
  const std::string name = (long_heads ? "long_decode" : "decode") + std::to_string(g);
  std::vector<Tensor> used{q, kpool, vpool, to, parts, d.rows, d.contexts, d.width, d.table, look.sinks};
  launch(name.c_str(), q, q.scalar_type(), {splits, kv * divide_up(group, g), n}, kDecodeThreads, &a, used);
  if (splits > 1) launch("combine", q, q.scalar_type(), {heads, n}, kDecodeThreads, &a, used);
}

RowExperts::RowExperts(int64_t rows, int64_t active, int64_t experts, at::Device device) {
  auto ints = at::TensorOptions().dtype(at::kInt).device(device);
  ids = at::empty({rows, active}, ints);
  shares = at::empty({rows, active}, ints.dtype(at::kFloat));
  first = at::empty({experts + 1}, ints);
  used = at::empty({experts + 1}, ints);
  order = at::empty({rows * active}, ints);
}

bool takes_experts(const Tensor &x, int64_t experts, int64_t active, int64_t size) {
  return takes(x, x.size(1)) && size % 8 == 0 && experts <= kMostExperts && active <= kMostChosen &&
         x.size(0) * active <= kRowsOfExpert * experts;
}
bool takes_choice(const Tensor &z, const agt_router &how) {
  return have(z) && z.size(1) <= kMostExperts && how.active <= kMostChosen && how.groups <= kMostGroups;
}

void choose_experts(const Tensor &z, const Choosing &c, RowExperts &to) {
  const auto &how = c.how;
  const int64_t rows = z.size(0), n = z.size(1);
  TORCH_CHECK(how.active <= n && n <= kMostExperts && how.active <= kMostChosen && how.groups <= kMostGroups && to.ids.sizes() == at::IntArrayRef({rows, how.active}),
              how.active, " of logits ", z.sizes(), " for ids ", to.ids.sizes());
  const double rest = how.epsilon > 0 ? how.epsilon : how.sigmoid ? 1e-20 : 0;
  ChooseExperts a{data(z), data<float>(c.correction), data<float>(c.factors), data<int32_t>(c.contexts), static_cast<int *>(out(to.ids)),
                  static_cast<float *>(out(to.shares)), rows, int(n), int(how.active), int(std::max<int64_t>(how.groups, 1)), int(how.top_groups),
                  int(how.sigmoid), int(how.normalise), int(c.round), float(how.scale), float(rest)};
  launch("choose_experts", z, z.scalar_type(), {divide_up(rows, kDecodeThreads / 32)}, kDecodeThreads, &a,
         {z, c.correction, c.factors, c.contexts, to.ids, to.shares});
}

void order_experts(RowExperts &of) {
  TORCH_CHECK(of.experts() <= kMostExperts && of.ids.numel() <= kRowsOfExpert * of.experts(), of.ids.numel(), " pairs of ", of.experts(), " experts");
  OrderExperts a{data<int32_t>(of.ids), static_cast<int *>(out(of.first)), static_cast<int *>(out(of.used)),
                 static_cast<int *>(out(of.order)), int(of.ids.numel()), int(of.experts())};
  launch("order_experts", of.ids, at::ScalarType::Undefined, {1}, kMostExperts, &a, {of.ids, of.first, of.used, of.order});
}

void expert_product(const Tensor &x, int64_t pairs_per_row, const ExpertWeights &e, const RowExperts &of, Tensor &y) {
  const int64_t pairs = of.ids.numel(), k = x.size(1), n = e.w.size(e.columns ? 2 : 1);
  const bool gated = e.gating != kNotGated;
  TORCH_CHECK(e.w.dim() == 3 && e.w.size(0) == of.experts() && e.w.size(e.columns ? 1 : 2) == k && k % 8 == 0 && n % 8 == 0 &&
                  x.size(0) * pairs_per_row == pairs && y.sizes() == at::IntArrayRef({pairs, gated ? n / 2 : n}),
              "experts: ", x.sizes(), ", ", e.w.sizes(), ", ", y.sizes(), " for ", pairs, " pairs");
  auto same = [&](const Tensor &t) { return !t.defined() || t.scalar_type() == x.scalar_type(); };
  TORCH_CHECK(same(e.w) && same(e.bias) && same(y) && reinterpret_cast<uintptr_t>(data(e.w)) % 16 == 0,
              "experts: rows are ", x.scalar_type(), ", weights ", e.w.scalar_type());
  TORCH_CHECK(!gated || (e.gating == kClamped) == e.columns, "gate and up are rows that follow each other, or columns in turn");
  ExpertProduct a{data(x), data(e.w), data(e.bias), data<int32_t>(of.first), data<int32_t>(of.used), data<int32_t>(of.order), out(y), k, n,
                  int(pairs_per_row), e.gating, float(e.alpha), float(e.limit)};
  const int64_t pieces = e.columns ? divide_up(n, kExpertColumns) : gated ? divide_up(n / 2, kExpertRows / 2) : divide_up(n, kExpertRows);
  launch(e.columns ? "expert_columns" : "expert_rows", x, x.scalar_type(), {pieces, std::min(pairs, of.experts())}, kExpertThreads, &a,
         {x, e.w, e.bias, of.first, of.used, of.order, y});
}

void sum_experts(const Tensor &x, const RowExperts &of, const Tensor &beside, const Tensor &gate, Tensor &y) {
  const int64_t rows = y.size(0), n = y.size(1), active = of.ids.size(1);
  TORCH_CHECK(n % 8 == 0 && x.numel() == rows * active * n && of.ids.size(0) == rows, "the sum of experts: ", x.sizes(), ", ", y.sizes());
  SumExperts a{data(x), data(beside), data(gate), data<int32_t>(of.ids), data<float>(of.shares), out(y), rows, n, int(active), int(of.experts())};
  launch("sum_experts", y, y.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a,
         {x, beside, gate, of.ids, of.shares, y});
}

Tensor experts(const Tensor &x, const Tensor &ids, const Tensor &weights, const ExpertWeights &inner, const ExpertWeights &outer) {
  const int64_t active = ids.size(1), pairs = ids.numel(), size = outer.w.size(outer.columns ? 1 : 2);
  RowExperts of(x.size(0), active, inner.w.size(0), x.device());
  of.ids.copy_(ids);
  of.shares.copy_(weights.to(x.scalar_type()));
  order_experts(of);
  Tensor in = x.contiguous(), y = at::empty_like(in);
  Tensor act = at::empty({pairs, size}, x.options()), each = at::empty({pairs, x.size(1)}, x.options());
  expert_product(in, active, inner, of, act);
  expert_product(act, 1, outer, of, each);
  sum_experts(each, of, {}, {}, y);
  return y;
}

static_assert(sizeof(agt_sampling) == sizeof(Drawing), "the host's rows are the device's");

namespace {
int64_t runs_of(int64_t vocabulary) { return divide_up(vocabulary, kSampleBlock); }
}  // namespace

int64_t sample_parts(int64_t rows, int64_t vocabulary) { return rows * runs_of(vocabulary) * 4; }

void sample(const Tensor &z, const Tensor &rows, Tensor &parts, Tensor &drawn) {
  int64_t n = z.size(0), v = z.size(1), runs = runs_of(v);
  TORCH_CHECK(v <= int64_t(kSampleBlock) * kSampleBlocks, "a vocabulary of ", v);
  TORCH_CHECK(rows.nbytes() == n * sizeof(Drawing) && drawn.numel() == 2 * n, "sample: ", rows.sizes(), " and ", drawn.sizes(), " for ", n, " rows");
  TORCH_CHECK(parts.scalar_type() == at::kDouble && parts.numel() >= sample_parts(n, v), "sample has ", parts.numel(), " numbers to work with");
  float *p = static_cast<float *>(out(drawn));
  auto *work = static_cast<double *>(out(parts));
  auto piece = [&](int i) { return work + i * n * runs; };
  Sample a{data(z), static_cast<const Drawing *>(data(rows)), reinterpret_cast<int *>(p), p + n, piece(0), piece(1),
           reinterpret_cast<long long *>(piece(2)), reinterpret_cast<float *>(piece(3)), v, runs};
  const Grid each{divide_up(runs, kRowThreads / 32), n};
  const std::vector<Tensor> used{z, rows, parts, drawn};
  launch("sample_tops", z, z.scalar_type(), each, kRowThreads, &a, used);
  launch("sample_masses", z, z.scalar_type(), each, kRowThreads, &a, used);
  launch("sample", z, z.scalar_type(), {n}, kSampleThreads, &a, used);
}

void sample(const Tensor &logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs) {
  Tensor z = logits.contiguous();
  Tensor how = at::from_blob(const_cast<agt_sampling *>(rows), {int64_t(n * sizeof(agt_sampling))}, at::kByte).to(z.device());
  Tensor drawn = at::empty({2, n}, z.options().dtype(at::kFloat));  // read with one copy
  Tensor parts = at::empty({sample_parts(n, z.size(1))}, z.options().dtype(at::kDouble));
  sample(z, how, parts, drawn);
  Tensor host = drawn.to(at::kCPU);
  std::memcpy(ids, host.const_data_ptr(), n * sizeof(int32_t));
  std::memcpy(logprobs, host.const_data_ptr<float>() + n, n * sizeof(float));
}

void head(const Tensor &z, const Tensor &targets, const Tensor &scale, Tensor &lp, Tensor &entropy, Tensor &lse) {
  Head a{data(z), reinterpret_cast<const long long *>(data<int64_t>(targets)), data<float>(scale), static_cast<float *>(out(lp)),
         static_cast<float *>(out(entropy)), static_cast<float *>(out(lse)), z.size(1)};
  launch("head", z, z.scalar_type(), {z.size(0)}, kRowThreads, &a, {z, targets, scale, lp, entropy, lse});
}

void head_gradient(Tensor &z, const Tensor &targets, const Tensor &scale, const Tensor &lse, const Tensor &entropy, const Tensor &g,
                   const Tensor &ge) {
  HeadGradient a{out(z), reinterpret_cast<const long long *>(data<int64_t>(targets)), data<float>(scale), data<float>(lse),
                 data<float>(entropy), data<float>(g), data<float>(ge), z.size(1)};
  launch("head_gradient", z, z.scalar_type(), {z.size(0)}, kRowThreads, &a, {z, targets, scale, lse, entropy, g, ge});
}

void dequantise_blocks(const BlockFormat &f, const agt_bytes *parts, int n, Tensor &y) {
  const std::string kernel = std::string("dequantise_") + f.name;
  Tensor books = upload(f.codebooks ? codebooks() : nullptr, CODEBOOKS, y.device());
  Tensor held = at::empty({std::min(UPLOAD_PIECE, total(parts, n))}, y.options().dtype(at::kByte));  // the blocks of a piece
  auto *to = static_cast<char *>(out(y));
  for_each_piece(parts, n, f.bytes, y.device(), [&](const Tensor &piece, int64_t from) {
    Tensor blocks = held.narrow(0, 0, piece.numel());
    blocks.copy_(piece, /*non_blocking=*/true);
    const int64_t before = from / f.bytes * f.values * int64_t(y.element_size());
    DequantiseBlocks a{data<uint8_t>(blocks), static_cast<const signed char *>(data(books)), to + before, piece.numel() / f.bytes};
    launch(kernel.c_str(), y, y.scalar_type(), {divide_up(a.blocks, kDecodeThreads)}, kDecodeThreads, &a, {blocks, books, y});
  });
}

void dequantise_codes(const agt_codes &c, Tensor &y) {
  TORCH_CHECK(c.count * c.rows <= INT32_MAX && c.cols <= INT32_MAX, "codes of ", c.count, " times ", c.rows, " times ", c.cols);
  const at::Device on = y.device();
  Tensor bytes = upload(static_cast<const uint8_t *>(c.data), c.bytes, on), scales = upload(c.scales, c.n_scales, on),
         zeros = upload(c.zeros, c.n_zeros, on), groups = upload(c.groups, c.n_groups, on);
  DequantiseCodes a{data<uint8_t>(bytes), static_cast<const float *>(data(scales)), static_cast<const float *>(data(zeros)),
                    static_cast<const int *>(data(groups)), out(y), c.count, c.rows, c.cols, c.stride, c.across, c.high, c.wide,
                    c.transposed, c.bits, c.order, c.meaning, c.rounding};
  const int64_t tiles = c.count * divide_up(c.rows, kCodeTile) * divide_up(c.cols, kCodeTile);
  launch("dequantise_codes", y, y.scalar_type(), {tiles}, kRowThreads, &a, {bytes, scales, zeros, groups, y});
}

}  // namespace gpu
}  // namespace agt
