// Which runs of tokens the gated delta rule computes together, and where states are: by delta.cpp's
// operations and by a decoder's step.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "tensors.h"

namespace agt {

// Numbers of places in scratch, used again when they are free.
struct Places {
  std::vector<int32_t> free;
  int32_t count = 0;
  int32_t take() {
    if (free.empty()) return count++;
    const int32_t i = free.back();
    free.pop_back();
    return i;
  }
};

// A run without a parent, and those that continue it.
struct DeltaTree {
  std::vector<DeltaRun> runs;
  std::vector<DeltaPart> parts;
  int64_t states = 0, grads = 0;  // places

  // The states that are in scratch at once: those that a later run continues. The last of these
  // takes its parent's place.
  void place_states() {
    std::vector<int> waiting(runs.size());
    for (auto &r : runs)
      if (r.parent >= 0) waiting[r.parent]++;
    Places places;
    for (size_t i = 0; i < runs.size(); i++) {
      DeltaRun &r = runs[i];
      if (r.parent >= 0 && --waiting[r.parent] == 0) places.free.push_back(runs[r.parent].state);
      if (r.len <= DELTA_FEW && waiting[i] == 0) continue;
      r.state = places.take();
      if (waiting[i] == 0) places.free.push_back(r.state);
    }
    states = places.count;
  }

  // The chunks of the runs. Backward goes through them from the last to the first: the gradient
  // of a state is the sum over the chunks that continue it, in that order.
  void cut() {
    std::vector<int32_t> last(runs.size());
    for (size_t i = 0; i < runs.size(); i++) {
      const DeltaRun &r = runs[i];
      int32_t parent = r.parent < 0 ? -1 : last[r.parent];
      for (int32_t at = 0; at < r.len; at += DELTA_CHUNK) {
        parts.push_back({r.start + at, std::min<int32_t>(DELTA_CHUNK, r.len - at), parent, -1, -1, -1, -1});
        parent = int32_t(parts.size()) - 1;
      }
      last[i] = parent;
    }
    states = 0;
    for (auto &p : parts)
      if (p.parent >= 0 && parts[p.parent].state < 0) parts[p.parent].state = int32_t(states++);
    Places places;
    for (size_t i = parts.size(); i-- > 0;) {
      DeltaPart &p = parts[i];
      if (p.parent < 0) {
        if (p.grad >= 0) places.free.push_back(p.grad);
        continue;
      }
      DeltaPart &parent = parts[p.parent];
      p.before = p.grad >= 0 ? p.grad : places.take();
      if (parent.grad < 0) {
        parent.grad = p.before;
      } else {
        p.sum = parent.grad;
        places.free.push_back(p.before);
      }
    }
    grads = places.count;
  }
};

struct DeltaPlan {
  std::vector<DeltaTree> trees;
  std::vector<float *> into;  // of all runs, which point here
  at::Tensor copies;              // of states that a run of another tree overwrites

  DeltaPlan(const DeltaRuns &of, int64_t rows, at::Tensor pool) {
    std::vector<std::pair<int32_t, int32_t>> where(of.n);  // of each run: its tree, and its number there
    int64_t row = 0;
    for (int64_t i = 0; i < of.n; i++) {
      const int32_t *r = of.runs + 4 * i;
      TORCH_CHECK(r[0] == row && r[1] > 0 && r[2] < i && r[2] >= -1, "run ", i, " does not follow the one before");
      row += r[1];
      if (r[2] < 0) trees.emplace_back();
      const int32_t tree = r[2] < 0 ? int32_t(trees.size()) - 1 : where[r[2]].first;
      where[i] = {tree, int32_t(trees[tree].runs.size())};
      trees[tree].runs.push_back({r[0], r[1], r[2] < 0 ? -1 : where[r[2]].second, -1, nullptr, nullptr, 0});
    }
    TORCH_CHECK(row == rows, "the runs have ", row, " tokens of ", rows);
    if (pool.defined()) pools(of, pool, where);
  }

  void pools(const DeltaRuns &of, at::Tensor pool, const std::vector<std::pair<int32_t, int32_t>> &where) {
    const int64_t slots = pool.size(0), each = pool.numel() / std::max<int64_t>(slots, 1);
    auto check = [&](int64_t slot) { TORCH_CHECK(slot >= 0 && slot < slots, "slot ", slot, " of ", slots); };
    std::vector<std::vector<int32_t>> saves(of.n);
    std::vector<int32_t> writer(slots, -1);  // the tree that writes a slot
    for (int64_t i = 0; i < of.n_saves; i++) {
      const int32_t run = of.saves[2 * i], slot = of.saves[2 * i + 1];
      check(slot);
      TORCH_CHECK(run >= 0 && run < of.n && writer[slot] < 0, "saved state ", i, " is of run ", run, " in slot ", slot);
      saves[run].push_back(slot);
      writer[slot] = where[run].first;
    }
    std::vector<int64_t> overwritten;
    for (int64_t i = 0; i < of.n; i++)
      if (of.runs[4 * i + 2] < 0) {
        const int32_t slot = of.runs[4 * i + 3];
        check(slot);
        if (writer[slot] >= 0 && writer[slot] != where[i].first) overwritten.push_back(slot);
      }
    if (!overwritten.empty()) copies = pool.index_select(0, at::tensor(overwritten));
    float *states = pool.data_ptr<float>(), *copy = overwritten.empty() ? nullptr : copies.data_ptr<float>();
    into.reserve(of.n_saves);
    for (int64_t i = 0; i < of.n; i++) {
      DeltaRun &r = trees[where[i].first].runs[where[i].second];
      if (r.parent < 0) {
        const int32_t slot = of.runs[4 * i + 3];
        r.from = states + slot * each;
        if (writer[slot] >= 0 && writer[slot] != where[i].first) r.from = copy, copy += each;
      }
      r.into = into.data() + into.size();
      r.saves = int64_t(saves[i].size());
      for (int32_t slot : saves[i]) into.push_back(states + slot * each);
    }
  }
};

}  // namespace agt
