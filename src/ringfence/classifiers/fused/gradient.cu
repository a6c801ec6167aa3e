// Gradients of a CIFAR ResNet's scores in its images, behind resnet.cu: the pass forward notes which activations were
// positive, a bit each, and the pass back walks the same layers in reverse, with gradients where activations were.
// A convolution's gradient is a convolution (channels exchanged, taps turned around), with the same tiles: a thread
// reads the bits that it wrote.

// The notes of a block's images: so many words for every one of its threads.
#define NOTES(blocks) \
  (SIGN_WORDS(16, 2) * (2 * (blocks) + 1) + SIGN_WORDS(4, 4) * 2 * (blocks) + SIGN_WORDS(2, 4) * 2 * (blocks))
// A 3x3 convolution and the 1x1 beside it.
#define JOINED(in, out) (10 * (in) * (out) * 2)
constexpr int JOINED_32 = SHARED_BYTES - JOINED(32, 16);
static_assert(MIDDLE + JOINED(64, 32) <= SHARED_BYTES && MIDDLE_EVEN + KERNEL(32, 32) <= JOINED_32, "too small");

// Where this thread's pairs of channels lie in a layout, as convolve has them: act(offset, m, n, part).
template <int C, int W, int MT, int NT, class Act> __device__ __forceinline__ void each_pair(Act act) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  constexpr int WN = C / 8 / NT;
  const int first_n = (warp % WN) * NT, first_m = (warp / WN) * MT;
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int part = 0; part < 2; part++) {
      const int q = (first_m + m) * 16 + (lane >> 2) + part * 8;
      const u32 image = q / (W * W) * (W + 2) * (W + 2) * C * 2;
#pragma unroll
      for (int n = 0; n < NT; n++)
        act(image + spot<C>((q / W % W + 1) * (W + 2) + q % W + 1, first_n + n) + (lane & 3) * 4, m, n, part);
    }
}

// x = x where activations were positive, which is kept as well.
template <int C, int W, int MT, int NT>
__device__ __forceinline__ void sift(char* x, u32 (&kept)[MT][NT][2], u32*& signs) {
  signs -= SIGN_WORDS(MT, NT) * THREADS;
  each_pair<C, W, MT, NT>([&](u32 at, int m, int n, int part) {
    const int pair = (m * 2 + part) * NT + n;
    kept[m][n][part] = *(u32*)(x + at) & spread(__ldg(signs + pair / 16 * THREADS), pair % 16);
    *(u32*)(x + at) = kept[m][n][part];
  });
}

// Back through a block that halves the sides: x, at its first convolution's output, and kept, at its own output, become
// x at its input, twice as wide. An input pixel of even row and column was read by the middle tap alone, others by two
// or four: four sums for each pixel, and every tap belongs to one. The 1x1 convolution read the even ones.
template <int CIN, int COUT, int WIN, int KM, int KN>
__device__ __forceinline__ void widen(char* x, u32 (&kept)[KM][KN][2], char* weights, char* next, const char*& packed,
                                      int next_bytes) {
  constexpr int PIN = WIN + 2, POUT = 2 * WIN + 2, KS = CIN / 16, NT = COUT / 8, MT = IMAGES * WIN * WIN / 16 / WARPS;
  arrived<0>();
  __syncthreads();
  const int lane = threadIdx.x & 31, first_m = (threadIdx.x >> 5) * MT;
  const int row = (lane & 7) + ((lane >> 3) & 1) * 8, half = lane >> 4;
  const u32 base = (u32)__cvta_generic_to_shared(x);
  float sum[4][MT][NT][4];
#pragma unroll
  for (int i = 0; i < 16 * MT * NT; i++) sum[i / (4 * MT * NT)][i / (4 * NT) % MT][i / 4 % NT][i % 4] = 0.f;
  auto multiply = [&](int tap, int parity, int m, int ks, const u32(&a)[4]) {
#pragma unroll
    for (int j = 0; j < NT / 2; j++) {
      const uint4 b = *(const uint4*)(weights + (((tap * KS + ks) * (COUT / 16) + j) * 32 + lane) * 16);
      mma(sum[parity][m][2 * j], a, b.x, b.y);
      mma(sum[parity][m][2 * j + 1], a, b.z, b.w);
    }
  };
  auto pixels = [&](u32(&a)[4], int m, int down, int right, int ks) {
    const int q = (first_m + m) * 16 + row;
    const u32 image = q / (WIN * WIN) * PIN * PIN * CIN * 2;
    ldmatrix(a, base + image + spot<CIN>((q / WIN % WIN + 1 + down) * PIN + q % WIN + 1 + right, ks * 2 + half));
  };
#pragma unroll 1
  for (int ks = 0; ks < KS; ks++)
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int down = 0; down < 2; down++)
#pragma unroll
        for (int right = 0; right < 2; right++) {
          u32 a[4];
          pixels(a, m, down, right, ks);
          // Taps 1 and 2 of an axis look at this pixel from an even and an odd place, tap 0 at the next one.
#pragma unroll
          for (int dy = down ? 0 : 1; dy <= (down ? 0 : 2); dy++)
#pragma unroll
            for (int dx = right ? 0 : 1; dx <= (right ? 0 : 2); dx++)
              multiply(dx * 3 + dy, (dy != 1) * 2 + (dx != 1), m, ks, a);
        }
  __syncthreads();
  each_pair<CIN, WIN, KM, KN>([&](u32 at, int m, int n, int part) { *(u32*)(x + at) = kept[m][n][part]; });
  __syncthreads();
#pragma unroll 1
  for (int ks = 0; ks < KS; ks++)
#pragma unroll
    for (int m = 0; m < MT; m++) {
      u32 a[4];
      pixels(a, m, 0, 0, ks);
      multiply(9, 0, m, ks, a);
    }
  __syncthreads();
  fetch(next, packed, next_bytes);
  zero(x, IMAGES * POUT * POUT * COUT * 2);
  __syncthreads();
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int part = 0; part < 2; part++) {
      const int q = (first_m + m) * 16 + (lane >> 2) + part * 8;
#pragma unroll
      for (int parity = 0; parity < 4; parity++) {
        const int pixel = (q / WIN % WIN * 2 + parity / 2 + 1) * POUT + q % WIN * 2 + parity % 2 + 1;
#pragma unroll
        for (int n = 0; n < NT; n++) {
          const float* both = sum[parity][m][n] + 2 * part;
          char* to = x + q / (WIN * WIN) * POUT * POUT * COUT * 2 + spot<COUT>(pixel, n) + (lane & 3) * 4;
          *(u32*)to = pack(both[0], both[1]);
        }
      }
    }
  __syncthreads();
}

// Scores, and signs for fused_resnet_back: NOTES(blocks) words a thread.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fused_resnet_signs(const unsigned short* images, const char* packed, const float* bias, const float* head,
                   const float* norm, float* scores, u32* signs, int count, int blocks, int classes, int planar) {
  signs += (size_t)blockIdx.x * NOTES(blocks) * THREADS + threadIdx.x;
  extern __shared__ __align__(128) char memory[];
  forward<SIGNS>(memory, images, packed, bias, head, norm, scores, signs, count, blocks, classes, planar);
}

// slopes: (count, classes) float32, what is differentiated by the scores; gradients: float32, laid out as the images.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fused_resnet_back(const float* slopes, u32* signs, const char* packed, const float* head, const float* norm,
                  float* gradients, int count, int blocks, int classes, int planar) {
  extern __shared__ __align__(128) char memory[];
  char *x = memory, *set = memory + NARROW;
  const float* none = nullptr;
  const int first = blockIdx.x * IMAGES;
  signs += (size_t)(blockIdx.x + 1) * NOTES(blocks) * THREADS + threadIdx.x;
  fetch(set, packed, KERNEL(64, 64) / 3 * 2);
  fetch(set, packed, 0);  // as if the second third had come by itself
  zero(x, NARROW);
  float* pooled = (float*)(set + KERNEL(64, 64) / 3 * 2);
  for (int i = threadIdx.x; i < IMAGES * 64; i += THREADS) {
    const int image = first + (i >> 6);
    float total = 0.f;
    for (int k = 0; k < classes && image < count; k++)
      total += slopes[(size_t)image * classes + k] * head[k * 64 + (i & 63)];
    pooled[i] = total / 64.f;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < IMAGES * 64 * 32; i += THREADS) {
    const int image = i >> 11, pixel = i >> 5 & 63, pair = i & 31;
    const float* both = pooled + image * 64 + pair * 2;
    char* to = x + image * 12800 + spot<64>((pixel / 8 + 1) * 10 + pixel % 8 + 1, pair >> 2) + (pair & 3) * 4;
    *(u32*)to = pack(both[0], both[1]);
  }
  __syncthreads();
  {
    u32 kept[2][4][2];
    sift<64, 8>(x, kept, signs);
    for (int i = 1; i < blocks; i++) {
      convolve<64, 64, 8, 1, 2, 4, FIRST, BACK>(x, kept, set, none, nullptr, packed, KERNEL(64, 64), signs);
      convolve<64, 64, 8, 1, 2, 4, SECOND, BACK>(x, kept, set, none, nullptr, packed, KERNEL(64, 64), signs);
    }
    convolve<64, 64, 8, 1, 2, 4, FIRST, BACK>(x, kept, set, none, nullptr, packed, 0, signs);
    fetch(memory + MIDDLE, packed, JOINED(64, 32));
    widen<64, 32, 8>(x, kept, memory + MIDDLE, memory + MIDDLE_ODD, packed, KERNEL(32, 32));
  }
  char *even = memory + MIDDLE_EVEN, *odd = memory + MIDDLE_ODD, *joined = memory + JOINED_32;
  {
    u32 kept[4][4][2];
    sift<32, 16>(x, kept, signs);
    for (int i = 1; i < blocks; i++) {
      convolve<32, 32, 16, 1, 4, 4, FIRST, BACK>(x, kept, odd, none, even, packed, KERNEL(32, 32), signs);
      convolve<32, 32, 16, 1, 4, 4, SECOND, BACK>(x, kept, even, none, odd, packed, KERNEL(32, 32), signs);
    }
    convolve<32, 32, 16, 1, 4, 4, FIRST, BACK>(x, kept, odd, none, joined, packed, JOINED(32, 16), signs);
    widen<32, 16, 16>(x, kept, joined, memory + WIDE_EVEN, packed, KERNEL(16, 16));
  }
  even = memory + WIDE_EVEN, odd = memory + WIDE_ODD;
  {
    u32 kept[16][2][2];
    sift<16, 32>(x, kept, signs);
    for (int i = 0; i < blocks; i++) {
      convolve<16, 16, 32, 1, 16, 2, FIRST, BACK>(x, kept, even, none, odd, packed, KERNEL(16, 16), signs);
      convolve<16, 16, 32, 1, 16, 2, SECOND, BACK>(x, kept, odd, none, even, packed, KERNEL(16, 16), signs);
    }
    convolve<16, 16, 32, 1, 16, 2, STEM, BACK>(x, kept, even, none, odd, packed, 0, signs);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < IMAGES * 1024; i += THREADS) {
    const int image = i >> 10, pixel = i & 1023;
    if (first + image >= count) continue;
    float* to = gradients + (size_t)(first + image) * 3072 + pixel * (planar ? 1 : 3);
    const u32* from = (const u32*)(x + image * (WIDE / IMAGES) + spot<16>((pixel / 32 + 1) * 34 + pixel % 32 + 1, 0));
    const float v[3] = {low_of(from[0]), high_of(from[0]), low_of(from[1])};
    for (int c = 0; c < 3; c++) to[planar ? c * 1024 : c] = v[c] * norm[c];
  }
}
