// Two layers of convolution, ReLU and 2 x 2 maximum each, as small networks begin, for inference, behind tensor_cores.cu.
// A warp works on one image by itself, from its pixels to what the second layer finds; nothing in between leaves the
// chip.
//
// Shared memory, of a block:  biases | weights of the first layer | weights of the second, row by row | 16 zero bytes
//                 of a warp:  its next image, as it lies in memory | its image, in words of two neighbours: pixels
//                             0 1, 2 3, ... and then 1 2, 3 4, ... | what the first layer found, channels last
//
// A tile of a product has 16 rows: of eight windows of the maximum two pixels each; the next tile has the other two. So a
// thread has all four of its windows. The first layer's taps, few channels, are pairs of neighbours, and a thread reads
// its pairs from the words; the second layer's are groups of eight channels, which ldmatrix reads.
//
// Options of the compiler: CHANNELS, HEIGHT, WIDTH of an image; of the layers TAPS1, EDGE1 (zeros around), FOUND1
// (channels) and TAPS2, EDGE2, FOUND2; LAST, whether images have their channels last; WARPS of a block.

typedef unsigned short u16;

#define LINES (HEIGHT + 2 * EDGE1)
#define ACROSS (WIDTH + 2 * EDGE1)
#define WORDS (ACROSS / 2 + 2)  // of a line; the last ones are read, and nothing is made of them
#define COPY (CHANNELS * LINES * WORDS)
#define HALF ((TAPS1 + 1) / 2)
#define PAIRS (CHANNELS * TAPS1 * HALF)
#define STEPS1 ((PAIRS + 7) / 8)
#define TILES1 ((FOUND1 + 7) / 8)
#define HIGH1 ((LINES - TAPS1 + 1) / 2)
#define WIDE1 ((ACROSS - TAPS1 + 1) / 2)

#define GROUPS ((FOUND1 + 7) / 8)  // of eight channels
#define PITCH (GROUPS | 1)         // of a pixel, in groups: an odd number, for the banks
#define HIGH2 ((HIGH1 + 2 * EDGE2 - TAPS2 + 1) / 2)
#define MIDDLE (WIDE1 + 2 * EDGE2)
#define WIDE2 ((MIDDLE - TAPS2 + 1) / 2)
#define WINDOWS2 (HIGH2 * WIDE2)
#define PARTS (TAPS2 * TAPS2 * GROUPS)
#define STEPS2 ((PARTS + 1) / 2)
#define ROW ((2 * STEPS2) | 1)  // of weights, in groups
#define TILES2 ((FOUND2 + 7) / 8)

#define THREADS (32 * WARPS)
#define IMAGE_BYTES (CHANNELS * HEIGHT * WIDTH * 2)
#define PIECE (IMAGE_BYTES % 16 == 0 ? 16 : IMAGE_BYTES % 8 == 0 ? 8 : 4)
#define MIDDLE_BYTES ((HIGH1 + 2 * EDGE2) * MIDDLE * PITCH * 16)
#define UP(bytes) (((bytes) + 15) / 16 * 16)
#define AT_WEIGHTS1 (8 * (TILES1 + TILES2) * 4)
#define AT_WEIGHTS2 UP(AT_WEIGHTS1 + STEPS1 * 8 * TILES1 * 8 * 4)
#define AT_ZEROS (AT_WEIGHTS2 + TILES2 * 8 * ROW * 16)
#define AT_WARPS (AT_ZEROS + 16)
#define AT_WORDS UP(IMAGE_BYTES)
#define AT_MIDDLE (AT_WORDS + UP(2 * COPY * 4))
#define WARP_BYTES (AT_MIDDLE + MIDDLE_BYTES)
extern __shared__ __align__(128) char room[];
static_assert(IMAGE_BYTES % 4 == 0, "images are copied in pieces of at least four bytes");

// NaN if one of them is.
__device__ __forceinline__ float larger(float one, float other) {
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(one), "f"(other));
  return found;
}

// A piece on its way, and that all of a thread's have come.
template <int BYTES> __device__ __forceinline__ void bring(u32 to, const char* from) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES));
}
__device__ __forceinline__ void land() {
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}
// The rest is C++.

__device__ __forceinline__ float as_float(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ __forceinline__ void bring_image(u32 to, const char* images, long image, int lane) {
  for (int i = lane; i < IMAGE_BYTES / PIECE; i += 32) bring<PIECE>(to + i * PIECE, images + image * IMAGE_BYTES + i * PIECE);
}

// Both copies in words, from the image as it lies in memory.
__device__ __forceinline__ void lay_out(u32* words, const u16* image, int lane) {
#pragma unroll 4
  for (int i = lane; i < COPY; i += 32) {
    const int line = i / WORDS, y = line % LINES - EDGE1, channel = line / LINES, first = i % WORDS * 2 - EDGE1;
    u32 pixel[3];
#pragma unroll
    for (int k = 0; k < 3; k++) {
      const int x = first + k;
      const bool there = y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
      pixel[k] = !there ? 0 : image[LAST ? (y * WIDTH + x) * CHANNELS + channel : (channel * HEIGHT + y) * WIDTH + x];
    }
    words[i] = pixel[0] | pixel[1] << 16;
    words[COPY + i] = pixel[1] | pixel[2] << 16;
  }
}

// The largest of a thread's four pixels of a window, by columns.
__device__ __forceinline__ float largest(const float (&upper)[4], const float (&lower)[4], int column) {
  return larger(larger(upper[column], upper[column + 2]), larger(lower[column], lower[column + 2]));
}

__device__ __forceinline__ void first_layer(char* middle, const u32* words, const u32* weights, const float* bias,
                                            int lane) {
  const int g = lane >> 2, t = lane & 3;
  u32 b[STEPS1][TILES1][2], mask[STEPS1][2];
  int offset[STEPS1][2];
#pragma unroll
  for (int step = 0; step < STEPS1; step++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int pair = step * 8 + k * 4 + t, line = pair / HALF, half = pair % HALF;
      offset[step][k] = pair < PAIRS ? (line / TAPS1 * LINES + line % TAPS1) * WORDS + half : 0;
      mask[step][k] = pair >= PAIRS ? 0 : 2 * half + 1 < TAPS1 ? 0xffffffffu : 0xffffu;  // 0 times NaN would be NaN
#pragma unroll
      for (int n = 0; n < TILES1; n++) b[step][n][k] = weights[pair * (TILES1 * 8) + n * 8 + g];
    }
#pragma unroll 1
  for (int first = 0; first < HIGH1 * WIDE1; first += 8) {
    const bool there = first + g < HIGH1 * WIDE1;
    const int window = there ? first + g : 0, y = window / WIDE1, x = window % WIDE1;
    const u32* corner = words + 2 * y * WORDS + x;
    float sum[2][TILES1][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS1; step++)
#pragma unroll
      for (int down = 0; down < 2; down++) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
          a[i] = corner[offset[step][i / 2] + down * WORDS + i % 2 * COPY] & mask[step][i / 2];
#pragma unroll
        for (int n = 0; n < TILES1; n++) mma(sum[down][n], a, b[step][n][0], b[step][n][1]);
      }
    u32* to = (u32*)(middle + ((y + EDGE2) * MIDDLE + x + EDGE2) * (PITCH * 16));
    if (there)
#pragma unroll
      for (int n = 0; n < TILES1; n++) {
        const int channel = n * 8 + 2 * t;
        const u32 both = pack<true>(largest(sum[0][n], sum[1][n], 0) + bias[channel],
                                   largest(sum[0][n], sum[1][n], 1) + bias[channel + 1]);
        to[channel / 2] = both & (channel + 1 < FOUND1 ? 0xffffffffu : channel < FOUND1 ? 0xffffu : 0);
      }
  }
}

// In bytes, from a window's corner: of eight channels of a tap.
__device__ __forceinline__ constexpr int place(int part) {
  return ((part / GROUPS / TAPS2 * MIDDLE + part / GROUPS % TAPS2) * PITCH + part % GROUPS) * 16;
}

__device__ __forceinline__ void second_layer(u16* out, u32 middle, u32 weights, u32 zeros, const float* bias, int lane) {
  const int g = lane >> 2, t = lane & 3, half = lane >> 4;
  // Of two tiles of weights: rows are channels that are found.
  const u32 of_weights = weights + ((lane & 7) + (lane >> 4) * 8) * (ROW * 16) + ((lane >> 3) & 1) * 16;
#pragma unroll 1
  for (int first = 0; first < WINDOWS2; first += 16) {
    u32 corner[2][2];
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
      for (int down = 0; down < 2; down++) {
        const int any = first + tile * 8 + (lane & 7), window = any < WINDOWS2 ? any : 0;
        const int right = ((lane >> 3) ^ (lane >> 2)) & 1;  // the other way round in every other four, for the banks
        const int y = window / WIDE2 * 2 + down, x = window % WIDE2 * 2 + right;
        corner[tile][down] = middle + (y * MIDDLE + x) * (PITCH * 16);
      }
    float sum[2][2][TILES2][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS2; step++) {
      u32 b[(TILES2 + 1) / 2][4];
#pragma unroll
      for (int n = 0; n < (TILES2 + 1) / 2; n++)  // of an odd number the last is read twice
        ldmatrix(b[n], of_weights - (2 * n + 1 < TILES2 ? 0 : half * (8 * ROW * 16)) + n * (16 * ROW * 16) + step * 32);
      const bool over = 2 * step + 1 == PARTS && half;
      const int by = half ? place(2 * step + 1) : place(2 * step);
#pragma unroll
      for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int down = 0; down < 2; down++) {
          u32 a[4];
          ldmatrix(a, over ? zeros : corner[tile][down] + by);
#pragma unroll
          for (int n = 0; n < TILES2; n++) mma(sum[tile][down][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      const int window = first + tile * 8 + g;
#pragma unroll
      for (int n = 0; n < TILES2; n++) {
        const int channel = n * 8 + 2 * t;
        const u32 both = pack<true>(largest(sum[tile][0][n], sum[tile][1][n], 0) + bias[channel],
                                   largest(sum[tile][0][n], sum[tile][1][n], 1) + bias[channel + 1]);
        if (window < WINDOWS2 && channel < FOUND2) out[channel * WINDOWS2 + window] = (u16)both;
        if (window < WINDOWS2 && channel + 1 < FOUND2) out[(channel + 1) * WINDOWS2 + window] = (u16)(both >> 16);
      }
    }
  }
}

// images (count, CHANNELS, HEIGHT, WIDTH) or, where LAST, (count, HEIGHT, WIDTH, CHANNELS); weights (FOUND, channels,
// TAPS, TAPS), biases (FOUND,); out (count, FOUND2, HIGH2, WIDE2): all bf16 and contiguous.
extern "C" __global__ void __launch_bounds__(THREADS)
pooled_twice(const char* images, const u16* weights1, const u16* bias1, const u16* weights2, const u16* bias2, u16* out,
             int count) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float* biases = (float*)room;
  u32* first = (u32*)(room + AT_WEIGHTS1);
  u16* second = (u16*)(room + AT_WEIGHTS2);
  char* mine = room + AT_WARPS + warp * WARP_BYTES;
  const u32 from = (u32)__cvta_generic_to_shared(room), raw = from + AT_WARPS + warp * WARP_BYTES;
  long image = (long)blockIdx.x * WARPS + warp;
  if (image < count) bring_image(raw, images, image, lane);
  for (int i = threadIdx.x; i < 8 * (TILES1 + TILES2); i += THREADS) {
    const int other = i - 8 * TILES1;
    const bool there = other < 0 ? i < FOUND1 : other < FOUND2;
    biases[i] = there ? as_float(other < 0 ? bias1[i] : bias2[other]) : 0.f;
  }
  for (int i = threadIdx.x; i < STEPS1 * 8 * TILES1 * 8; i += THREADS) {
    const int pair = i / (TILES1 * 8), channel = i % (TILES1 * 8), line = pair / HALF, tap = pair % HALF * 2;
    const u16* at = weights1 + (channel * CHANNELS * TAPS1 + line) * TAPS1 + tap;
    const bool there = pair < PAIRS && channel < FOUND1;
    first[i] = (there ? (u32)at[0] : 0) | (there && tap + 1 < TAPS1 ? (u32)at[1] << 16 : 0);
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < TILES2 * 8 * ROW * 8 + 8; i += THREADS) {  // and the zeros behind them
    const int row = i / (ROW * 8), part = i % (ROW * 8) / 8, tap = part / GROUPS, channel = part % GROUPS * 8 + i % 8;
    const bool there = row < FOUND2 && part < PARTS && channel < FOUND1;
    second[i] = there ? weights2[(row * FOUND1 + channel) * (TAPS2 * TAPS2) + tap] : (u16)0;
  }
  for (int i = lane; i < MIDDLE_BYTES / 4; i += 32) ((u32*)(mine + AT_MIDDLE))[i] = 0;  // edges stay so
  __syncthreads();
  for (; image < count; image += (long)gridDim.x * WARPS) {
    land();
    __syncwarp();
    lay_out((u32*)(mine + AT_WORDS), (const u16*)mine, lane);
    __syncwarp();
    const long next = image + (long)gridDim.x * WARPS;
    if (next < count) bring_image(raw, images, next, lane);
    first_layer(mine + AT_MIDDLE, (const u32*)(mine + AT_WORDS), first, biases, lane);
    __syncwarp();
    second_layer(out + image * (FOUND2 * WINDOWS2), raw + AT_MIDDLE, from + AT_WEIGHTS2, from + AT_ZEROS,
                 biases + 8 * TILES1, lane);
  }
}
