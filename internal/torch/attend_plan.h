// Which thread looks at which part of which context in a step of decoder.cpp.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels.h"

namespace agt {

// The attention of a layer is done in two rounds.
//
// Round one is of whole chunks (see attend.h) that several sequences share, which are then
// read once, and of contexts that are divided among the threads. It leaves partial results. In
// round two each query takes in its partial results and looks at the rest itself.
struct AttendPlan {
  struct Row {  // a new token
    int32_t seg, first, end;  // it sees the tokens first..end-1
    int64_t partial;          // place of the first chunk's
  };
  struct Shared {
    int64_t chunk, chunks;  // that the same members share, one behind the other
    int64_t from, n;        // the members
    int64_t head, heads;
  };
  struct Rest {
    int64_t from, n;  // rows of one sequence
    int64_t head, heads;
    int64_t chunk, chunks;  // those that are left
  };
  std::vector<Row> rows;         // of the step, in order
  std::vector<int32_t> members;  // rows
  std::vector<Shared> shared;
  std::vector<Rest> rest;
  std::vector<int32_t> done;  // of each segment: chunks of round one
  int64_t partials = 0;       // of all rows

  // segs: n quadruples of first row, rows, context with them, first of the blocks; one behind the other.
  // There are at most `room` partials: what is beyond is left to round two.
  AttendPlan(const int32_t *segs, int64_t n, const int32_t *blocks, int64_t block, int64_t kv_heads, int64_t group, int64_t window,
             int threads, int64_t room) {
    const int64_t most = std::max<int64_t>(1, ATTEND_COLS / group);  // rows of a call
    done.resize(n);
    // A context that would be a large part of all the work of one thread is divided.
    auto chunks = [&](int64_t i) { return (segs[4 * i + 2] + ATTEND_KEYS - 1) / ATTEND_KEYS; };
    int64_t all = 0;
    for (int64_t i = 0; i < n; i++) all += chunks(i) * ((segs[4 * i + 1] + most - 1) / most);
    auto divide = [&](int64_t i) { return chunks(i) * ENOUGH * threads > all; };
    std::vector<int32_t> few;  // segments of few new tokens, or to be divided, behind at least one whole chunk
    for (int64_t i = 0; i < n; i++) {
      const int32_t *s = segs + 4 * i;
      for (int32_t r = 0; r < s[1]; r++) {
        const int32_t end = s[2] - s[1] + r + 1;
        rows.push_back({int32_t(i), window > 0 && end > window ? int32_t(end - window) : 0, end, 0});
      }
      if ((s[1] <= FEW || divide(i)) && s[2] - s[1] >= ATTEND_KEYS) few.push_back(int32_t(i));
    }
    const int64_t per = ATTEND_KEYS / block;  // blocks of a chunk
    auto chunk_of = [&](int32_t i, int64_t c) { return blocks + segs[4 * i + 3] + c * per; };
    auto has = [&](int32_t i, int64_t c) { return segs[4 * i + 2] - segs[4 * i + 1] >= (c + 1) * ATTEND_KEYS; };
    struct Level {
      int64_t chunk;
      std::vector<int32_t> segs;  // that share all before it
    };
    std::vector<Level> todo;
    if (!few.empty()) todo.push_back({0, few});
    while (!todo.empty()) {
      Level l = std::move(todo.back());
      todo.pop_back();
      std::map<std::vector<int32_t>, std::vector<int32_t>> parts;
      for (int32_t i : l.segs)
        if (has(i, l.chunk)) parts[std::vector<int32_t>(chunk_of(i, l.chunk), chunk_of(i, l.chunk) + per)].push_back(i);
      for (auto &part : parts) {
        if (part.second.size() < 2 && !divide(part.second[0])) continue;
        int64_t more = 0;
        for (int32_t i : part.second) more += segs[4 * i + 1];
        if (more > room) continue;
        room -= more;
        add(segs, part.second, l.chunk, most);
        for (int32_t i : part.second) done[i] = int32_t(l.chunk + 1);
        todo.push_back({l.chunk + 1, part.second});
      }
    }
    for (Row &r : rows) {
      r.partial = partials;
      partials += done[r.seg];
    }
    join(threads);
    spread(shared, group, kv_heads, threads);
    for (int64_t i = 0, from = 0; i < n; from += segs[4 * i + 1], i++)
      for (int64_t r = 0; r < segs[4 * i + 1]; r += most) {
        Rest x{from + r, std::min<int64_t>(most, segs[4 * i + 1] - r), 0, kv_heads, 0, 0};
        x.chunk = std::max<int64_t>(done[i], rows[x.from].first / ATTEND_KEYS);
        x.chunks = (rows[x.from + x.n - 1].end + ATTEND_KEYS - 1) / ATTEND_KEYS - x.chunk;
        rest.push_back(x);
      }
    // The longest first.
    std::stable_sort(rest.begin(), rest.end(), [](const Rest &a, const Rest &b) { return a.n * a.chunks > b.n * b.chunks; });
    spread(rest, group, kv_heads, threads);
  }

 private:
  static constexpr int64_t FEW = 16;  // more new tokens are a prompt, whose time is not that of reading

  // A chunk of all these segments, but for rows whose window is behind it.
  void add(const int32_t *segs, const std::vector<int32_t> &of, int64_t chunk, int64_t most) {
    const int64_t from = int64_t(members.size());
    for (int32_t i : of) {
      const int32_t *s = segs + 4 * i;
      for (int32_t r = s[0]; r < s[0] + s[1]; r++)
        if (rows[r].first < (chunk + 1) * ATTEND_KEYS) members.push_back(r);
    }
    for (int64_t k = from; k < int64_t(members.size()); k += most)
      shared.push_back({chunk, 1, k, std::min<int64_t>(most, int64_t(members.size()) - k), 0, 0});
  }

  static constexpr int64_t ENOUGH = 4;  // pieces of a thread

  // Chunks of the same members that lie one behind the other become one piece, which a thread reads in
  // one go, as long as there are enough pieces.
  void join(int threads) {
    const int64_t most = std::min<int64_t>(8, int64_t(shared.size()) / (ENOUGH * threads));
    std::map<std::vector<int32_t>, size_t> last;  // of these members: their place in out
    std::vector<Shared> out;
    for (const Shared &p : shared) {
      std::vector<int32_t> of(members.begin() + p.from, members.begin() + p.from + p.n);
      auto it = last.find(of);
      if (it != last.end() && out[it->second].chunks < most && out[it->second].chunk + out[it->second].chunks == p.chunk) {
        out[it->second].chunks++;
        continue;
      }
      last[std::move(of)] = out.size();
      out.push_back(p);
    }
    shared = std::move(out);
  }

  // A piece of all heads is read in one go. Where it would be a large part of all the work, there is one of each head.
  template <class P>
  static void spread(std::vector<P> &pieces, int64_t group, int64_t kv_heads, int threads) {
    auto work = [&](const P &p) { return p.chunks * std::max(p.n * group, ATTEND_FEW); };
    int64_t all = 0;
    for (const P &p : pieces) all += work(p);
    std::vector<P> out;
    for (P p : pieces) {
      const bool whole = work(p) * ENOUGH * threads <= all;
      for (int64_t h = 0; h < (whole ? 1 : kv_heads); h++) {
        p.head = h;
        p.heads = whole ? kv_heads : 1;
        out.push_back(p);
      }
    }
    pieces = std::move(out);
  }
};

}  // namespace agt
