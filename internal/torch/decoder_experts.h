// MoE experts of a decoder's step: what agt_route and agt_experts compute by operations. decoder.cpp includes it.
#pragma once
#include <algorithm>
#include <limits>

#include "decoder.h"

namespace agt {

// The k largest of n numbers, in the order of at::topk: among equals it takes what its algorithm
// leaves, and training takes the experts that it chooses.
inline void largest(const float *x, int64_t n, int64_t k, std::vector<std::pair<float, int32_t>> &queue) {
  queue.resize(n);
  for (int64_t i = 0; i < n; i++) queue[i] = {x[i], int32_t(i)};
  auto more = [](const auto &a, const auto &b) { return (std::isnan(a.first) && !std::isnan(b.first)) || a.first > b.first; };
  if (k * 64 <= n) {
    std::partial_sort(queue.begin(), queue.begin() + k, queue.end(), more);
  } else {
    std::nth_element(queue.begin(), queue.begin() + k - 1, queue.end(), more);
    std::sort(queue.begin(), queue.begin() + k - 1, more);
  }
}

// What one thread does of a layer's experts: they take Rows.h, and y = Σ share·expert(h) + beside.
template <class S>
struct ExpertsRun {
  Run<S> &run;
  const Experts &e;
  const Typed<S, float> &kn = run.kn;
  Rows<S> &b = run.b;
  const int64_t hidden = run.hidden, active = e.active;

  // With chosen [rows, active] the ids go there, too.
  void compute(int32_t *chosen, bool has_beside) {
    logits();
    run.share(run.rows, [&](int64_t r) { choose(r); });
    run.share(1, [&](int64_t) { order(chosen); });
    run.share(run.rows, [&](int64_t r) {
      for (int64_t k = 0; k < active; k++)
        memcpy(&b.gathered[b.places[r * active + k] * hidden], &b.h[r * hidden], hidden * sizeof(S));
    });
    inner();
    outer();
    run.share(run.rows, [&](int64_t r) { sum(r, has_beside); });
  }

 private:
  // y [rows, 64] of rows from..from+m−1 of x [rows, k], by n rows of a weight.
  void dots(const S *x, int64_t k, int64_t from, int64_t m, const S *w, int64_t n, float *y) { kn.dots(x + from * k, k, m, w, n, k, y); }

  // f(first row, rows of at most 48) of rows from..to−1.
  template <class F>
  static void blocks(int64_t from, int64_t to, F f) {
    for (; from < to; from += 48) f(from, std::min<int64_t>(48, to - from));
  }

  void logits() {
    constexpr int64_t PIECE = 16;
    run.share((e.count + PIECE - 1) / PIECE, [&](int64_t i) {
      const int64_t c0 = i * PIECE, n = std::min(PIECE, e.count - c0);
      thread_local std::vector<float> sums(48 * PANEL);
      blocks(0, run.rows, [&](int64_t r0, int64_t m) {
        dots(b.h.data(), hidden, r0, m, run.of(e.router) + c0 * hidden, n, sums.data());
        for (int64_t r = 0; r < m; r++)
          for (int64_t c = 0; c < n; c++) {
            float z = sums[r * PANEL + c];
            if (!e.how.sigmoid) {  // sigmoids are of float32
              S rounded;
              put(&rounded, z);
              z = get(rounded);
            }
            b.router[(r0 + r) * e.count + c0 + c] = z;
          }
      });
    });
  }

  // The experts of a row, and their shares.
  void choose(int64_t r) {
    float *p = &b.router[r * e.count];
    if (e.how.sigmoid) {
      for (int64_t i = 0; i < e.count; i++) p[i] = 1 / (1 + std::exp(-p[i]));
    } else {
      const float top = *std::max_element(p, p + e.count);
      float total = 0;
      for (int64_t i = 0; i < e.count; i++) total += p[i] = std::exp(p[i] - top);
      for (int64_t i = 0; i < e.count; i++) p[i] /= total;
    }
    thread_local std::vector<float> choice;
    thread_local std::vector<std::pair<float, int32_t>> queue;
    choice.assign(p, p + e.count);
    if (e.correction.defined())
      for (int64_t i = 0; i < e.count; i++) choice[i] += e.correction.const_data_ptr<float>()[i];
    if (e.how.groups > 1) best_groups(choice.data(), queue);
    largest(choice.data(), e.count, active, queue);
    float weights[MOST_ACTIVE], total = 0;
    for (int64_t k = 0; k < active; k++) total += weights[k] = p[queue[k].second];
    const float rest = e.how.epsilon > 0 ? float(e.how.epsilon) : e.how.sigmoid ? 1e-20f : 0;
    for (int64_t k = 0; k < active; k++) {
      if (e.how.normalise) weights[k] /= total + rest;
      if (e.how.scale != 1) weights[k] *= float(e.how.scale);
      b.ids[r * active + k] = queue[k].second;
      put(&b.shares[r * active + k], weights[k]);
    }
  }

  // Takes out the experts of all groups but the best, of which the two best experts count.
  void best_groups(float *choice, std::vector<std::pair<float, int32_t>> &queue) const {
    const int64_t groups = e.how.groups, each = e.count / groups;
    std::vector<float> of(groups);
    for (int64_t g = 0; g < groups; g++) {
      largest(choice + g * each, each, 2, queue);
      of[g] = queue[0].first + queue[1].first;
    }
    largest(of.data(), groups, e.how.top_groups, queue);
    std::vector<bool> in(groups);
    for (int64_t g = 0; g < e.how.top_groups; g++) in[queue[g].second] = true;
    for (int64_t i = 0; i < e.count; i++)
      if (!in[i / each]) choice[i] = -std::numeric_limits<float>::infinity();
  }

  // Where each row goes, by its experts.
  void order(int32_t *chosen) {
    const int64_t n = run.rows * active;
    std::fill_n(b.first.begin(), e.count + 1, 0);
    for (int64_t i = 0; i < n; i++) b.first[b.ids[i] + 1]++;
    b.used.clear();
    for (int64_t c = 0; c < e.count; c++) {
      if (b.first[c + 1] > 0) b.used.push_back(int32_t(c));
      b.first[c + 1] += b.first[c];
    }
    std::vector<int32_t> next(b.first.begin(), b.first.begin() + e.count);
    for (int64_t i = 0; i < n; i++) b.places[i] = next[b.ids[i]]++;
    if (chosen) std::copy_n(b.ids.data(), n, chosen);
  }

  // f(expert, first of its outputs, outputs of at most 64, first row, rows of at most 48) over all experts with rows.
  template <class F>
  void pieces(int64_t outputs, F f) {
    const int64_t panels = (outputs + PANEL - 1) / PANEL;
    run.share(int64_t(b.used.size()) * panels, [&](int64_t i) {
      const int64_t c = b.used[i / panels], from = i % panels * PANEL;
      blocks(b.first[c], b.first[c + 1], [&](int64_t r0, int64_t m) { f(c, from, std::min(PANEL, outputs - from), r0, m); });
    });
  }

  // inner = activation(gate)·up.
  void inner() {
    const auto activate = run.activation(e.gelu);
    pieces(e.size, [&](int64_t c, int64_t from, int64_t n, int64_t r0, int64_t m) {
      thread_local std::vector<float> sums(2 * 48 * PANEL);
      for (int64_t part = 0; part < 2; part++)
        dots(b.gathered.data(), hidden, r0, m, run.of(e.gate_up) + ((2 * c + part) * e.size + from) * hidden, n, &sums[part * 48 * PANEL]);
      for (int64_t r = 0; r < m; r++) {
        S both[2 * PANEL];
        for (int64_t part = 0; part < 2; part++)
          kn.round_row(&sums[(part * 48 + r) * PANEL], nullptr, n, both + part * n);
        activate(both, &b.inner[(r0 + r) * e.size + from], 1, n);
      }
    });
  }

  void outer() {
    pieces(hidden, [&](int64_t c, int64_t from, int64_t n, int64_t r0, int64_t m) {
      thread_local std::vector<float> sums(48 * PANEL);
      dots(b.inner.data(), e.size, r0, m, run.of(e.down) + (c * hidden + from) * e.size, n, sums.data());
      for (int64_t r = 0; r < m; r++)
        kn.round_row(&sums[r * PANEL], nullptr, n, &b.outer[(r0 + r) * hidden + from]);
    });
  }

  // Row r of y. Sums are rounded after each expert, the first of them first, as at::index_add does.
  void sum(int64_t r, bool has_beside) {
    int64_t of[MOST_ACTIVE];
    for (int64_t k = 0; k < active; k++) of[k] = k;
    std::sort(of, of + active, [&](int64_t i, int64_t j) { return b.ids[r * active + i] < b.ids[r * active + j]; });
    S *y = &b.y[r * hidden];
    std::fill_n(y, hidden, S{});
    for (int64_t k = 0; k < active; k++)
      kn.add_times(&b.outer[b.places[r * active + of[k]] * hidden], get(b.shares[r * active + of[k]]), hidden, y);
    if (has_beside) kn.add_times(&b.beside[r * hidden], 1, hidden, y);
  }
};

}  // namespace agt
