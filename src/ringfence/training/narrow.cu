// 3 x 3 convolutions of C channels to C, 16 or 32, on the images that CIFAR ResNets have there, for training: forward, to
// the input and to the weight. Memory: channels last, bf16; weights (C, 9, C). A block brings whole images, with a border
// of zeros, and all weights into shared memory at once; tensor cores by mma.sync with float32 sums. Sums have a fixed
// order: a training ends with the same weights each time. Groups of eight channels (16 bytes) are permuted within a
// pixel, and rows of weights end 16 bytes later, so that eight neighbours read without bank conflicts.
// Behind tensor_cores.cu; C is given by an option of the compiler.

#define SIDE (512 / C)
#define IMAGES (C / 16)
#define P (SIDE + 2)
#define PIXELS (SIDE * SIDE)
#define CHUNKS (C / 8)
#define THREADS 256
#define WARPS 8
#define ROW (9 * C * 2 + 16)  // bytes of a row of weights in shared memory
#define PADDED (IMAGES * P * P * C * 2)
extern __shared__ __align__(128) char room[];
static_assert(C == 16 || C == 32, "tiles are arranged for these");

// Of eight channels of a pixel, in bytes.
__device__ __forceinline__ u32 spot(int pixel, int chunk) {
  constexpr int SHIFT = C == 16 ? 2 : 1;
  return pixel * C * 2 + ((chunk ^ ((pixel >> SHIFT) & (CHUNKS - 1))) << 4);
}

// Of a pixel of the block's images with their borders; the first tap of the pixel with that number.
__device__ __forceinline__ int corner(int pixel) {
  return pixel / PIXELS * (P * P) + pixel % PIXELS / SIDE * P + pixel % SIDE;
}

// 16 bytes on their way; zeros where there is nothing.
__device__ __forceinline__ void bring(u32 to, const char* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}
__device__ __forceinline__ void arrived() {
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

// The block's images with borders; images behind the last are zeros.
__device__ __forceinline__ void bring_padded(u32 to, const char* x, int images) {
  for (int i = threadIdx.x; i < IMAGES * P * P * CHUNKS; i += THREADS) {
    const int pixel = i / CHUNKS, chunk = i % CHUNKS, image = blockIdx.x * IMAGES + pixel / (P * P);
    const int y = pixel / P % P - 1, z = pixel % P - 1;
    const bool there = y >= 0 && y < SIDE && z >= 0 && z < SIDE && image < images;
    const size_t at = ((size_t)image * PIXELS + y * SIDE + z) * (C * 2) + chunk * 16;
    bring(to + spot(pixel, chunk), x + (there ? at : 0), there);
  }
}

// x, out (images, SIDE, SIDE, C). BACK: the adjoint, which reads the weights turned and the taps from the end.
template <bool BACK> __device__ __forceinline__ void convolve(const char* x, const char* weight, char* out, int images) {
  constexpr int NT = C / 8, MT = IMAGES * PIXELS / 16 / WARPS;  // tiles of 8 channels and of 16 pixels of a warp
  static_assert(MT * 16 * WARPS == IMAGES * PIXELS, "tiles must cover the pixels");
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 from_x = (u32)__cvta_generic_to_shared(room), from_w = from_x + PADDED;
  bring_padded(from_x, x, images);
  for (int i = threadIdx.x; i < C * 9 * CHUNKS; i += THREADS)
    bring(from_w + i / (9 * CHUNKS) * ROW + i % (9 * CHUNKS) * 16, weight + i * 16, true);
  arrived();
  const int first = warp * MT, row = lane & 15, half = lane >> 4;  // of a tile of pixels
  int start[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) start[m] = corner((first + m) * 16 + row);
  // Of two tiles of weights: rows are channels of the output, turned of the input.
  const u32 of_w = from_w + (BACK ? ((lane & 15) * ROW + (lane >> 4) * 16)
                                  : (((lane & 7) + (lane >> 4) * 8) * ROW + ((lane >> 3) & 1) * 16));
  float sum[MT][NT][4] = {};
#pragma unroll 1
  for (int down = 0; down < 3; down++)
#pragma unroll
    for (int across = 0; across < 3; across++)
#pragma unroll
      for (int k = 0; k < C / 16; k++) {
        const int tap = BACK ? 8 - down * 3 - across : down * 3 + across;
        u32 b[NT / 2][4];
#pragma unroll
        for (int n = 0; n < NT / 2; n++)
          ldmatrix<BACK>(b[n], of_w + tap * (C * 2) + (BACK ? k * 16 * ROW + n * 32 : n * 16 * ROW + k * 32));
#pragma unroll
        for (int m = 0; m < MT; m++) {
          u32 a[4];
          ldmatrix(a, from_x + spot(start[m] + down * P + across, 2 * k + half));
#pragma unroll
          for (int n = 0; n < NT; n++) mma(sum[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
      }
  char* to = out + (size_t)blockIdx.x * IMAGES * PIXELS * (C * 2) + (lane & 3) * 4;
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int down = 0; down < 2; down++) {
      const int pixel = (first + m) * 16 + (lane >> 2) + down * 8;
      if (blockIdx.x * IMAGES + pixel / PIXELS < images)
#pragma unroll
        for (int n = 0; n < NT; n++)
          *(u32*)(to + pixel * (C * 2) + n * 16) = pack(sum[m][n][2 * down], sum[m][n][2 * down + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
narrow_forward(const char* x, const char* weight, char* out, int images) { convolve<false>(x, weight, out, images); }

extern "C" __global__ void __launch_bounds__(THREADS)
narrow_back(const char* x, const char* weight, char* out, int images) { convolve<true>(x, weight, out, images); }

// x, gradient (images, SIDE, SIDE, C) -> found (blocks, C, 9, C), the share of a block's images.
extern "C" __global__ void __launch_bounds__(THREADS)
narrow_weight(const char* x, const char* gradient, float* found, int images) {
  // A warp has 16 x 16 channels of all taps; the others those of other channels (BY x BY), and of other pixels.
  constexpr int BY = C / 16, OF_PIXELS = WARPS / BY / BY, SUMS = 9 * 2 * 4;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 from_x = (u32)__cvta_generic_to_shared(room), from_g = from_x + PADDED;
  bring_padded(from_x, x, images);
  for (int i = threadIdx.x; i < IMAGES * PIXELS * CHUNKS; i += THREADS) {
    const int pixel = i / CHUNKS, image = blockIdx.x * IMAGES + pixel / PIXELS;
    const size_t at = (size_t)blockIdx.x * IMAGES * PIXELS * (C * 2) + i * 16;
    bring(from_g + spot(pixel, i % CHUNKS), gradient + (image < images ? at : 0), image < images);
  }
  arrived();
  const int m = warp % BY, n = warp / BY % BY * 2, part = warp / (BY * BY);
  const int row = (lane & 7) + (lane >> 4) * 8, half = (lane >> 3) & 1;
  float sum[9][2][4] = {};
#pragma unroll 1
  for (int tile = part; tile < IMAGES * PIXELS / 16; tile += OF_PIXELS) {
    const int pixel = tile * 16 + row, start = corner(pixel);
    u32 a[4];
    ldmatrix<true>(a, from_g + spot(pixel, 2 * m + half));
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
      u32 b[4];
      ldmatrix<true>(b, from_x + spot(start + tap / 3 * P + tap % 3, n + half));
      mma(sum[tap][0], a, b[0], b[2]);
      mma(sum[tap][1], a, b[1], b[3]);
    }
  }
  float* shared = (float*)room;
#pragma unroll
  for (int others = OF_PIXELS / 2; others; others /= 2) {
    __syncthreads();
    const int place = (warp % (BY * BY) + part % others * (BY * BY)) * SUMS;
    if (part >= others && part < 2 * others)
#pragma unroll
      for (int i = 0; i < SUMS; i++) shared[(place + i) * 32 + lane] = sum[i / 8][i / 4 % 2][i % 4];
    __syncthreads();
    if (part < others)
#pragma unroll
      for (int i = 0; i < SUMS; i++) sum[i / 8][i / 4 % 2][i % 4] += shared[(place + i) * 32 + lane];
  }
  if (part) return;
#pragma unroll
  for (int i = 0; i < SUMS / 2; i++) {
    const int tap = i / 4, tile = i / 2 % 2, down = i % 2;
    const int k = m * 16 + (lane >> 2) + down * 8, c = (n + tile) * 8 + (lane & 3) * 2;
    *(float2*)(found + ((size_t)blockIdx.x * C + k) * (9 * C) + tap * C + c) =
        make_float2(sum[tap][tile][2 * down], sum[tap][tile][2 * down + 1]);
  }
}

// found (shares, 9 C C) -> out (9 C C) in bf16: a block has 64 columns, its warps every eighth row.
extern "C" __global__ void __launch_bounds__(THREADS) narrow_sum(const float2* found, u32* out, int shares) {
  __shared__ float2 kept[WARPS][32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, at = blockIdx.x * 32 + lane;
  float2 sum = {0.f, 0.f};
#pragma unroll 4
  for (int share = warp; share < shares; share += WARPS) {
    const float2 one = found[(size_t)share * (9 * C * C / 2) + at];
    sum.x += one.x;
    sum.y += one.y;
  }
  kept[warp][lane] = sum;
  __syncthreads();
  if (warp) return;
#pragma unroll
  for (int i = 1; i < WARPS; i++) {
    sum.x += kept[i][lane].x;
    sum.y += kept[i][lane].y;
  }
  out[at] = pack(sum.x, sum.y);
}
