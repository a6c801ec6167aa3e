// Enough of Hopper for fused/linear_gelu.cu and attention.cu to run on a CPU: the threads of a cluster take turns, each until it has to
// wait. Copies and products happen at once or, late, no sooner than somebody waits for them and nothing else can happen,
// the last copy first. Swizzles and matrices are those of NVIDIA's PTX manual.
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

typedef uint32_t u32;
typedef uint64_t u64;
struct float2 { float x, y; };
struct Index { int x; };
struct alignas(64) Map { u64 words[16]; };  // of the tests: address, four sizes, bytes to the next of each, rows of a box

static const int WARPGROUP = 128, LINE = 128, BLOCK = 384, ALL = BLOCK * CLUSTER, BASE = 1024;
alignas(1024) static char shared[CLUSTER][BYTES_OF_BLOCK];
static Index threadIdx, blockIdx, gridDim;
static int current;  // of all threads of the cluster
static ucontext_t scheduler, contexts[ALL];
static bool ended[ALL], at_once, unseen[ALL];
static long events, astray;
static std::function<void()> body;

static int block_of(int thread) { return thread / BLOCK; }
static void leave() { swapcontext(&contexts[current], &scheduler); }

struct Meeting { int waiting = 0, phase = 0; };
static std::map<int, Meeting> meetings;
static void meet(int which, int size) {
  Meeting& here = meetings[which];
  const int mine = here.phase;
  if (++here.waiting == size) here.waiting = 0, here.phase++, events++;
  while (here.phase == mine) leave();
}
static void warp_together() { meet(1000 + current / 32, 32); }
static void warpgroup_together(int which) { meet(100 + 8 * block_of(current) + which, 128); }
static void block_together() { meet(1 + block_of(current), BLOCK); }
static void cluster_together() { meet(0, ALL); }

static char* at(int block, u32 address, u32 bytes) {
  if (address < BASE || address - BASE + bytes > BYTES_OF_BLOCK) return astray++, shared[block];
  return shared[block] + (address - BASE);
}
static u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

struct Count { int arrivals = 0, left = 0, phase = 0; long bytes = 0; bool made = false; };
static std::map<u32, Count> counts[CLUSTER];
static Count& count_at(int block, u32 barrier) {
  Count& found = counts[block][barrier];
  astray += !found.made || barrier % 8;
  return found;
}
static void settle(Count& one) {
  events++;
  if (one.left == 0 && one.bytes == 0) one.left = one.arrivals, one.phase++;
  astray += one.left < 0;
}
static u32 rank_in_cluster() { return block_of(current); }
static void make_barrier(u32 barrier, int arrivals) {
  astray += barrier % 8 || counts[block_of(current)][barrier].made;
  counts[block_of(current)][barrier] = {arrivals, arrivals, 0, 0, true};
}
static void await(u32 barrier, u32 parity) {
  Count& one = count_at(block_of(current), barrier);
  while ((one.phase & 1) == (int)parity) leave();
}
static void expect(u32 barrier, u32 bytes) {
  Count& one = count_at(block_of(current), barrier);
  one.bytes += bytes, one.left--, settle(one);
}
static void arrive(u32 barrier, int block) {
  Count& one = count_at(block, barrier);
  one.left--, settle(one);
}
static void arrive(u32 barrier) { arrive(barrier, block_of(current)); }

// Copies to shared memory, and from it in groups of the thread that sends.
static std::deque<std::function<void()>> coming;
static std::deque<std::vector<std::function<void()>>> leaving[ALL];
typedef std::array<int, 4> Place;  // column, row, head, image
static void move_box(bool in, int block, u32 place, const Map& map, Place first, u32 barrier) {
  const int lines = map.words[9];
  astray += place % 1024 != 0;
  for (int r = 0; r < lines; r++)
    for (int c = 0; c < 64; c++) {
      const Place one = {first[0] + c, first[1] + r, first[2], first[3]};
      char *here = at(block, swizzled(place + r * LINE + c * 2), 2), *there = (char*)map.words[0];
      bool inside = true;
      for (int i = 0; i < 4; i++) inside &= one[i] >= 0 && one[i] < (long)map.words[1 + i], there += one[i] * (long)map.words[5 + i];
      if (inside) in ? std::memcpy(here, there, 2) : std::memcpy(there, here, 2);
      else if (in) std::memset(here, 0, 2);
    }
  if (!in) return;
  Count& one = count_at(block, barrier);
  one.bytes -= lines * LINE, settle(one);
}
static void bring(int block, u32 to, const Map& map, Place first, u32 barrier) {
  auto copy = [=, &map] { move_box(true, block, to, map, first, barrier); };
  at_once ? copy() : coming.push_back(copy);
}
static void fetch(u32 to, const Map& map, int column, int row, int head, int image, u32 barrier) {
  bring(block_of(current), to, map, {column, row, head, image}, barrier);
}
static void fetch(u32 to, const Map& map, int column, int row, u32 barrier) { fetch(to, map, column, row, 0, 0, barrier); }
static void fetch_for_all(u32 to, const Map& map, int column, int row, u32 barrier) {
  for (int block = 0; block < CLUSTER; block++) bring(block, to, map, {column, row, 0, 0}, barrier);
}
static void send(u32 from, const Map& map, int column, int row, int head = 0, int image = 0) {
  const int first = current / WARPGROUP * WARPGROUP, block = block_of(current);
  for (int thread = first; thread < first + WARPGROUP; thread++) astray += unseen[thread];
  auto copy = [=, &map] { move_box(false, block, from, map, {column, row, head, image}, 0); };
  if (leaving[current].empty()) leaving[current].emplace_back();
  at_once ? copy() : leaving[current].back().push_back(copy);
}
static void close_group() { leaving[current].emplace_back(); }
static void await_sent() {
  for (auto& group : leaving[current]) for (auto& copy : group) copy();
  leaving[current].clear();
}
static void await_read() { await_sent(); }
static void show_to_tma() { unseen[current] = false; }

template <int COUNT> static void fewer_registers() {}
template <int COUNT> static void more_registers() {}

// Products of a warpgroup: each thread has its own rows and columns of the sums.
static std::deque<std::vector<std::function<void()>>> products[ALL];
static float number(u64 seen, int row, int k) {
  const u32 start = (seen & 0x3FFF) << 4, eight_rows = (seen >> 32 & 0x3FFF) << 4;
  astray += seen >> 62 != 1;
  u32 bits = 0;
  std::memcpy((char*)&bits + 2, at(block_of(current), swizzled(start + row / 8 * eight_rows + row % 8 * 128 + 2 * k), 2), 2);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
static void later(std::function<void()> product) {
  if (products[current].empty()) products[current].emplace_back();
  at_once ? product() : products[current].back().push_back(product);
}
template <int SIZE> static void multiply(float (&d)[SIZE], u64 left, u64 right, int onto) {
  later([=, &d] {
    const int thread = current % WARPGROUP, lane = thread % 32;
    for (int i = 0; i < SIZE; i++) {
      const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float total = onto ? d[i] : 0;
      for (int k = 0; k < 16; k++) total += number(left, row, k) * number(right, column, k);
      d[i] = total;
    }
  });
}
template <int SIZE> static void compare(float (&d)[SIZE], u64 query, u64 key, int onto) { multiply(d, query, key, onto); }
static u32 shares[ALL][4];
static float half_of(u32 both, int which) {
  const u32 bits = which ? both & 0xffff0000u : both << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
template <int SIZE> static void mix(float (&d)[SIZE], const u32 (&share)[4], u64 value, int onto) {
  later([=, &d, &share] {
    const int lane = current % 32, first = current - lane;
    std::copy(share, share + 4, shares[current]);
    warp_together();
    for (int i = 0; i < SIZE; i++) {
      const int row = lane / 4, below = i % 4 / 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float total = onto ? d[i] : 0;
      for (int k = 0; k < 16; k++)
        total += half_of(shares[first + row * 4 + k % 8 / 2][below + k / 8 * 2], k % 2) * number(value, k, column);
      d[i] = total;
    }
    warp_together();
  });
}
static void begin_products() {}
static void close_products() { products[current].emplace_back(); }
template <int LEFT> static void await_groups() {
  auto& mine = products[current];
  for (; mine.size() > LEFT + 1; mine.pop_front()) for (auto& one : mine.front()) one();
}
template <int LEFT, int SIZE> static void await_products(float (&)[2][SIZE]) { await_groups<LEFT>(); }
template <int SIZE> static void await_products(float (&)[SIZE]) { await_groups<0>(); }

static u32 told[ALL];
static void put_matrices(u32 to, const u32 (&four)[4]) {
  const int lane = current % 32, first = current - lane;
  astray += to % 16 != 0;
  told[current] = to, unseen[current] = true;
  warp_together();
  for (int other = lane & 24; other < lane; other++) astray += told[first + other] / 16 % 8 == to / 16 % 8;  // a bank
  for (int matrix = 0; matrix < 4; matrix++)
    std::memcpy(at(block_of(current), told[first + 8 * matrix + lane / 4] + lane % 4 * 4, 4), &four[matrix], 4);
  warp_together();
}

static float brought[ALL];
static float of_lane(float x, int apart) {
  brought[current] = x;
  warp_together();
  const float found = brought[current ^ apart];
  warp_together();
  return found;
}
static float __uint_as_float(u32 bits) { float value; std::memcpy(&value, &bits, 4); return value; }
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
static u32 __cvta_generic_to_shared(const void*) { return BASE; }

// Cluster by cluster. What was astray; -1 where threads wait for ever.
template <class Kernel> static long launch(int blocks, bool late, Kernel kernel) {
  static std::vector<char> stacks(ALL << 15);
  at_once = !late, astray = 0, body = kernel, gridDim.x = blocks;
  for (int cluster = 0; cluster < blocks / CLUSTER; cluster++) {
    std::memset(shared, 0xff, sizeof shared);  // NaN: nothing may rely on what was there
    meetings.clear(), coming.clear();
    for (auto& one : counts) one.clear();
    for (int i = 0; i < ALL; i++) {
      getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = &stacks[i << 15], contexts[i].uc_stack.ss_size = 1 << 15;
      contexts[i].uc_link = &scheduler, ended[i] = unseen[i] = false, leaving[i].clear(), products[i].clear();
      makecontext(&contexts[i], +[] { body(), ended[current] = true, events++; }, 0);
    }
    for (int left = ALL; left;) {
      const long before = events;
      left = 0;
      for (int i = 0; i < ALL; i++) {
        current = late ? ALL - 1 - i : i;
        if (ended[current]) continue;
        threadIdx.x = current % BLOCK, blockIdx.x = cluster * CLUSTER + block_of(current);
        swapcontext(&scheduler, &contexts[current]);
        left += !ended[current];
      }
      if (events != before || !left) continue;
      if (coming.empty()) return -1;
      auto copy = coming.back();
      coming.pop_back(), copy();
    }
    for (auto& block : counts) for (auto& [_, one] : block) astray += one.bytes != 0;
  }
  return astray;
}
