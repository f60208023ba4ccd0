//go:build libtorch

// One step of a decoder on a CPU, from token ids to logits, in one call: the threads
// start once, and meet at a barrier between two operations. What it computes, and where it
// rounds, is what the operations of shim.cpp do one by one; see network.hidden in package
// policy for the order.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <omp.h>

#include <array>
#include <memory>
#include <vector>

#include "decoder.h"
#include "decoder_attention.h"
#include "decoder_experts.h"
#include "decoder_recurrent.h"
#include "guard.h"
#include "own_panels.h"
#include "shim.h"
#include "tensors.h"

namespace at::native {  // of libtorch, in none of its headers
void *data_ptr_from_mkldnn(const Tensor &);
int64_t nbytes_from_mkldnn(const Tensor &);
}  // namespace at::native

namespace agt {
namespace {

using at::Tensor;

// Whether a packed weight is in panels that a kernel of ours reads: whether its numbers are where
// they would be, in every row and column of w at least once.
bool in_panels(const Tensor &packed, const Tensor &w) {
  if (own_head(packed)) return true;
  if (!packed.is_mkldnn() || w.dim() != 2 || !native(w)) return false;
  const bool f32 = w.scalar_type() == at::kFloat;
  if (!f32 && w.scalar_type() != at::kBFloat16) return false;
  if (f32 ? !kernels().f.panel : !kernels().b.panel) return false;
  const int64_t n = w.size(0), k = w.size(1), group = f32 ? 1 : 2, size = 4 / group, panels = (n + PANEL - 1) / PANEL;
  const int64_t bytes = at::native::nbytes_from_mkldnn(packed);
  if (k % 2 != 0 || bytes % (panels * PANEL * size) != 0 || bytes / (panels * PANEL * size) < k) return false;
  const int64_t stride = bytes / size / panels;
  Tensor plain = w.contiguous();
  const char *got = static_cast<const char *>(at::native::data_ptr_from_mkldnn(packed)), *want = static_cast<const char *>(plain.const_data_ptr());
  auto same = [&](int64_t row, int64_t col) {
    const int64_t at = row / PANEL * stride + (col / group * PANEL + row % PANEL) * group + col % group;
    return memcmp(got + at * size, want + (row * k + col) * size, size_t(size)) == 0;
  };
  for (int64_t i = 0; i < std::max(n, k); i++)
    for (int64_t j : {i, i * 7 + 3, i * 31 + 17})
      if (!same(i % n, j % k)) return false;
  return true;
}

Weight weight_of(const Tensor &w, const Tensor &bias) {
  Weight out;
  if (bias.defined()) out.bias = bias.to(at::kFloat).contiguous();
  out.hold = w;
  if (!w.defined()) return out;
  if (const PanelHead *own = own_head(w)) {
    out.n = own->n;
    out.k = own->k;
    out.stride = own->stride();
    out.data = own + 1;
    return out;
  }
  if (w.scalar_type() == at::kByte) {
    QuantHead head;
    out.data = w.const_data_ptr();
    memcpy(&head, out.data, sizeof head);
    TORCH_CHECK(head.magic == QuantHead::MAGIC, "decoder: these bytes are no weight");
    out.quant = reinterpret_cast<const QuantPanel *>(static_cast<const char *>(out.data) + sizeof head);
    out.n = head.n;
    out.k = head.k;
    return out;
  }
  out.n = w.size(0);
  out.k = w.size(1);
  int64_t panels = (out.n + PANEL - 1) / PANEL, size = w.scalar_type() == at::kFloat ? 4 : 2;
  out.data = at::native::data_ptr_from_mkldnn(w);
  out.stride = at::native::nbytes_from_mkldnn(w) / size / panels;
  return out;
}

// A step's layers, one after the other, by one thread.
template <class S>
struct Layers : Run<S> {
  using Run<S>::Run, Run<S>::d, Run<S>::b, Run<S>::step, Run<S>::rows, Run<S>::hidden, Run<S>::kn, Run<S>::share, Run<S>::of;
  int64_t rules = 0, routed = 0;  // layers with the gated delta rule, and with experts, that were computed
  const std::vector<LowRank> none{};

  const std::vector<LowRank> &pairs(const Layer &l, Slot slot) const {
    return step.pairs.empty() ? none : step.pairs[(&l - d.layers.data()) * SLOTS + slot];
  }

  // attended = attention or a recurrent mixer of h.
  void mix(const Layer &l) {
    this->product(l.qkv, b.h.data(), b.mixed.data(), l.qkv.n, pairs(l, QKV));
    if (l.recurrent.delta()) {
      RecurrentRun<S>{*this, l.recurrent, l.qkv.n, rules++}.gated_delta();
    } else if (l.recurrent.taps > 0) {
      RecurrentRun<S>{*this, l.recurrent, l.qkv.n, 0}.short_conv();
    } else {
      AttentionRun<S> attention{*this, l.attention, l.qkv.n};
      attention.turn();
      attention.attend();
    }
  }

  // y = the dense MLP of h, its experts, or both added up.
  void feed_forward(const Layer &l) {
    const bool experts = l.experts.count > 0;
    S *dense = experts ? b.beside.data() : b.y.data();
    if (l.inner() > 0) {
      this->gated(l.gate_up, l.gelu, b.h.data(), pairs(l, GATE_UP));
      this->product(l.down, b.act.data(), dense, hidden, pairs(l, DOWN));
      if (l.mlp_gate.defined()) share(rows, [&](int64_t r) { gate(l, r, dense + r * hidden); });
    }
    if (!experts) return;
    int32_t *chosen = step.chosen ? step.chosen + routed++ * step.rows * l.experts.active : nullptr;
    ExpertsRun<S>{*this, l.experts}.compute(chosen, l.inner() > 0);
  }

  // y = y·sigmoid(mlp_gate·h), rounded as operations do.
  void gate(const Layer &l, int64_t r, S *y) {
    S x;
    thread_local std::vector<float> sums(PANEL);
    kn.dots(&b.h[r * hidden], hidden, 1, of(l.mlp_gate), 1, hidden, sums.data());
    put(&x, sums[0]);
    put(&x, 1 / (1 + std::exp(-get(x))));
    this->times(y, hidden, get(x));
  }

  // The wanted rows of some numbers [rows, n] move to the front.
  void move_wanted(S *x, int64_t n) {
    for (int64_t i = 0; i < step.n_wanted; i++) memmove(x + i * n, x + step.wanted[i] * n, n * sizeof(S));
  }

  // The rows as the layers before step.first have left them.
  void begin() {
    const S *table = of(d.embed), *held = static_cast<const S *>(step.held);
    share(rows, [&](int64_t r) {
      S *xr = b.x.data() + r * hidden;
      if (step.first > 0) {
        memcpy(xr, held + r * hidden, hidden * sizeof(S));
        memcpy(&b.y[r * hidden], held + (rows + r) * hidden, hidden * sizeof(S));
        return;
      }
      memcpy(xr, table + step.ids[r] * hidden, hidden * sizeof(S));
      this->times(xr, hidden, d.embed_scale);
    });
  }

  // Leaves the rows, and what the last layer adds to them, for the layers from step.end.
  void hold() {
    S *held = static_cast<S *>(step.held);
    share(rows, [&](int64_t r) {
      memcpy(held + r * hidden, &b.x[r * hidden], hidden * sizeof(S));
      memcpy(held + (rows + r) * hidden, &b.y[r * hidden], hidden * sizeof(S));
    });
  }

  void all(S *logits) {
    begin();
    const bool fewer = step.n_wanted < rows;
    for (size_t i = step.first; i < step.end; i++) {
      const Layer &l = d.layers[i];
      this->normed(i > 0, i > 0 ? d.layers[i - 1].after_mlp : Tensor(), l.before_attention);
      mix(l);
      if (i + 1 == d.layers.size() && fewer && !step.chosen) {  // what follows works row by row
        share(1, [&](int64_t) {
          move_wanted(b.x.data(), hidden);
          move_wanted(b.attended.data(), l.o.k);
        });
        rows = step.n_wanted;
      }
      if (rows == 0) return;
      this->product(l.o, b.attended.data(), b.y.data(), hidden, pairs(l, O));
      this->normed(true, l.after_attention, l.before_mlp);
      feed_forward(l);
    }
    if (step.end < d.layers.size()) return hold();
    this->normed(true, d.layers.back().after_mlp, d.norm);
    if (fewer && step.chosen) {
      share(1, [&](int64_t) { move_wanted(b.h.data(), hidden); });
      rows = step.n_wanted;
    }
    if (rows > 0) this->product(d.head, b.h.data(), logits, d.head.n);
  }
};

template <class S>
void run(const Decoder &d, const Step &step, const Typed<S, float> &kn, S *logits) {
  const int want = at::get_num_threads();
  Rows<S> rows(d, step, want);
  std::unique_ptr<Team> own;
#pragma omp parallel num_threads(want)
  {
#pragma omp single
    own = std::make_unique<Team>(omp_get_num_threads());  // with a barrier behind it
    Layers<S>(d, step, kn, *own, omp_get_num_threads(), rows).all(logits);
  }
}

// Gives the newest layer the plan of those whose attention is alike.
void number(Decoder &d) {
  Attention &l = d.layers.back().attention;
  if (l.heads == 0) return;
  auto alike = [&](size_t i) {
    const Attention &o = d.layers[i].attention;
    return o.heads == l.heads && o.kv_heads == l.kv_heads && o.window == l.window && o.dim == l.dim && o.kpool.size(1) == l.kpool.size(1);
  };
  l.plan = size_t(std::find_if(d.kinds.begin(), d.kinds.end(), alike) - d.kinds.begin());
  if (l.plan == d.kinds.size()) d.kinds.push_back(d.layers.size() - 1);
}

Tensor in_float(agt_tensor t) { return t ? tensor_of(t).to(at::kFloat).contiguous() : Tensor(); }

Attention attention_of(const agt_decoder_layer &l) {
  return {tensor_of(l.q_norm), tensor_of(l.k_norm), in_float(l.sinks), tensor_of(l.kpool), tensor_of(l.vpool),
          l.heads, l.kv_heads, l.dim, l.window, l.rope, l.qk_norm, l.gated != 0, l.scale, 0};
}

Recurrent recurrent_of(const agt_decoder_recurrent &l) {
  Recurrent r;
  if (!l.conv) return r;
  const Tensor w = in_float(l.conv);  // [channels, 1, taps]
  r.channels = w.size(0);
  r.taps = w.size(2);
  TORCH_CHECK(r.taps <= MOST_TAPS, "decoder: a convolution of ", r.taps, " tokens");
  r.conv = w.view({r.channels, r.taps}).t().contiguous();
  r.conv_bias = in_float(l.conv_bias);
  r.windows = tensor_of(l.windows);
  TORCH_CHECK(r.windows.is_contiguous() && r.windows.size(1) == r.taps - 1 && r.windows.size(2) == r.channels, "decoder: windows ", r.windows.sizes());
  if (!l.states) return r;
  r.rate = in_float(l.a_log).exp().neg().contiguous();
  r.dt_bias = in_float(l.dt_bias);
  r.norm = tensor_of(l.norm).contiguous();
  r.states = tensor_of(l.states);
  r.heads = {l.heads.key_heads, l.heads.value_heads, l.heads.key_dim, l.heads.value_dim};
  TORCH_CHECK(r.states.is_contiguous() && r.states.scalar_type() == at::kFloat && r.states.size(1) == l.heads.value_heads, "decoder: states ", r.states.sizes());
  return r;
}

Experts experts_of(const agt_decoder_experts &l) {
  if (!l.router) return {};
  Experts e{tensor_of(l.router).size(0), l.how.active, tensor_of(l.down).size(1), tensor_of(l.router).contiguous(), in_float(l.correction),
            tensor_of(l.gate_up).contiguous(), tensor_of(l.down).contiguous(), l.how, l.gelu != 0};
  const int64_t hidden = e.router.size(1);
  TORCH_CHECK(e.active >= 1 && e.active <= std::min(e.count, MOST_ACTIVE) && e.gate_up.sizes() == at::IntArrayRef({2 * e.count * e.size, hidden}) &&
                  e.down.size(0) == e.count * hidden,
              "decoder: ", e.active, " of ", e.count, " experts of ", e.gate_up.sizes(), " and ", e.down.sizes());
  return e;
}

// The pairs of a step by layer and slot.
std::vector<std::vector<LowRank>> pairs_of(const Decoder &d, const agt_decoder_rows &r) {
  std::vector<std::vector<LowRank>> out;
  if (r.n_pairs == 0) return out;
  out.resize(d.layers.size() * SLOTS);
  for (int64_t i = 0; i < r.n_pairs; i++) {
    const agt_decoder_pair &p = r.pairs[i];
    TORCH_CHECK(p.layer >= 0 && p.layer < int64_t(d.layers.size()) && p.slot >= 0 && p.slot < SLOTS, "decoder: a pair of layer ", p.layer, ", slot ", p.slot);
    const Layer &l = d.layers[p.layer];
    const Weight &w = *std::array<const Weight *, SLOTS>{&l.qkv, &l.o, &l.gate_up, &l.down}[p.slot];
    const Tensor a = tensor_of(p.a), b = tensor_of(p.b);
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == w.k && b.size(0) == w.n && a.size(0) == b.size(1) && a.is_contiguous() && b.is_contiguous() &&
                    a.scalar_type() == d.embed.scalar_type() && b.scalar_type() == a.scalar_type() && p.from >= 0 && p.count > 0 && p.from + p.count <= r.rows,
                "decoder: A is ", a.sizes(), ", B is ", b.sizes(), " for ", p.count, " rows from ", p.from, " beside a weight of ", w.n, " times ", w.k);
    out[p.layer * SLOTS + p.slot].push_back({a.const_data_ptr(), b.const_data_ptr(), a.size(0), p.from, p.count});
  }
  return out;
}

void check(const Decoder &d, const Step &step) {
  const bool f32 = d.embed.scalar_type() == at::kFloat;
  TORCH_CHECK(step.first < step.end && step.end <= d.layers.size(), "decoder: the layers ", step.first, " to ", step.end, " of ", d.layers.size());
  TORCH_CHECK(step.end - step.first == d.layers.size() || (step.held && step.n_wanted == 0 && !step.chosen && step.runs.n == 0),
              "decoder: some layers of rows with logits, recurrent layers or recorded experts");
  for (auto &l : d.layers) {
    const Attention &a = l.attention;
    TORCH_CHECK(a.heads == 0 || (ATTEND_KEYS % a.kpool.size(1) == 0 && a.heads / a.kv_heads <= ATTEND_COLS), "decoder: no plan of attention for such blocks or heads");
    if (l.recurrent.taps == 0) continue;
    const int64_t slots = l.recurrent.windows.size(0);
    for (int64_t i = 0; i < step.runs.n; i++) {
      const int32_t *r = step.runs.runs + 4 * i;
      TORCH_CHECK(r[2] >= 0 || (r[3] >= 0 && r[3] < slots), "decoder: run ", i, " begins with slot ", r[3], " of ", slots);
    }
    for (int64_t i = 0; i < step.runs.n_saves; i++) {
      const int32_t *s = step.runs.saves + 2 * i;
      TORCH_CHECK(s[0] >= 0 && s[0] < step.runs.n && s[1] >= 0 && s[1] < slots, "decoder: run ", s[0], " is kept in slot ", s[1], " of ", slots);
    }
    TORCH_CHECK(step.runs.n > 0, "decoder: a step of a recurrent model has no runs");
  }
  TORCH_CHECK((!d.head.quant && !d.layers[0].qkv.quant) || (!f32 && kernels().quant_panel), "the kernels in use read no weights of a GGUF");
  TORCH_CHECK(f32 ? kernels().f.panel != nullptr : kernels().b.panel != nullptr, "the kernels in use read no panels");
}

}  // namespace
}  // namespace agt

extern "C" {

int agt_in_panels(agt_tensor packed, agt_tensor w, int *yes, char **err) {
  return agt::guarded(err, [&] { *yes = agt::in_panels(agt::tensor_of(packed), agt::tensor_of(w)); });
}

int agt_decoder_new(void **out, const agt_decoder_model *m, const agt_decoder_layer *layers, int n, char **err) {
  return agt::guarded(err, [&] {
    using agt::tensor_of;
    auto d = std::make_unique<agt::Decoder>();
    d->embed = tensor_of(m->embed);
    d->norm = tensor_of(m->norm);
    d->head = agt::weight_of(tensor_of(m->head), {});
    d->embed_scale = m->embed_scale;
    d->residual_scale = m->residual_scale;
    d->eps = m->eps;
    d->norm_offset = m->norm_offset;
    for (int64_t i = 0; i < m->n_ropes; i++) d->ropes.push_back({tensor_of(m->cos[i]), tensor_of(m->sin[i]), m->pairs[i] != 0});
    for (int i = 0; i < n; i++) {
      const agt_decoder_layer &l = layers[i];
      d->layers.push_back({tensor_of(l.before_attention), tensor_of(l.after_attention), tensor_of(l.before_mlp), tensor_of(l.after_mlp),
                           agt::weight_of(tensor_of(l.qkv), tensor_of(l.qkv_bias)), agt::weight_of(tensor_of(l.o), tensor_of(l.o_bias)),
                           agt::weight_of(tensor_of(l.gate_up), tensor_of(l.gate_up_bias)),
                           agt::weight_of(tensor_of(l.down), tensor_of(l.down_bias)), agt::attention_of(l), agt::recurrent_of(l.recurrent),
                           agt::experts_of(l.experts), tensor_of(l.mlp_gate), l.gelu != 0});
      agt::number(*d);
    }
    *out = d.release();
  });
}

void agt_decoder_free(void *d) { delete static_cast<agt::Decoder *>(d); }

int agt_decoder_step(void *decoder, const agt_decoder_rows *r, agt_tensor *logits, char **err) {
  return agt::guarded(err, [&] {
    const auto &d = *static_cast<agt::Decoder *>(decoder);
    const agt::Step step{r->ids, r->positions, r->segs, r->blocks, r->wanted, r->rows, r->n, r->n_wanted,
                         {r->runs.runs, r->runs.n, r->runs.saves, r->runs.n_saves}, r->chosen, agt::pairs_of(d, *r),
                         size_t(r->first_layer), r->end_layer > 0 ? size_t(r->end_layer) : d.layers.size(), r->held};
    agt::check(d, step);
    at::Tensor out = at::empty({step.n_wanted, d.head.n}, d.embed.options());
    const bool f32 = d.embed.scalar_type() == at::kFloat;
    if (f32) agt::run<float>(d, step, agt::kernels().f, agt::out_ptr<float>(out));
    else agt::run<agt::bf16>(d, step, agt::kernels().b, agt::out_ptr<agt::bf16>(out));
    *logits = reinterpret_cast<agt_tensor>(new at::Tensor(std::move(out)));
  });
}

}  // extern "C"
