// Recurrent layers of a decoder's step: what recurrent.cpp computes by operations. decoder.cpp includes it.
#pragma once
#include "decoder.h"

namespace agt {

// What one thread does of a layer's mixer: the projection is in Rows.mixed, the result goes to
// Rows.attended, and the states after the runs to the slots that the step says.
template <class S>
struct RecurrentRun {
  Run<S> &run;
  const Recurrent &l;
  const int64_t projected;  // numbers of a row of the projection
  const int64_t rule;       // of Rows.deltas
  const Step &step = run.step;
  const Typed<S, float> &kn = run.kn;
  Rows<S> &b = run.b;

  // LFM2: of the parts B, C and x of a row C·conv(B·x).
  void short_conv() {
    const int64_t n = l.channels;
    run.share(step.rows, [&](int64_t r) {
      const S *gate = b.mixed.data() + r * projected, *x = gate + 2 * n;
      for (int64_t c = 0; c < n; c++) put(&b.conv_in[r * n + c], get(gate[c]) * get(x[c]));
    });
    convolve(b.conv_in.data(), n, false);
    run.share(step.rows, [&](int64_t r) {
      const S *gate = b.mixed.data() + r * projected + n, *y = b.convolved.data() + r * n;
      S *to = b.attended.data() + r * n;
      for (int64_t c = 0; c < n; c++) put(to + c, get(gate[c]) * get(y[c]));
    });
  }

  // Qwen3.5: of the parts q·k·v, z, b and a of a row norm(rule(conv(q·k·v), b, a))·silu(z).
  void gated_delta() {
    convolve(b.mixed.data(), projected, true);
    const DeltaPlan &plan = b.deltas[rule];
    const int64_t key_heads = l.heads.key_heads, values = l.values();
    const S *strength = b.mixed.data() + l.channels + values, *decay = strength + l.heads.value_heads;
    std::vector<float> scratch;
    run.share(int64_t(plan.trees.size()) * key_heads, [&](int64_t i) {
      DeltaArgs a = args(plan.trees[i / key_heads]);
      a.head = i % key_heads;
      const size_t need = size_t(kn.delta_scratch(a));
      if (scratch.size() < need) scratch.resize(need);
      kn.delta_forward(b.convolved.data(), strength, decay, a, scratch.data(), b.attended.data());
    });
    run.share(step.rows, [&](int64_t r) {
      S *y = b.attended.data() + r * values;
      kn.gated_norm(y, run.of(l.norm), b.mixed.data() + r * projected + l.channels, y, l.heads.value_heads, l.heads.value_dim, run.d.eps);
    });
  }

 private:
  DeltaArgs args(const DeltaTree &t) const {
    DeltaArgs a{};
    a.runs = t.runs.data(), a.n = int64_t(t.runs.size()), a.states = t.states;
    a.key_heads = l.heads.key_heads, a.value_heads = l.heads.value_heads, a.key_dim = l.heads.key_dim, a.value_dim = l.heads.value_dim;
    a.b_stride = a.a_stride = projected;
    a.rate = l.rate.const_data_ptr<float>(), a.dt_bias = l.dt_bias.const_data_ptr<float>();
    return a;
  }

  // convolved = the convolution of x, whose rows are `apart` apart; the slots keep what comes last of x.
  void convolve(const S *x, int64_t apart, bool activated) {
    const Reach &reach = *b.reach;
    const int64_t n = l.channels, before = reach.before, saves = step.runs.n_saves;
    S *windows = static_cast<S *>(l.windows.data_ptr());
    const float *bias = l.conv_bias.defined() ? l.conv_bias.const_data_ptr<float>() : nullptr;
    auto at = [&](int64_t place) -> const S * { return place >= 0 ? x + place * apart : windows + (-1 - place) * n; };
    run.share(step.rows + saves, [&](int64_t i) {
      if (i >= step.rows) {  // all is read before any slot is written
        for (int64_t j = 0; j < before; j++)
          memcpy(&b.kept[((i - step.rows) * before + j) * n], at(reach.last[(i - step.rows) * before + j]), n * sizeof(S));
        return;
      }
      const S *taps[MOST_TAPS];
      for (int64_t j = 0; j < before; j++) taps[j] = at(reach.places[j * step.rows + i]);
      taps[before] = x + i * apart;
      kn.conv_row(taps, before + 1, l.conv.const_data_ptr<float>(), bias, n, activated, b.convolved.data() + i * n);
    });
    run.share(saves, [&](int64_t i) {
      memcpy(windows + int64_t(step.runs.saves[2 * i + 1]) * before * n, &b.kept[i * before * n], before * n * sizeof(S));
    });
  }
};

}  // namespace agt
