//go:build libtorch

#include "blocks.h"

#include <setjmp.h>
#include <ucontext.h>

#include <memory>
#include <stdexcept>
#include <vector>

namespace blocks {

constexpr unsigned kWarp = 32;
constexpr size_t kStack = 64 << 10;

enum class State { ready, at_block, at_warp, ended };

struct Fiber {
  unsigned number;
  State state;
  bool begun;
  ucontext_t start;
  jmp_buf here;
  std::unique_ptr<char[]> stack;
};

struct Block {
  Index index, size, grid;
  std::vector<Fiber> fibers;
  std::vector<std::vector<unsigned char>> places;  // of each warp
  void (*body)(const void *);
  const void *args;
  ucontext_t host;
  jmp_buf back;
};

thread_local Fiber *now = nullptr;
thread_local Block *block = nullptr;

Index thread_index() { return {now->number, 0, 0}; }
Index block_index() { return block->index; }
Index block_size() { return block->size; }
Index grid_size() { return block->grid; }
unsigned lane() { return now->number % kWarp; }
void *place(unsigned lane) { return block->places[now->number / kWarp].data() + 8 * lane; }

void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned g = lane() / 4, t = lane() % 4;
  auto number = [](unsigned word, int half) { return float_of(half ? word & 0xffff0000u : word << 16); };
  // f(lane, what it has of two words) for every lane of the warp.
  auto each = [](unsigned one, unsigned two, auto f) {
    const unsigned own[2] = {one, two};
    memcpy(place(lane()), own, sizeof own);
    sync_warp();
    for (unsigned from = 0; from < kWarp; from++) {
      unsigned words[2];
      memcpy(words, place(from), sizeof words);
      f(from, words);
    }
    sync_warp();
  };
  float rows[2][16], columns[2][16];  // of A: g and g + 8; of B: 2t and 2t + 1
  for (int upper = 0; upper < 2; upper++)
    each(a[2 * upper], a[2 * upper + 1], [&](unsigned from, const unsigned (&words)[2]) {
      for (int k = 0; k < 4 && from / 4 == g; k++) rows[k / 2][8 * upper + 2 * (from % 4) + k % 2] = number(words[k / 2], k % 2);
    });
  each(b0, b1, [&](unsigned from, const unsigned (&words)[2]) {
    for (int k = 0; k < 4 && from / 8 == t; k++) columns[from / 4 % 2][8 * (k / 2) + 2 * (from % 4) + k % 2] = number(words[k / 2], k % 2);
  });
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) c[i] += rows[i / 2][k] * columns[i % 2][k];
}

namespace {

void wait(State at) {
  now->state = at;
  if (_setjmp(now->here) == 0) _longjmp(block->back, 1);
}

void begin() {
  block->body(block->args);
  now->state = State::ended;
  _longjmp(block->back, 1);
}

void go_on(Fiber &f) {
  now = &f;
  f.state = State::ready;
  if (_setjmp(block->back) != 0) return;
  if (f.begun) _longjmp(f.here, 1);
  f.begun = true;
  setcontext(&f.start);
}

void run_block(Block &b) {
  block = &b;
  for (Fiber &f : b.fibers) {
    f.state = State::ready;
    f.begun = false;
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = f.stack.get();
    f.start.uc_stack.ss_size = kStack;
    f.start.uc_link = nullptr;
    makecontext(&f.start, begin, 0);
  }
  const unsigned n = unsigned(b.fibers.size());
  for (;;) {
    for (Fiber &f : b.fibers)
      if (f.state == State::ready) go_on(f);
    bool moved = false;
    for (unsigned w = 0; w < n; w += kWarp) {  // a warp whose fibers have all come
      bool all = true;
      for (unsigned i = w; i < w + kWarp; i++) all = all && b.fibers[i].state == State::at_warp;
      for (unsigned i = w; all && i < w + kWarp; i++) b.fibers[i].state = State::ready;
      moved = moved || all;
    }
    if (moved) continue;
    unsigned ended = 0, waiting = 0;
    for (Fiber &f : b.fibers) {
      ended += f.state == State::ended;
      waiting += f.state == State::at_block;
    }
    if (ended == n) return;
    if (waiting < n) throw std::runtime_error("a block whose threads do not all come to the same barrier would hang");
    for (Fiber &f : b.fibers) f.state = State::ready;
  }
}

}  // namespace

void sync_block() { wait(State::at_block); }
void sync_warp() { wait(State::at_warp); }

void run(unsigned x, unsigned y, unsigned z, unsigned threads, void (*body)(const void *), const void *args) {
  if (threads % kWarp != 0 || threads > 1024) throw std::runtime_error("a block's threads are whole warps, at most 1,024 threads");
  Block b{};
  b.size = {threads, 1, 1};
  b.grid = {x, y, z};
  b.body = body;
  b.args = args;
  b.fibers.resize(threads);
  b.places.assign(threads / kWarp, std::vector<unsigned char>(8 * kWarp));
  for (unsigned i = 0; i < threads; i++) {
    b.fibers[i].number = i;
    b.fibers[i].stack.reset(new char[kStack]);
  }
  for (b.index.z = 0; b.index.z < z; b.index.z++)
    for (b.index.y = 0; b.index.y < y; b.index.y++)
      for (b.index.x = 0; b.index.x < x; b.index.x++) run_block(b);
}

}  // namespace blocks
