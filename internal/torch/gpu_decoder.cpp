//go:build libtorch

// One step of a decoder on a device, from a token of each sequence to the one drawn
// behind it: products by libtorch into memory that stays, and our kernels between them. On
// CUDA a step is a graph, which is recorded for a number of rows and a length of contexts
// and launched from then on with one call: what changes from step to step is in one piece
// of memory that is copied beforehand. See network.hidden in package policy for the order.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "gpu.h"
#include "gpu_decoder_experts.h"
#include "gpu_decoder_recurrent.h"
#include "guard.h"
#include "shim.h"
#include "tensors.h"

namespace agt {
namespace {

using at::Tensor;

constexpr size_t kMostGraphs = 256;  // that are kept: each has some hundred kernels

struct DeviceLayer {
  Tensor after_attention, before_attention, before_mlp, after_mlp, kpool, vpool;
  Tensor qkv, o, o_bias, gate_up, gate_up_bias, down, down_bias;
  gpu::HeadRule heads;
  Tensor qkv_bias, q_norm, k_norm;  // of a mixer, and of norms over all heads; undefined where `heads` has bias and norms
  DeviceMixer mixer;                // in place of attention
  DeviceExperts experts;            // beside the MLP, if there is one
  Tensor mlp_gate;                  // [1, hidden]: what the MLP gives is times its sigmoid
  Tensor output_scale, per_gate, per_projection, per_norm;  // of what stands behind the layer
  int64_t n_heads, dim;
  bool gelu;
  Look look;
};

// Staging holds the inputs of a step, in pinned memory of the host and on the device: the table's
// width, how rows are drawn, rows of the cache, ids, positions, rows, contexts, slots of states and of their copies, and the
// table.
class Staging {
 public:
  Staging() = default;
  Staging(int64_t rows, int64_t blocks, at::Device device) : most_(bytes(rows, blocks)) {
    host_bytes = at::empty({most_}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
    device_bytes = at::empty({most_}, host_bytes.options().device(device).pinned_memory(false));
  }
  // The parts for a number of rows, in the memory of `of`.
  struct Parts {
    Tensor width, how, slots, ids, positions, rows, contexts, states, copies, table;
  };
  Parts parts(const Tensor &of, int64_t rows) const {
    int64_t at = 0;
    auto take = [&](int64_t bytes, at::ScalarType t) {
      Tensor x = of.narrow(0, at, bytes).view(t);
      at += bytes;
      return x;
    };
    Parts p;
    p.width = take(16, at::kInt).narrow(0, 0, 1);
    p.how = take(rows * sizeof(agt_sampling), at::kByte);
    p.slots = take(rows * 8, at::kLong);
    p.ids = take(rows * 4, at::kInt);
    p.positions = take(rows * 4, at::kInt);
    p.rows = take(rows * 4, at::kInt);
    p.contexts = take(rows * 4, at::kInt);
    p.states = take(rows * 4, at::kInt);
    p.copies = take(rows * 4, at::kInt);
    p.table = take((most_ - at) / 4 * 4, at::kInt);
    return p;
  }
  static int64_t bytes(int64_t rows, int64_t width) { return 16 + rows * (sizeof(agt_sampling) + 8 + 24 + 4 * width); }

  Tensor host_bytes, device_bytes;

 private:
  int64_t most_ = 0;
};

struct DeviceDecoder {
  std::vector<DeviceLayer> layers;
  Tensor embed, norm, head;
  double embed_scale, residual_scale;
  gpu::Rms rms;
  bool draws, records;  // records: the experts that rows have come to the host
  int64_t most_rows, most_blocks, block = 0;  // block: rows of one of the cache's
  Staging staging;
  Tensor x, other, y, h, qkv, q, attended, both, act, beside, beside_gate, convolved, logits, parts, sampled, drawn, host_drawn, host_chosen;
  ExpertBuffers experts;
  struct PerLayer {  // the numbers that each layer has of a token; embed that is not defined: there are none
    Tensor embed, projection, norm;
    double scale;
    bool gelu;
    Tensor own, inputs, gate, act;  // to work in
    int64_t size() const { return norm.size(0); }
  } per;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<gpu::Graph>> graphs;  // by rows and the longest context

  at::Device device() const { return embed.device(); }

  void allocate_buffers() {
    int64_t wide = 0, queries = 0, inner = 0, channels = 0;
    std::vector<const DeviceExperts *> with;
    for (auto &l : layers) {
      wide = std::max(wide, l.qkv.size(0));
      queries = std::max(queries, l.o.size(1));
      if (l.down.defined()) inner = std::max(inner, l.down.size(1));
      if (l.experts.router.defined()) with.push_back(&l.experts);
      if (l.mixer.conv.defined())
        channels = std::max(channels, l.mixer.channels());
      else
        block = l.kpool.size(1);
    }
    experts = ExpertBuffers(with, most_rows, embed);
    staging = Staging(most_rows, most_blocks, device());
    auto rows = [&](int64_t n) { return at::zeros({most_rows * n}, embed.options()); };
    x = rows(embed.size(1));
    y = rows(embed.size(1));
    h = rows(embed.size(1));
    qkv = rows(wide);
    q = rows(queries);
    attended = rows(queries);
    both = rows(2 * inner);
    act = rows(inner);
    beside = rows(with.empty() ? 0 : embed.size(1));
    beside_gate = rows(1);
    if (per.embed.defined()) {
      per.own = rows(per.embed.size(1));
      per.inputs = rows(per.embed.size(1));
      per.gate = rows(per.size());
      per.act = rows(per.size());
    }
    convolved = rows(channels);
    logits = rows(head.size(0));
    other = rows(embed.size(1));
    drawn = at::zeros({2 * most_rows}, embed.options().dtype(at::kFloat));
    host_drawn = at::zeros({2 * most_rows}, at::TensorOptions().dtype(at::kFloat).pinned_memory(device().is_cuda()));
    if (records) host_chosen = at::empty(experts.ids.sizes(), experts.ids.options().device(at::kCPU).pinned_memory(device().is_cuda()));
    parts = at::empty({0}, drawn.options());
    sampled = at::empty({draws ? gpu::sample_parts(most_rows, head.size(0)) : 0}, drawn.options().dtype(at::kDouble));
  }

  // The number of rows that a step of n is padded to: it bounds the number of graphs.
  int64_t bucket(int64_t n) const {
    int64_t up = n <= 2 ? n : n <= 4 ? 4 : (n + 7) / 8 * 8;
    return std::min(up, most_rows);
  }
  // The context length that a graph is recorded for: a power of two times kReach.
  static int64_t context_limit(int64_t context) {
    int64_t up = gpu::kReach;
    while (up < context) up *= 2;
    return up;
  }

  // The residual x, and the output y of the last sub-layer, which is not added yet.
  struct Residual {
    Tensor x, other, y, h;
    bool adds, few;
  };

  enum class Gating { none, silu, gelu };

  void compute(int64_t n, int64_t longest) {
    auto rows = [&](const Tensor &t, int64_t wide) { return t.narrow(0, 0, n * wide).view({n, wide}); };
    auto p = staging.parts(staging.device_bytes, n);
    const int64_t hidden = embed.size(1);
    Residual s{rows(x, hidden), rows(other, hidden), rows(y, hidden), rows(h, hidden), false, use_own_products(n)};
    gpu::embed(embed, p.ids, embed_scale, s.x);
    const Tensor none, inputs = per.embed.defined() ? inputs_of_layers(p.ids, s) : none;
    int64_t with_experts = 0;
    for (size_t i = 0; i < layers.size(); i++) {
      DeviceLayer &l = layers[i];
      Tensor projected = rows(qkv, l.qkv.size(0)), seen = rows(attended, l.o.size(1));
      project(s, i > 0 ? layers[i - 1].after_mlp : none, l.before_attention, l.qkv, l.qkv_bias, Gating::none, projected);
      if (l.mixer.conv.defined()) {
        Tensor convolved = rows(this->convolved, l.mixer.channels());
        l.mixer.compute(projected, {p.states, p.copies}, convolved, seen);
      } else {
        attend(l, p, longest, projected, seen);
      }
      product(s.few, seen, l.o, l.o_bias, s.y);
      feed_forward(l, p, s, with_experts);
      if (l.output_scale.defined() || l.per_gate.defined()) end_layer(l, s, inputs, int64_t(i));
    }
    Tensor z = rows(logits, head.size(0));
    project(s, layers.back().after_mlp, norm, head, none, Gating::none, z);
    if (!draws) return;
    Tensor to = drawn.narrow(0, 0, 2 * n);
    gpu::sample(z, p.how, sampled, to);
  }

  // y = the MLP, the experts, or both; with_experts counts the layers that have some.
  void feed_forward(DeviceLayer &l, const Staging::Parts &p, Residual &s, int64_t &with_experts) {
    const Gating gating = l.gelu ? Gating::gelu : Gating::silu;
    const int64_t n = s.x.size(0), hidden = s.x.size(1), inner = l.down.defined() ? l.down.size(1) : 0;
    auto rows = [&](const Tensor &t, int64_t wide) { return t.narrow(0, 0, n * wide).view({n, wide}); };
    Tensor act = rows(this->act, inner);
    const Tensor none;
    const DeviceExperts &e = l.experts;
    if (!e.router.defined()) {
      project(s, l.after_attention, l.before_mlp, l.gate_up, l.gate_up_bias, gating, act);
      return product(s.few, act, l.down, l.down_bias, s.y);
    }
    normed(true, l.after_attention, l.before_mlp, s.x, s.y, s.h);
    Tensor beside = inner > 0 ? rows(this->beside, hidden) : none, gate = l.mlp_gate.defined() ? rows(beside_gate, 1) : none;
    if (inner > 0) {
      gated(s.few, s.h, l.gate_up, l.gate_up_bias, gating, act);
      product(s.few, act, l.down, l.down_bias, beside);
    }
    if (gate.defined()) product(s.few, s.h, l.mlp_gate, none, gate);
    auto multiply = [&](const Tensor &x, const Tensor &w, const Tensor &bias, Tensor &to) { product(s.few, x, w, bias, to); };
    if (!e.router_norm.defined()) return experts.compute(e, with_experts++, s.h, s.h, p.contexts, beside, gate, s.y, multiply);
    // The router and the experts have norms of their own of the residual stream.
    Tensor by = rows(other, hidden);
    gpu::rms_norm(s.x, nullptr, e.router_norm, nullptr, rms, by);
    by.mul_(1 / std::sqrt(double(hidden)));
    gpu::rms_norm(s.x, nullptr, e.before, nullptr, rms, s.h);
    experts.compute(e, with_experts++, by, s.h, p.contexts, none, none, s.y, multiply);
    gpu::rms_norm(s.y, nullptr, e.after, nullptr, rms, s.y);
    gpu::rms_norm(beside, nullptr, e.after_mlp, nullptr, rms, beside);
    s.y.add_(beside);
  }

  // The numbers that the layers have of the ids [n, layers·size]: perLayerInputs in package policy.
  Tensor inputs_of_layers(const Tensor &ids, const Residual &s) {
    const int64_t n = s.x.size(0), all = per.embed.size(1);
    Tensor own = per.own.narrow(0, 0, n * all).view({n, all}), inputs = per.inputs.narrow(0, 0, n * all).view({n, all});
    gpu::embed(per.embed, ids, per.scale, own);
    product(s.few, s.x, per.projection, {}, inputs);
    inputs.mul_(1 / std::sqrt(double(s.x.size(1))));
    gpu::rms_norm(inputs, nullptr, per.norm, nullptr, rms, inputs);
    inputs.add_(own).mul_(std::sqrt(.5));
    return inputs;
  }

  // x behind a layer that has numbers of its own for the tokens, or a factor: `ended` in package policy.
  void end_layer(const DeviceLayer &l, Residual &s, const Tensor &inputs, int64_t layer) {
    if (l.after_mlp.defined()) gpu::rms_norm(s.y, nullptr, l.after_mlp, nullptr, rms, s.y);
    s.x.add_(s.y);
    if (l.per_gate.defined()) {
      const int64_t n = s.x.size(0), size = per.size();
      Tensor gate = per.gate.narrow(0, 0, n * size).view({n, size}), act = per.act.narrow(0, 0, n * size).view({n, size});
      product(s.few, s.x, l.per_gate, {}, gate);
      gpu::gate_columns(gate, inputs, layer * size, per.gelu, act);
      product(s.few, act, l.per_projection, {}, s.y);
      gpu::rms_norm(s.y, nullptr, l.per_norm, nullptr, rms, s.y);
      s.x.add_(s.y);
    }
    if (l.output_scale.defined()) s.x.mul_(l.output_scale);
    s.adds = false;
  }

  // to = what attention gives of a projection, whose keys and values go into the cache.
  void attend(DeviceLayer &l, const Staging::Parts &p, int64_t longest, Tensor &projected, Tensor &to) {
    const int64_t n = projected.size(0), queries = l.n_heads * l.dim;
    Tensor q = this->q.narrow(0, 0, n * queries).view({n, l.n_heads, l.dim});
    if (l.q_norm.defined()) {
      gpu::norm_columns(projected, 0, l.q_norm, rms);
      gpu::norm_columns(projected, queries, l.k_norm, rms);
    }
    l.heads.positions = p.positions;
    gpu::heads(projected.view({n, -1, l.dim}), l.heads, p.slots, l.kpool, l.vpool, q);
    Tensor by_head = to.view({n, l.n_heads, l.dim});
    gpu::decode(q, l.kpool, l.vpool, {p.width, p.rows, p.contexts, p.table, longest}, l.look, parts, by_head);
    if (l.heads.gated) gpu::gate_heads(by_head, projected);
  }

  // Whether a step of n rows takes our own products.
  bool use_own_products(int64_t n) const {
    if (n > gpu::kFewRows || residual_scale != 1 || !gpu::takes_few(n, embed.size(1), 2, embed.scalar_type())) return false;
    for (auto &l : layers)
      if (l.after_attention.defined() || l.after_mlp.defined() || !l.before_attention.defined() || !l.before_mlp.defined() || l.o.size(1) % 8 != 0 ||
          l.gelu || l.output_scale.defined() || l.per_gate.defined() || l.experts.router_norm.defined())
        return false;
    return true;
  }

  static void product(bool few, const Tensor &x, const Tensor &w, const Tensor &bias, Tensor &to) {
    if (few) return gpu::product(x, nullptr, {}, {}, w, bias, false, nullptr, to);
    at::mm_out(to, x, w.t());
    if (bias.defined()) to.add_(bias);
  }

  // to = the input projection of a sub-layer: the normed residual times a weight, gated or not.
  void project(Residual &s, const Tensor &after, const Tensor &before, const Tensor &w, const Tensor &bias, Gating gating, Tensor &to) {
    if (s.few) {
      gpu::product(s.x, s.adds ? &s.y : nullptr, before, rms, w, bias, gating != Gating::none, s.adds ? &s.other : nullptr, to);
      if (s.adds) std::swap(s.x, s.other);
    } else {
      normed(s.adds, after, before, s.x, s.y, s.h);
      if (gating != Gating::none)
        gated(false, s.h, w, bias, gating, to);
      else
        product(false, s.h, w, bias, to);
    }
    s.adds = true;
  }

  // to = act(gate)·up of x.
  void gated(bool few, const Tensor &x, const Tensor &w, const Tensor &bias, Gating gating, Tensor &to) {
    Tensor halves = both.narrow(0, 0, to.size(0) * w.size(0)).view({to.size(0), w.size(0)});
    product(few, x, w, bias, halves);
    gpu::gate(halves, gating == Gating::gelu, to);
  }

  // x += y where there was a sub-layer; h is the normed sum.
  void normed(bool add, const Tensor &after, const Tensor &before, Tensor &x, Tensor &y, Tensor &h) {
    if (add && after.defined()) gpu::rms_norm(y, nullptr, after, nullptr, rms, y);
    if (add && residual_scale != 1) y.mul_(residual_scale);
    if (before.defined()) return gpu::rms_norm(x, add ? &y : nullptr, before, add ? &x : nullptr, rms, h);
    if (add) x.add_(y);
    h.copy_(x);
  }

  void stage(const agt_decoder_rows &r, const agt_sampling *how, int64_t n, int64_t width) {
    auto p = staging.parts(staging.host_bytes, n);
    *p.width.mutable_data_ptr<int32_t>() = int32_t(width);
    auto *to = static_cast<agt_sampling *>(p.how.mutable_data_ptr());
    int64_t *slots = p.slots.mutable_data_ptr<int64_t>();
    int32_t *ids = p.ids.mutable_data_ptr<int32_t>(), *positions = p.positions.mutable_data_ptr<int32_t>(),
            *row = p.rows.mutable_data_ptr<int32_t>(), *contexts = p.contexts.mutable_data_ptr<int32_t>(),
            *states = p.states.mutable_data_ptr<int32_t>(), *copies = p.copies.mutable_data_ptr<int32_t>(),
            *table = p.table.mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < n; i++) {
      row[i] = int32_t(i);
      if (i >= r.rows) {  // padding: an empty context, and no place in the cache
        to[i] = {};
        slots[i] = -1;
        states[i] = -1;
        ids[i] = positions[i] = contexts[i] = copies[i] = 0;
        continue;
      }
      const int32_t *s = r.segs + 4 * i, *blocks = r.blocks + s[3];
      const int64_t at = s[2] - 1, used = (s[2] + block - 1) / block;
      if (how) to[i] = how[i];
      slots[i] = blocks[at / block] * block + at % block;
      ids[i] = r.ids[i];
      positions[i] = r.positions[i];
      contexts[i] = s[2];
      states[i] = r.states ? r.states[2 * i] : -1;
      copies[i] = r.states ? r.states[2 * i + 1] : 0;
      std::memcpy(table + i * width, blocks, used * sizeof(int32_t));
    }
    const int64_t bytes = Staging::bytes(n, width);
    staging.device_bytes.narrow(0, 0, bytes).copy_(staging.host_bytes.narrow(0, 0, bytes), /*non_blocking=*/true);
  }

  void launch(const agt_decoder_rows &r, const agt_sampling *how) {
    const int64_t n = bucket(r.rows);
    TORCH_CHECK(r.rows == r.n && r.rows <= most_rows, "decoder: ", r.rows, " rows of ", r.n, " sequences, at most ", most_rows);
    int64_t longest = 0;
    for (int64_t i = 0; i < r.rows; i++) {
      TORCH_CHECK(r.segs[4 * i] == i && r.segs[4 * i + 1] == 1, "decoder: sequence ", i, " has not one row");
      longest = std::max<int64_t>(longest, r.segs[4 * i + 2]);
    }
    const int64_t width = (longest + block - 1) / block, far = context_limit(longest);
    TORCH_CHECK(width <= most_blocks, "decoder: a sequence of ", width, " blocks, at most ", most_blocks);
    int64_t need = 0;
    for (auto &l : layers)
      if (!l.mixer.conv.defined()) need = std::max(need, gpu::decode_parts(n, l.n_heads, l.dim, far, l.look.window));
    if (need > parts.numel()) {  // the recorded graphs point to the old buffer
      graphs.clear();
      parts = at::empty({need}, parts.options());
    }
    stage(r, how, n, width);
    auto graph = graphs.find({n, far});
    if (graph != graphs.end()) {
      graph->second->launch();
    } else {  // it is recorded behind the step itself: states move on once
      if (graphs.size() >= kMostGraphs) graphs.clear();
      if (auto recorded = gpu::record(device(), [&] { compute(n, far); }))
        graphs.emplace(std::pair{n, far}, std::move(recorded));
      else
        graphs.clear();
    }
    if (draws) host_drawn.narrow(0, 0, 2 * n).copy_(drawn.narrow(0, 0, 2 * n), /*non_blocking=*/true);
    if (records) {
      const int64_t all = experts.layers() * n * experts.active();
      host_chosen.narrow(0, 0, all).copy_(experts.ids.narrow(0, 0, all), /*non_blocking=*/true);
    }
  }

  Tensor wait(int64_t rows, int32_t *ids, float *logprobs, int32_t *chosen) {
    const int64_t n = bucket(rows);
    gpu::wait(device());  // the next step changes what was copied from the host
    if (records) {
      const int64_t each = experts.active();
      for (int64_t k = 0; k < experts.layers(); k++)
        std::memcpy(chosen + k * rows * each, host_chosen.const_data_ptr<int32_t>() + k * n * each, rows * each * sizeof(int32_t));
    }
    if (draws) {
      const float *p = host_drawn.const_data_ptr<float>();
      std::memcpy(ids, p, rows * sizeof(int32_t));
      std::memcpy(logprobs, p + n, rows * sizeof(float));
      for (int64_t i = 0; i < rows; i++) TORCH_CHECK(std::isfinite(logprobs[i]), "the model's logits in row ", i, " are not finite");
    }
    return logits.narrow(0, 0, rows * head.size(0)).view({rows, head.size(0)});
  }
};

}  // namespace
}  // namespace agt

extern "C" {

int agt_gpu_decoder_new(void **out, const agt_decoder_model *m, const agt_decoder_layer *layers, int n, int64_t most_rows, int64_t most_blocks,
                        int draws, int records, char **err) {
  return agt::guarded(err, [&] {
    using agt::tensor_of;
    c10::AutoGradMode off(false);
    auto d = std::make_unique<agt::DeviceDecoder>();
    d->embed = tensor_of(m->embed);
    d->norm = tensor_of(m->norm);
    d->head = tensor_of(m->head);
    d->embed_scale = m->embed_scale;
    d->residual_scale = m->residual_scale;
    d->rms = {m->eps, m->norm_offset};
    d->draws = draws != 0;
    d->records = records != 0;
    if (m->per_layer_embed)
      d->per = {tensor_of(m->per_layer_embed), tensor_of(m->per_layer_projection), tensor_of(m->per_layer_norm), m->per_layer_scale,
                m->per_layer_gelu != 0, {}, {}, {}, {}};
    d->most_rows = most_rows;
    d->most_blocks = most_blocks;
    for (int i = 0; i < n; i++) {
      const agt_decoder_layer &l = layers[i];
      agt::gpu::Rotation of_queries, of_keys;
      if (l.rope >= 0) {
        of_keys = {tensor_of(m->cos[l.rope]), tensor_of(m->sin[l.rope])};
        of_queries = m->query_cos[l.rope] ? agt::gpu::Rotation{tensor_of(m->query_cos[l.rope]), tensor_of(m->query_sin[l.rope])} : of_keys;
      }
      at::Tensor bias = tensor_of(l.qkv_bias), q_norm = tensor_of(l.q_norm), k_norm = tensor_of(l.k_norm), none;
      const bool all_heads = l.qk_norm == AGT_NORM_ALL_HEADS, recurrent = l.recurrent.conv != nullptr;
      agt::gpu::HeadRule rule{all_heads ? none : bias, all_heads ? none : q_norm, all_heads ? none : k_norm, of_queries, of_keys, {},
                              l.rope >= 0 && m->pairs[l.rope] != 0, m->eps, m->norm_offset, l.gated != 0,
                              l.shared != 0, l.keys_are_values != 0, l.value_norm != 0};
      at::Tensor sinks = l.sinks ? tensor_of(l.sinks).to(at::kFloat).contiguous() : at::Tensor();
      d->layers.push_back({tensor_of(l.after_attention), tensor_of(l.before_attention), tensor_of(l.before_mlp), tensor_of(l.after_mlp),
                           tensor_of(l.kpool), tensor_of(l.vpool), tensor_of(l.qkv), tensor_of(l.o), tensor_of(l.o_bias), tensor_of(l.gate_up),
                           tensor_of(l.gate_up_bias), tensor_of(l.down), tensor_of(l.down_bias), rule, all_heads || recurrent ? bias : none,
                           all_heads ? q_norm : none, all_heads ? k_norm : none, agt::DeviceMixer(l.recurrent, m->eps),
                           agt::DeviceExperts(l.experts), tensor_of(l.mlp_gate), tensor_of(l.output_scale), tensor_of(l.per_layer_gate),
                           tensor_of(l.per_layer_projection), tensor_of(l.per_layer_norm), l.heads, l.dim, l.gelu != 0, {l.window, l.scale, sinks}});
    }
    d->allocate_buffers();
    *out = d.release();
  });
}

void agt_gpu_decoder_free(void *d) { delete static_cast<agt::DeviceDecoder *>(d); }

int agt_gpu_decoder_launch(void *decoder, const agt_decoder_rows *r, const agt_sampling *how, char **err) {
  return agt::guarded(err, [&] {
    c10::AutoGradMode off(false);
    static_cast<agt::DeviceDecoder *>(decoder)->launch(*r, how);
  });
}

int agt_gpu_decoder_wait(void *decoder, int64_t rows, int32_t *ids, float *logprobs, int32_t *chosen, agt_tensor *logits, char **err) {
  return agt::guarded(err, [&] {
    *logits = reinterpret_cast<agt_tensor>(new at::Tensor(static_cast<agt::DeviceDecoder *>(decoder)->wait(rows, ids, logprobs, chosen)));
  });
}

}  // extern "C"
