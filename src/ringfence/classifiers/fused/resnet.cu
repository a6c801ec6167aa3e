// A whole CIFAR ResNet per block: activations of two images stay in shared memory from the first convolution to the
// pooling, so that only images and scores cross the memory bus. Behind tensor_cores.cu (bf16 in, float32 sums).
// Layout: pixels of an image with a border of zeros, channels fastest; groups of eight channels (16 bytes) are permuted
// within a pixel so that eight neighbouring pixels read without bank conflicts.
// All of it fits into 97 KB, which every GPU with these instructions has (compute capability 8.0): there is one buffer of
// activations, which a convolution writes over when all of it has been read; what a block of the network adds at its end
// stays in the registers of the threads that will add it; and weights of 64 channels are refilled by thirds behind the
// reading.

#define IMAGES 2
#define WARPS 8
#define THREADS 256
// Bytes of the activations of each group, borders included, and of the weights of a 3x3 convolution.
#define WIDE (IMAGES * 34 * 34 * 16 * 2)
#define MIDDLE (IMAGES * 18 * 18 * 32 * 2)
#define NARROW (IMAGES * 10 * 10 * 64 * 2)
#define KERNEL(in, out) (9 * (in) * (out) * 2)
#define SHARED_BYTES (NARROW + KERNEL(64, 64))

// Where weights lie, behind the activations; in turns where there are two places.
constexpr int WIDE_EVEN = WIDE, WIDE_ODD = WIDE_EVEN + KERNEL(16, 32);
constexpr int MIDDLE_ODD = MIDDLE, MIDDLE_EVEN = MIDDLE_ODD + KERNEL(32, 32), JOIN_64 = SHARED_BYTES - KERNEL(32, 64);
static_assert(WIDE_ODD + KERNEL(16, 16) <= SHARED_BYTES && MIDDLE_EVEN + KERNEL(32, 32) <= SHARED_BYTES, "too small");
static_assert(MIDDLE_ODD + 32 * 64 * 2 <= JOIN_64, "weights would travel over what is still read");

// Both halves of a mask from bits ``place`` and 16 + place of a word: all ones where the bit is set.
__device__ __forceinline__ u32 spread(u32 word, int place) {
  u32 halves;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(halves) : "r"(word << (7 - place % 8)), "r"(place < 8 ? 0xaa88u : 0xbb99u));
  return halves;
}
__device__ __forceinline__ float low_of(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_of(u32 both) { return __uint_as_float(both & 0xffff0000u); }

template <int C> __device__ __forceinline__ u32 spot(int pixel, int chunk) {
  constexpr int SHIFT = C == 16 ? 2 : C == 32 ? 1 : 0;
  return pixel * C * 2 + ((chunk ^ ((pixel >> SHIFT) & (C / 8 - 1))) << 4);
}

__device__ __forceinline__ void zero(char* at, int bytes) {
  uint4 none = make_uint4(0, 0, 0, 0);
  for (int i = threadIdx.x * 16; i < bytes; i += THREADS * 16) *(uint4*)(at + i) = none;
}

__device__ __forceinline__ void fetch(char* to, const char*& packed, int bytes) {
  u32 target = (u32)__cvta_generic_to_shared(to);
  for (int i = threadIdx.x * 16; i < bytes; i += THREADS * 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + i), "l"(packed + i));
  asm volatile("cp.async.commit_group;" ::: "memory");
  packed += bytes;
}

// All that this thread has fetched, but for the last so many times.
template <int TIMES> __device__ __forceinline__ void arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(TIMES) : "memory");
}

// x = relu(conv(x) + bias [+ kept]); MT x NT tiles of 16 pixels x 8 channels a warp. Begins when its weights and
// everything written before are there; the weights of the next one travel meanwhile.
// Shared memory is the limit, so nothing is read twice that a warp could keep: a row of pixels serves all output rows
// that it touches (the three taps above each other), and a warp has as many tiles as its registers hold.
enum Use { STEM, FIRST, SECOND, SHORTCUT };  // SHORTCUT: kept = conv(x) + bias, and x stays
// SIGNS: notes which activations are positive, a bit each, sixteen pairs a word of the thread that has them.
// BACK (gradient.cu): x = conv(x) [+ kept] where those are set, and 0 elsewhere; it reads the notes from their end.
enum Pass { SCORES, SIGNS, BACK };
#define SIGN_WORDS(mt, nt) ((mt) * (nt) / 8)
template <int CIN, int COUT, int WOUT, int STRIDE, int MT, int NT, Use USE, Pass PASS>
__device__ __forceinline__ void convolve(char* x, u32 (&kept)[MT][NT][2], char* weights, const float*& bias, char* next,
                                         const char*& packed, int next_bytes, u32*& signs) {
  constexpr int TAPS = USE == SHORTCUT ? 1 : 9;
  constexpr int PIN = WOUT * STRIDE + 2, POUT = WOUT + 2, KS = CIN / 16;
  constexpr int SIN = PIN * PIN * CIN * 2, SOUT = POUT * POUT * COUT * 2;
  constexpr int WN = COUT / 8 / NT;
  // Tiles side by side in a row, tiles below each other, and rows of the input between those.
  constexpr int SIDE = WOUT == 32 ? 2 : 1, DOWN = MT / SIDE, STEP = STRIDE * (WOUT == 8 ? 2 : 1);
  constexpr int TOP = TAPS == 9 ? 0 : 1, END = TAPS == 9 ? 2 : 1, STEPS = KS < 2 ? KS : 2;
  constexpr bool BY_THIRDS = CIN == 64, NARROWS = STRIDE == 2 && USE != SHORTCUT;
  constexpr int THIRD = KERNEL(CIN, COUT) / 3;
  static_assert(IMAGES * WOUT * WOUT / 16 == WARPS / WN * MT, "tiles must cover the pixels");
  static_assert(MT % SIDE == 0 && WOUT * WOUT / 16 % MT == 0, "a warp's tiles are whole rows of one image");
  if (!BY_THIRDS) {
    arrived<0>();
    __syncthreads();
    if (!NARROWS) fetch(next, packed, next_bytes);
  }
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_n = (warp % WN) * NT, first_m = (warp / WN) * MT;
  const int row = (lane & 7) + ((lane >> 3) & 1) * 8, half = lane >> 4;
  const int q = first_m * 16 + row, start = (q / WOUT % WOUT * PIN + q % WOUT) * STRIDE;
  const u32 base = (u32)__cvta_generic_to_shared(x) + q / (WOUT * WOUT) * SIN;
  constexpr bool RELU = USE != SHORTCUT && PASS != BACK, NOTES = RELU && PASS == SIGNS;
  constexpr bool SIFTS = PASS == BACK && USE != STEM;
  constexpr int WORDS = SIFTS || NOTES ? SIGN_WORDS(MT, NT) : 1;
  u32 word[WORDS];
  if (SIFTS) signs -= WORDS * THREADS;
#pragma unroll
  for (int i = 0; i < WORDS; i++) word[i] = SIFTS ? __ldg(signs + i * THREADS) : 0;  // long before they are needed
  float sum[MT][NT][4];
#pragma unroll
  for (int n = 0; n < NT; n++) {
    float2 both = {0.f, 0.f};
    if (PASS != BACK) both = __ldg((const float2*)(bias + (first_n + n) * 8 + (lane & 3) * 2));
#pragma unroll
    for (int m = 0; m < MT; m++) {
      sum[m][n][0] = sum[m][n][2] = both.x;
      sum[m][n][1] = sum[m][n][3] = both.y;
    }
  }
  bias += COUT;
#pragma unroll 1
  for (int dx = TOP; dx <= END; dx++) {
    if (BY_THIRDS) {  // the place of the last one read, for what comes two later
      arrived<1>();
      __syncthreads();
      fetch(weights + (dx ? dx - 1 : 2) * THIRD, packed, dx && !next_bytes ? 0 : THIRD);
    }
#pragma unroll STEPS
    for (int ks = 0; ks < KS; ks++) {
      uint4 b[3][NT / 2];
#pragma unroll
      for (int dy = TOP; dy <= END; dy++)
#pragma unroll
        for (int j = 0; j < NT / 2; j++) {
          const int tap = TAPS == 9 ? dx * 3 + dy : 0;
          b[dy][j] = *(const uint4*)(weights + (((tap * KS + ks) * (COUT / 16) + first_n / 2 + j) * 32 + lane) * 16);
        }
#pragma unroll
      for (int side = 0; side < SIDE; side++)
#pragma unroll
        for (int r = TOP; r <= (DOWN - 1) * STEP + END; r++) {
          if ((r - TOP) % STEP > END - TOP) continue;  // no output row touches it
          u32 a[4];
          ldmatrix(a, base + spot<CIN>(start + r * PIN + dx + side * 16 * STRIDE, ks * 2 + half));
#pragma unroll
          for (int dy = TOP; dy <= END; dy++) {
            if (r < dy || (r - dy) % STEP != 0 || (r - dy) / STEP >= DOWN) continue;
            const int m = (r - dy) / STEP * SIDE + side;
#pragma unroll
            for (int j = 0; j < NT / 2; j++) {
              mma(sum[m][2 * j], a, b[dy][j].x, b[dy][j].y);
              mma(sum[m][2 * j + 1], a, b[dy][j].z, b[dy][j].w);
            }
          }
        }
    }
  }
  if (USE != SHORTCUT) __syncthreads();
  if (NARROWS) {  // a new layout needs its border of zeros, and there is room for the next weights only now
    fetch(next, packed, next_bytes);
    zero(x, IMAGES * SOUT);
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int part = 0; part < 2; part++) {
      int q = (first_m + m) * 16 + (lane >> 2) + part * 8, image = q / (WOUT * WOUT);
      int pixel = (q / WOUT % WOUT + 1) * POUT + q % WOUT + 1;
#pragma unroll
      for (int n = 0; n < NT; n++) {
        u32 at = image * SOUT + spot<COUT>(pixel, first_n + n) + (lane & 3) * 4;
        float low = sum[m][n][2 * part], high = sum[m][n][2 * part + 1];
        if (USE == SECOND) {
          low += low_of(kept[m][n][part]);
          high += high_of(kept[m][n][part]);
        }
        u32 both = pack<RELU>(low, high);
        const int pair = (m * 2 + part) * NT + n;
        if (NOTES) word[pair / 16] = word[pair / 16] >> 1 | ((both + 0x7fff7fffu) & 0x80008000u);
        if (SIFTS) both &= spread(word[pair / 16], pair % 16);
        if (USE != FIRST) kept[m][n][part] = both;
        if (USE != SHORTCUT) *(u32*)(x + at) = both;
      }
    }
  if (NOTES) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) signs[i * THREADS] = word[i];
    signs += WORDS * THREADS;
  }
}

// images: (count, 32, 32, 3) bf16, or (count, 3, 32, 32) if planar; scores: (count, classes) float32; norm: scale and
// shift of the three channels.
template <Pass PASS>
__device__ __forceinline__ void forward(char* memory, const unsigned short* images, const char* packed,
                                        const float* bias, const float* head, const float* norm, float* scores,
                                        u32* signs, int count, int blocks, int classes, int planar) {
  char *x = memory, *even = memory + WIDE_EVEN, *odd = memory + WIDE_ODD;
  const int first = blockIdx.x * IMAGES;
  fetch(even, packed, KERNEL(16, 16));
  zero(x, WIDE);
  __syncthreads();
  for (int i = threadIdx.x; i < IMAGES * 1024; i += THREADS) {
    int image = i >> 10, pixel = i & 1023;
    if (first + image >= count) continue;
    const unsigned short* from = images + (size_t)(first + image) * 3072 + pixel * (planar ? 1 : 3);
    float v[3];
    for (int c = 0; c < 3; c++) v[c] = __uint_as_float((u32)from[planar ? c * 1024 : c] << 16) * norm[c] + norm[3 + c];
    char* to = x + image * (WIDE / IMAGES) + spot<16>((pixel / 32 + 1) * 34 + pixel % 32 + 1, 0);
    *(u32*)to = pack(v[0], v[1]);
    *(u32*)(to + 4) = pack(v[2], 0.f);
  }
  {
    u32 kept[16][2][2];
    convolve<16, 16, 32, 1, 16, 2, STEM, PASS>(x, kept, even, bias, odd, packed, KERNEL(16, 16), signs);
    for (int i = 0; i < blocks; i++) {
      convolve<16, 16, 32, 1, 16, 2, FIRST, PASS>(x, kept, odd, bias, even, packed, KERNEL(16, 16), signs);
      int more = i + 1 < blocks ? KERNEL(16, 16) : 16 * 32 * 2;
      convolve<16, 16, 32, 1, 16, 2, SECOND, PASS>(x, kept, even, bias, odd, packed, more, signs);
    }
  }
  {  // To 32 channels.
    u32 kept[4][4][2];
    char* join = even;
    convolve<16, 32, 16, 2, 4, 4, SHORTCUT, PASS>(x, kept, odd, bias, join, packed, KERNEL(16, 32), signs);
    even = memory + MIDDLE_EVEN, odd = memory + MIDDLE_ODD;
    convolve<16, 32, 16, 2, 4, 4, FIRST, PASS>(x, kept, join, bias, even, packed, KERNEL(32, 32), signs);
    int more = blocks > 1 ? KERNEL(32, 32) : 32 * 64 * 2;
    convolve<32, 32, 16, 1, 4, 4, SECOND, PASS>(x, kept, even, bias, odd, packed, more, signs);
    for (int i = 1; i < blocks; i++) {
      convolve<32, 32, 16, 1, 4, 4, FIRST, PASS>(x, kept, odd, bias, even, packed, KERNEL(32, 32), signs);
      more = i + 1 < blocks ? KERNEL(32, 32) : 32 * 64 * 2;
      convolve<32, 32, 16, 1, 4, 4, SECOND, PASS>(x, kept, even, bias, odd, packed, more, signs);
    }
  }
  char* set = memory + NARROW;
  {  // To 64 channels: activations are small now and weights large.
    u32 kept[2][4][2];
    char* join = memory + JOIN_64;
    convolve<32, 64, 8, 2, 2, 4, SHORTCUT, PASS>(x, kept, odd, bias, join, packed, KERNEL(32, 64), signs);
    convolve<32, 64, 8, 2, 2, 4, FIRST, PASS>(x, kept, join, bias, set, packed, KERNEL(64, 64) / 3 * 2, signs);
    fetch(set, packed, 0);  // as if the second third had come by itself
    int more = blocks > 1 ? KERNEL(64, 64) : 0;
    convolve<64, 64, 8, 1, 2, 4, SECOND, PASS>(x, kept, set, bias, nullptr, packed, more, signs);
    for (int i = 1; i < blocks; i++) {
      convolve<64, 64, 8, 1, 2, 4, FIRST, PASS>(x, kept, set, bias, nullptr, packed, KERNEL(64, 64), signs);
      more = i + 1 < blocks ? KERNEL(64, 64) : 0;
      convolve<64, 64, 8, 1, 2, 4, SECOND, PASS>(x, kept, set, bias, nullptr, packed, more, signs);
    }
  }
  __syncthreads();
  float* pooled = (float*)set;
  for (int i = threadIdx.x; i < IMAGES * 64; i += THREADS) {
    int image = i >> 6, channel = i & 63;
    float total = 0.f;
    for (int pixel = 0; pixel < 64; pixel++) {
      u32 at = image * 12800 + spot<64>((pixel / 8 + 1) * 10 + pixel % 8 + 1, channel >> 3) + (channel & 7) * 2;
      total += __uint_as_float((u32) * (const unsigned short*)(x + at) << 16);
    }
    pooled[i] = total / 64.f;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < IMAGES * classes; i += THREADS) {
    int image = i / classes, k = i % classes;
    if (first + image >= count) continue;
    float total = head[classes * 64 + k];
    for (int c = 0; c < 64; c++) total += head[k * 64 + c] * pooled[image * 64 + c];
    scores[(size_t)(first + image) * classes + k] = total;
  }
}

#ifndef GRADIENT
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fused_resnet(const unsigned short* images, const char* packed, const float* bias, const float* head, const float* norm,
             float* scores, int count, int blocks, int classes, int planar) {
  extern __shared__ __align__(128) char memory[];
  forward<SCORES>(memory, images, packed, bias, head, norm, scores, nullptr, count, blocks, classes, planar);
}
#endif
