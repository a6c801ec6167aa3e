// Enough of Hopper for fused/attention.cu to run on a CPU: the threads of a block take turns, each until it has to wait.
// Copies and products happen at once or, late, no sooner than somebody waits for them and nothing else can happen, the
// last copy first. Swizzles and matrices are those of NVIDIA's PTX manual.
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <vector>

struct Index { int x; };
static Index threadIdx, blockIdx, gridDim;
static const int BLOCK = 384, BASE = 1024;
alignas(1024) static char shared[BYTES_OF_BLOCK];
static ucontext_t scheduler, contexts[BLOCK];
static bool ended[BLOCK], unseen[BLOCK], at_once;
static long events, astray;  // what has happened; what must not
static std::function<void()> body;

static int current() { return threadIdx.x; }
static void leave() { swapcontext(&contexts[current()], &scheduler); }

struct Meeting { int waiting = 0, phase = 0; };
static std::map<int, Meeting> meetings;
static void meet(int which, int size) {
  Meeting& here = meetings[which];
  const int mine = here.phase;
  if (++here.waiting == size) here.waiting = 0, here.phase++, events++;
  while (here.phase == mine) leave();
}
static void warp_together() { meet(100 + current() / 32, 32); }
static void warpgroup_together(int which) { meet(which, WARPGROUP); }
static void block_together() { meet(0, BLOCK); }

static u32 __cvta_generic_to_shared(const void*) { return BASE; }
static char* at(u32 address, u32 bytes) {
  if (address < BASE || address - BASE + bytes > BYTES_OF_BLOCK) return astray++, shared;
  return shared + (address - BASE);
}
static u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

struct Count { int arrivals = 0, left = 0, phase = 0; long bytes = 0; bool made = false; };
static std::map<u32, Count> counts;
static Count& count_at(u32 barrier) {
  astray += !counts[barrier].made;
  return counts[barrier];
}
static void settle(Count& one) {
  events++;
  if (one.left == 0 && one.bytes == 0) one.left = one.arrivals, one.phase++;
  astray += one.left < 0;
}
static void make_barrier(u32 barrier, int arrivals) {
  astray += barrier % 8 || counts[barrier].made;
  at(barrier, 8);  // astray where there is no room for it
  counts[barrier] = {arrivals, arrivals, 0, 0, true};
}
static void await(u32 barrier, u32 parity) {
  while ((count_at(barrier).phase & 1) == (int)parity) leave();
}
static void expect(u32 barrier, u32 bytes) {
  Count& one = count_at(barrier);
  one.bytes += bytes, one.left--, settle(one);
}
static void arrive(u32 barrier) { count_at(barrier).left--, settle(count_at(barrier)); }

// A box of rows of a head; a Map is, for the tests: address, four sizes, bytes to the next of each, rows of a box.
static void move_box(bool in, u32 place, const Map& map, int row, int head, int image) {
  astray += place % 1024 != 0;
  for (int r = 0; r < (int)map.words[9]; r++)
    for (int c = 0; c < LINE / 2; c++) {
      const std::array<int, 4> one = {c, row + r, head, image};
      char *here = at(swizzled(place + r * LINE + c * 2), 2), *there = (char*)map.words[0];
      bool inside = true;
      for (int i = 0; i < 4; i++) {
        inside &= one[i] >= 0 && one[i] < (long)map.words[1 + i];
        there += one[i] * (long)map.words[5 + i];
      }
      if (inside) in ? std::memcpy(here, there, 2) : std::memcpy(there, here, 2);
      else if (in) std::memset(here, 0, 2);
    }
}
static std::vector<std::function<void()>> coming;
static std::deque<std::vector<std::function<void()>>> leaving[BLOCK], products[BLOCK];
static void fetch(u32 to, const Map& map, int row, int head, int image, u32 barrier) {
  auto copy = [=, &map] {
    move_box(true, to, map, row, head, image);
    count_at(barrier).bytes -= map.words[9] * LINE, settle(count_at(barrier));
  };
  at_once ? copy() : coming.push_back(copy);
}
static void send(u32 from, const Map& map, int row, int head, int image) {
  const int first = current() / WARPGROUP * WARPGROUP;
  for (int thread = first; thread < first + WARPGROUP; thread++) astray += unseen[thread];
  auto copy = [=, &map] { move_box(false, from, map, row, head, image); };
  if (leaving[current()].empty()) leaving[current()].emplace_back();
  at_once ? copy() : leaving[current()].back().push_back(copy);
}
static void close_group() { leaving[current()].emplace_back(); }
static void await_sent() {
  for (auto& group : leaving[current()]) for (auto& copy : group) copy();
  leaving[current()].clear();
}
static void await_read() { await_sent(); }
static void show_to_tma() { unseen[current()] = false; }

template <int COUNT> static void fewer_registers() {}
template <int COUNT> static void more_registers() {}

static float number_of(u32 bits) { float value; std::memcpy(&value, &bits, 4); return value; }
static float __uint_as_float(u32 bits) { return number_of(bits); }
static float half_of(u32 both, int which) { return number_of(which ? both & 0xffff0000u : both << 16); }

// Products of a warpgroup: each thread has its own rows and columns of the sums.
static float number(u64 seen, int row, int column) {
  const u32 start = (seen & 0x3FFF) << 4, eight_rows = (seen >> 32 & 0x3FFF) << 4;
  astray += seen >> 62 != 1;
  unsigned short half;
  std::memcpy(&half, at(swizzled(start + row / 8 * eight_rows + row % 8 * LINE + 2 * column), 2), 2);
  return number_of((u32)half << 16);
}
static void later(std::function<void()> product) {
  if (products[current()].empty()) products[current()].emplace_back();
  at_once ? product() : products[current()].back().push_back(product);
}
template <int SIZE> static void compare(float (&d)[SIZE], u64 query, u64 key, int onto) {
  later([=, &d] {
    const int thread = current() % WARPGROUP, lane = thread % 32;
    for (int i = 0; i < SIZE; i++) {
      const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float total = onto ? d[i] : 0;
      for (int k = 0; k < 16; k++) total += number(query, row, k) * number(key, column, k);
      d[i] = total;
    }
  });
}
static u32 shares[BLOCK][4];
template <int SIZE> static void mix(float (&d)[SIZE], const u32 (&share)[4], u64 value, int onto) {
  later([=, &d, &share] {
    const int lane = current() % 32, first = current() - lane;
    std::copy(share, share + 4, shares[current()]);
    warp_together();
    for (int i = 0; i < SIZE; i++) {
      const int below = i % 4 / 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float total = onto ? d[i] : 0;
      for (int k = 0; k < 16; k++) {
        const u32 both = shares[first + lane / 4 * 4 + k % 8 / 2][below + k / 8 * 2];
        total += half_of(both, k % 2) * number(value, k, column);
      }
      d[i] = total;
    }
    warp_together();
  });
}
static void begin_products() {}
static void close_products() { products[current()].emplace_back(); }
template <int SIZE> static void await_products(float (&)[SIZE]) {
  auto& mine = products[current()];
  for (; mine.size() > 1; mine.pop_front()) for (auto& one : mine.front()) one();
}

static u32 told[BLOCK];
static void put_matrices(u32 to, const u32 (&four)[4]) {
  const int lane = current() % 32, first = current() - lane;
  astray += to % 16 != 0;
  told[current()] = to, unseen[current()] = true;
  warp_together();
  for (int other = lane & 24; other < lane; other++) astray += told[first + other] / 16 % 8 == to / 16 % 8;  // a bank
  for (int matrix = 0; matrix < 4; matrix++)
    std::memcpy(at(told[first + 8 * matrix + lane / 4] + lane % 4 * 4, 4), &four[matrix], 4);
  warp_together();
}

static float brought[BLOCK];
static float of_lane(float x, int apart) {
  brought[current()] = x;
  warp_together();
  const float found = brought[current() ^ apart];
  warp_together();
  return found;
}
static float power_of_two(float x) {
  const float found = std::exp2(x);
  return found < 1.17549435e-38f ? 0 : found;  // which NaN is not
}
static u32 rounded(float value) {
  if (value != value) return 0x7fff;
  u32 bits;
  std::memcpy(&bits, &value, 4);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
static u32 packed(float low, float high) { return rounded(low) | rounded(high) << 16; }

// Block by block. What was astray; -1 where threads wait for ever.
template <class Kernel> static long launch(int blocks, bool late, Kernel kernel) {
  static std::vector<char> stacks(BLOCK << 15);
  at_once = !late, astray = 0, body = kernel, gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
    std::memset(shared, 0xff, sizeof shared);  // NaN: nothing may rely on what was there
    meetings.clear(), counts.clear(), coming.clear();
    for (int i = 0; i < BLOCK; i++) {
      getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = &stacks[i << 15], contexts[i].uc_stack.ss_size = 1 << 15;
      contexts[i].uc_link = &scheduler, ended[i] = unseen[i] = false, leaving[i].clear(), products[i].clear();
      makecontext(&contexts[i], +[] { body(), ended[current()] = true, events++; }, 0);
    }
    for (int left = BLOCK; left;) {
      const long before = events;
      left = 0;
      for (int i = 0; i < BLOCK; i++) {
        threadIdx.x = late ? BLOCK - 1 - i : i;
        if (!ended[current()]) swapcontext(&scheduler, &contexts[current()]);
        left += !ended[current()];
      }
      if (events != before || !left) continue;
      if (coming.empty()) return -1;
      auto copy = coming.back();
      coming.pop_back(), copy();
    }
    for (auto& [_, one] : counts) astray += one.bytes != 0;
  }
  return astray;
}
