// In the place of fused/tensor_cores.cu, and enough of CUDA for resnet.cu, gradient.cu, pooled.cu and training/narrow.cu
// to run on a CPU: a block's threads take turns, each until a barrier stops it, and a warp's instructions happen at a
// barrier of its 32. Meanings of ldmatrix and mma are those of NVIDIA's PTX manual.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

typedef unsigned int u32;
struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct Index { int x; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static inline float __uint_as_float(u32 bits) { float value; std::memcpy(&value, &bits, 4); return value; }
template <class T> static inline T __ldg(const T* at) { return *at; }

static const int BLOCK = THREADS_OF_BLOCK;
alignas(128) static char shared_memory[BYTES_OF_BLOCK];
static Index threadIdx, blockIdx, gridDim;
static ucontext_t scheduler, contexts[BLOCK];
static bool ended[BLOCK];
static int held[BLOCK];  // by which turn of the whole block's barrier, -1: by none
static std::function<void()> body;
static u32 told[BLOCK][6];  // what a lane brings to its warp's instruction

struct Barrier {
  int size, waiting = 0, phase = 0;
  void arrive_and_wait();
};
static Barrier whole{BLOCK};
void Barrier::arrive_and_wait() {
  const int mine = phase, thread = threadIdx.x;
  if (++waiting == size) waiting = 0, phase++;
  held[thread] = this == &whole ? mine : -1;
  while (phase == mine) swapcontext(&contexts[thread], &scheduler);
  held[thread] = -1;
}
static std::vector<Barrier> warps;

static inline void __syncthreads() { whole.arrive_and_wait(); }
static inline void __syncwarp() { warps[threadIdx.x / 32].arrive_and_wait(); }
static inline u32 __cvta_generic_to_shared(const void* at) { return (u32)((const char*)at - shared_memory); }

static inline u32 rounded(float value) {
  if (value != value) return 0x7fff;  // as cvt.rn.bf16x2.f32 does
  u32 bits;
  std::memcpy(&bits, &value, 4);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
template <bool RELU = false> static inline u32 pack(float low, float high) {
  if (RELU) low = low < 0 ? 0 : low, high = high < 0 ? 0 : high;  // cvt.rn.relu keeps NaN too
  return rounded(low) | rounded(high) << 16;
}
static inline float larger(float one, float other) { return one != one || one > other ? one : other; }  // as max.NaN.f32
static inline u32 spread(u32 word, int place) {
  return (word >> place & 1 ? 0xffffu : 0) | (word >> (16 + place) & 1 ? 0xffff0000u : 0);
}
static inline float half_of(u32 both, int which) { return __uint_as_float(which ? both & 0xffff0000u : both << 16); }

// Rows that are not 16 bytes of the block's memory at a multiple of 16; and those of eight that lie in the same banks.
static int astray, crowded;

template <bool TURNED = false> static inline void ldmatrix(u32 (&r)[4], u32 address) {
  const int lane = threadIdx.x & 31, first = threadIdx.x - lane;
  told[threadIdx.x][0] = address;
  astray += address % 16 || address + 16 > BYTES_OF_BLOCK;
  warps[threadIdx.x / 32].arrive_and_wait();
  for (int other = lane & 24; other < lane; other++)
    crowded += told[first + other][0] != address && told[first + other][0] / 16 % 8 == address / 16 % 8;
  for (int matrix = 0; matrix < 4; matrix++)
    for (int half = 0; half < 2; half++) {
      const int row = TURNED ? lane % 4 * 2 + half : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + half;
      std::memcpy((char*)&r[matrix] + 2 * half, shared_memory + told[first + 8 * matrix + row][0] + 2 * column, 2);
    }
  warps[threadIdx.x / 32].arrive_and_wait();
}

static inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const int lane = threadIdx.x & 31, first = threadIdx.x - lane;
  u32* mine = told[threadIdx.x];
  std::copy(a, a + 4, mine);
  mine[4] = b0, mine[5] = b1;
  warps[threadIdx.x / 32].arrive_and_wait();
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float total = 0;
    for (int k = 0; k < 16; k++) {
      const int quad = k % 8 / 2;
      const u32 left = told[first + row % 8 * 4 + quad][row / 8 + k / 8 * 2];
      const u32 right = told[first + column * 4 + quad][4 + k / 8];
      total += half_of(left, k % 2) * half_of(right, k % 2);
    }
    c[i] += total;
  }
  warps[threadIdx.x / 32].arrive_and_wait();
}

// Copies to shared memory arrive at once or, as late as they may, when they are waited for.
static bool at_once;
struct Copy { char* to; const char* from; int bytes = 16; };
static std::deque<std::vector<Copy>> travelling_of[BLOCK];
#define travelling travelling_of[threadIdx.x]

static inline void fetch(char* to, const char*& packed, int bytes) {
  travelling.emplace_back();
  for (int i = threadIdx.x * 16; i < bytes; i += BLOCK * 16)
    if (at_once) std::memcpy(to + i, packed + i, 16);
    else travelling.back().push_back({to + i, packed + i});
  packed += bytes;
}
template <int TIMES> static inline void arrived() {
  for (; travelling.size() > TIMES; travelling.pop_front())
    for (auto& one : travelling.front()) std::memcpy(one.to, one.from, one.bytes);
}

// cp.async of 16 bytes, or of zeros; from is not read then.
static inline void bring(u32 to, const char* from, bool there) {
  static const char zeros[16] = {};
  astray += to % 16 || to + 16 > BYTES_OF_BLOCK || (size_t)from % 16;
  if (travelling.empty()) travelling.emplace_back();
  if (at_once) std::memcpy(shared_memory + to, there ? from : zeros, 16);
  else travelling.back().push_back({shared_memory + to, there ? from : zeros});
}
static inline void land() { arrived<0>(); }
template <int BYTES> static inline void bring(u32 to, const char* from) {
  astray += to % BYTES || to + BYTES > BYTES_OF_BLOCK || (size_t)from % BYTES;
  if (travelling.empty()) travelling.emplace_back();
  if (at_once) std::memcpy(shared_memory + to, from, BYTES);
  else travelling.back().push_back({shared_memory + to, from, BYTES});
}

// Every block by itself; late: copies arrive late, and the last warps go first. What was astray meanwhile.
template <class Kernel> static int launch(int blocks, bool late, Kernel kernel) {
  static std::vector<char> stacks(BLOCK << 16);
  at_once = !late, astray = crowded = 0, body = kernel, gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
    std::memset(shared_memory, 0xff, sizeof shared_memory);  // NaN: nothing may rely on what was there
    whole = {BLOCK}, warps.assign(BLOCK / 32, {32});
    for (int i = 0; i < BLOCK; i++) {
      getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = &stacks[i << 16], contexts[i].uc_stack.ss_size = 1 << 16;
      contexts[i].uc_link = &scheduler, ended[i] = false, held[i] = -1, travelling_of[i].clear();
      makecontext(&contexts[i], +[] { body(), ended[threadIdx.x] = true; }, 0);
    }
    for (bool moved = true; moved;) {  // a warp goes on until all of it stand at the block's barrier
      moved = false;
      for (int i = 0; i < BLOCK / 32; i++)
        for (bool again = true; again;) {
          again = false;
          for (int lane = 0; lane < 32; lane++) {
            const int thread = threadIdx.x = (late ? BLOCK / 32 - 1 - i : i) * 32 + lane;
            if (ended[thread] || held[thread] == whole.phase) continue;
            swapcontext(&scheduler, &contexts[thread]);
            moved = again = true;
          }
        }
    }
    astray += BLOCK - std::count(ended, ended + BLOCK, true);  // still wait for others that have ended
  }
  return astray + crowded;
}
