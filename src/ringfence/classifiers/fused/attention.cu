// softmax(query key^T / 8) value on Hopper, for heads of 64 numbers and up to KEYS keys, which a multiprocessor holds at
// once: bf16, (images, heads, rows, 64) in any order of strides, numbers last.
//
// A block has three warpgroups and takes one head after the other:
//
//   fetcher        one thread: query, key and value of a head by TMA -> one of two stages
//   worker 0, 1    64 queries at a time, every second 64: stage -> wgmma -> 64 x KEYS scores in registers -> softmax ->
//                  wgmma with the value -> 64 x 64 in shared memory -> TMA -> out
//
//   shared memory  | query KEYS x 64 | key KEYS x 64 | value KEYS x 64 | times 2 | out 64 x 64 | times 2 | barriers |
//
// While one worker is at its softmax the other one multiplies. What is beyond the last row is read as zeros and not
// written; TMA sees to both. The last 64 queries may reach beyond their place into the keys: those rows are nobody's.
// full[s] opens when all bytes of a stage have arrived, empty[s] when both workers have read it.

// KEYS is given by whoever compiles.

typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) Map { u64 words[16]; };  // how TMA sees a tensor; the driver makes it
constexpr int WARPGROUP = 128, LINE = 128;  // threads; bytes of a row in shared memory: 64 numbers
constexpr u32 PLACE = KEYS * LINE, STAGE = 3 * PLACE, BOX = 64 * LINE, OUT = 2 * STAGE, BARRIERS = OUT + 2 * BOX;

// What the hardware does, a function for each. The tests have others of the same names, which run on a CPU.

__device__ __forceinline__ void make_barrier(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void block_together() {  // barriers that were made before are seen by all, TMA too
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

__device__ __forceinline__ void await(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\nbra again;\nover:\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void fetch(u32 to, const Map& map, int row, int head, int image, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];"
        ::"r"(to), "l"(&map), "r"(0), "r"(row), "r"(head), "r"(image), "r"(barrier) : "memory");
}

__device__ __forceinline__ void send(u32 from, const Map& map, int row, int head, int image) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
                 ::"l"(&map), "r"(0), "r"(row), "r"(head), "r"(image), "r"(from) : "memory");
}

__device__ __forceinline__ void close_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void await_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void await_sent() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void show_to_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void warpgroup_together(int which) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "n"(WARPGROUP) : "memory");
}

template <int COUNT> __device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void put_matrices(u32 to, const u32 (&four)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3]) : "memory");
}

__device__ __forceinline__ float power_of_two(float x) {
    float found;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
    return found;
}

__device__ __forceinline__ float of_lane(float x, int apart) { return __shfl_xor_sync(0xFFFFFFFF, x, apart); }

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// d (64, KEYS) = query (64, 16) key^T (16, KEYS), added onto d where onto is not 0.
__device__ __forceinline__ void compare(float (&d)[KEYS / 2], u64 query, u64 key, int onto) {
    static_assert(KEYS == 208, "another instruction for each");
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %106, 0;\nwgmma.mma_async.sync.aligned.m64n208k16.f32.bf16.bf16 {"
        TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) "%100,%101,%102,%103}, "
        "%104, %105, p, 1, 1, 0, 0;\n}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), FOUR(96), FOUR(100)
        : "l"(query), "l"(key), "r"(onto));
}

// d (64, 64) = share (64, 16), in registers, times value (16, 64), whose rows lie one after the other.
__device__ __forceinline__ void mix(float (&d)[32], const u32 (&share)[4], u64 value, int onto) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        TEN() TEN(1) TEN(2) "%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
        : SIXTEEN(0), SIXTEEN(16)
        : "r"(share[0]), "r"(share[1]), "r"(share[2]), "r"(share[3]), "l"(value), "r"(onto));
}

template <int SIZE> __device__ __forceinline__ void await_products(float (&d)[SIZE]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < SIZE; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The rest is C++.

// A tile in shared memory as wgmma sees it: eight rows are 1024 bytes, swizzled by 128. 2 more are 16 numbers further.
__device__ __forceinline__ u64 seen(u32 address) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

extern "C" __global__ void __launch_bounds__(3 * WARPGROUP, 1) attention(
    const __grid_constant__ Map query, const __grid_constant__ Map key, const __grid_constant__ Map value,
    const __grid_constant__ Map out, int rows, int heads, int images) {
    extern __shared__ __align__(1024) char memory[];
    const u32 base = (u32)__cvta_generic_to_shared(memory), full = base + BARRIERS, empty = full + 16;
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) make_barrier(full + 8 * s, 1), make_barrier(empty + 8 * s, 8);
    block_together();

    if (threadIdx.x < WARPGROUP) {
        fewer_registers<40>();
        int turn = 0;
        if (threadIdx.x == 0)
            for (int one = blockIdx.x; one < heads * images; one += gridDim.x, ++turn) {
                const u32 stage = turn & 1, to = base + stage * STAGE, here = full + 8 * stage;
                await(empty + 8 * stage, turn >> 1 & 1 ^ 1);  // a new barrier's phase before the first counts as over
                expect(here, STAGE);
                fetch(to, query, 0, one % heads, one / heads, here);
                fetch(to + PLACE, key, 0, one % heads, one / heads, here);
                fetch(to + 2 * PLACE, value, 0, one % heads, one / heads, here);
            }
    } else {
        more_registers<232>();
        const int mine = threadIdx.x / WARPGROUP - 1, thread = threadIdx.x % WARPGROUP, lane = thread % 32;
        const u32 staged = base + OUT + mine * BOX;
        const float scale = 0.125f * 1.44269504f, NONE = __uint_as_float(0x7F800000);  // of powers of two; infinity
        int turn = 0;
        for (int one = blockIdx.x; one < heads * images; one += gridDim.x, ++turn) {
            const u32 stage = turn & 1, from = base + stage * STAGE;
            await(full + 8 * stage, turn >> 1 & 1);
            for (int row = 64 * mine; row < rows; row += 128) {
                float s[KEYS / 2], o[32];  // s[4j + i]: row lane / 4 + i / 2 * 8, column 8j + lane % 4 * 2 + i % 2
                const u64 left = seen(from + row * LINE), right = seen(from + PLACE), last = seen(from + 2 * PLACE);
                begin_products();
#pragma unroll
                for (int part = 0; part < 4; ++part) compare(s, left + 2 * part, right + 2 * part, part);
                close_products();
                await_products(s);
                float most[2] = {-NONE, -NONE}, total[2] = {0, 0};
#pragma unroll
                for (int i = 0; i < KEYS / 2; ++i) {
                    if (i >= KEYS / 2 - 8 && i / 4 * 8 + lane % 4 * 2 + i % 2 >= rows) s[i] = -NONE;
                    most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
                }
#pragma unroll
                for (int two = 0; two < 2; ++two) {
                    most[two] = fmaxf(most[two], of_lane(most[two], 1));
                    most[two] = scale * fmaxf(most[two], of_lane(most[two], 2));
                }
                u32 share[KEYS / 16][4];
#pragma unroll
                for (int i = 0; i < KEYS / 2; i += 2) {  // NaN is in no maximum, and in every power
                    const float a = power_of_two(fmaf(s[i], scale, -most[i / 2 % 2]));
                    const float b = power_of_two(fmaf(s[i + 1], scale, -most[i / 2 % 2]));
                    total[i / 2 % 2] += a + b;
                    share[i / 8][i / 2 % 4] = packed(a, b);
                }
                begin_products();
#pragma unroll
                for (int part = 0; part < KEYS / 16; ++part) mix(o, share[part], last + part * (16 * LINE >> 4), part);
                close_products();
#pragma unroll
                for (int two = 0; two < 2; ++two) {
                    total[two] += of_lane(total[two], 1);
                    total[two] = 1 / (total[two] + of_lane(total[two], 2));
                }
                await_products(o);
                if (thread == 0) await_read();
                warpgroup_together(1 + mine);
#pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    u32 four[4];  // matrices of 8 x 8: two below each other, two side by side
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        four[i] = packed(o[4 * j + 2 * i] * total[i % 2], o[4 * j + 2 * i + 1] * total[i % 2]);
                    put_matrices(staged + (thread / 32 * 16 + lane % 16) * LINE + 16 * (j + lane / 16 ^ lane % 8), four);
                }
                show_to_tma();
                warpgroup_together(1 + mine);
                if (thread == 0) send(staged, out, row, one % heads, one / heads), close_group();
            }
            if (lane == 0) arrive(empty + 8 * stage);
        }
        if (thread == 0) await_sent();
    }
}
