//go:build libtorch

// The memory of large tensors on a CPU. libtorch asks malloc, which maps each
// tensor above 32 MB anew and gives it back when freed: the kernel then clears the
// same pages again in every step, an eighth of the time of a training step. Here
// they come from one range of addresses that is kept: best fit, neighbours that
// are free joined, huge pages.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "shim.h"

namespace {

constexpr size_t HUGE_PAGE = 2 << 20;
constexpr size_t SMALLEST = 256 << 10;  // below it, malloc keeps what is freed
// Tensors of a model are of round sizes. Were they all to begin at the start of a
// page, the rows that one loop reads would fall on the same lines of the cache.
constexpr size_t APART = 320;

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

class Arena final : public c10::Allocator {
 public:
  explicit Arena(c10::Allocator *other) : other_(other), del_(other->raw_deleter()) {
    size_t ram = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    size_ = up(4 * ram, HUGE_PAGE);  // of addresses: they cost nothing
    void *p = mmap(nullptr, size_ + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) size_ = 0;
    else base_ = reinterpret_cast<char *>(up(size_t(p), HUGE_PAGE));
    top_ = base_;
    spare_ = ram / 2;
  }

  c10::DataPtr allocate(size_t n) override {
    void *p = n >= SMALLEST ? take(up(n, 64) + APART) : nullptr;
    if (!p) p = other_->raw_allocate(n);
    return {p, p, &give, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void *dst, const void *src, size_t n) const override { default_copy_data(dst, src, n); }

  void stats(int64_t *used, int64_t *held) {
    std::lock_guard<std::mutex> lock(mu_);
    *used = int64_t(used_bytes_);
    *held = top_ - base_;
  }

  static Arena *one;

 private:
  // Null where the range is used up: malloc then says whether memory is.
  void *take(size_t n) {
    std::lock_guard<std::mutex> lock(mu_);
    auto it = by_size_.lower_bound({n, nullptr});
    if (it == by_size_.end() && !grow(n)) return nullptr;
    it = by_size_.lower_bound({n, nullptr});
    char *p = it->second;
    size_t have = it->first;
    remove(p, have);
    if (have - n >= SMALLEST) {
      insert(p + n, have - n);
      have = n;
    }
    used_[p] = have;
    used_bytes_ += have;
    return p;
  }

  // grow makes the end of the range long enough for n bytes.
  bool grow(size_t n) {
    size_t tail = 0;
    auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    if (last != free_.end() && last->first + last->second == top_) tail = last->second;
    size_t more = up(n - tail, 16 * HUGE_PAGE);
    if (more > size_ - size_t(top_ - base_) || mprotect(top_, more, PROT_READ | PROT_WRITE) != 0) return false;
    madvise(top_, more, MADV_HUGEPAGE);
    char *p = top_ - tail;
    if (tail) remove(p, tail);
    top_ += more;
    insert(p, tail + more);
    return true;
  }

  static void give(void *p) {
    Arena *a = one;
    if (p < a->base_ || p >= a->base_ + a->size_) return a->del_(p);
    std::lock_guard<std::mutex> lock(a->mu_);
    auto it = a->used_.find(static_cast<char *>(p));
    size_t n = it->second;
    a->used_.erase(it);
    a->used_bytes_ -= n;
    a->join(static_cast<char *>(p), n);
  }

  void join(char *p, size_t n) {
    auto next = free_.upper_bound(p);
    if (next != free_.end() && p + n == next->first) {
      size_t more = next->second;
      remove(p + n, more);
      n += more;
    }
    next = free_.lower_bound(p);
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == p) {
        p = before->first;
        size_t more = before->second;
        remove(p, more);
        n += more;
      }
    }
    // What is free at the end beyond half the machine's memory goes back.
    if (p + n == top_ && n > spare_) {
      char *end = reinterpret_cast<char *>(up(size_t(p) + spare_, HUGE_PAGE));
      if (end < top_) {
        madvise(end, size_t(top_ - end), MADV_DONTNEED);
        mprotect(end, size_t(top_ - end), PROT_NONE);
        top_ = end;
        n = size_t(top_ - p);
      }
    }
    insert(p, n);
  }

  void insert(char *p, size_t n) {
    free_[p] = n;
    by_size_.insert({n, p});
  }
  void remove(char *p, size_t n) {
    free_.erase(p);
    by_size_.erase({n, p});
  }

  c10::Allocator *other_;
  c10::DeleterFnPtr del_;
  std::mutex mu_;
  char *base_ = nullptr, *top_ = nullptr;
  size_t size_ = 0, spare_ = 0, used_bytes_ = 0;
  std::map<char *, size_t> free_;
  std::set<std::pair<size_t, char *>> by_size_;  // of equals the lowest address first: the end stays free
  std::unordered_map<char *, size_t> used_;
};

Arena *Arena::one = nullptr;

}  // namespace

extern "C" {
void agt_arena(void) {
  if (Arena::one) return;
  Arena::one = new Arena(c10::GetDefaultCPUAllocator());
  c10::SetCPUAllocator(Arena::one, 1);
}
void agt_arena_stats(int64_t *used, int64_t *held) { Arena::one->stats(used, held); }
}
