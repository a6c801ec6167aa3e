// out = gelu(x weight^T + bias) on Hopper: x (rows, depth), weight (columns, depth), out (rows, columns), bf16.
//
// CLUSTER blocks work side by side on tiles that read the same part of the weight: each fetches its share for all. A
// block has three warpgroups:
//
//   fetcher        one thread: tiles of x and weight, 64 deep, by TMA -> a ring of stages in shared memory
//   multiplier 0   ring -> wgmma -> 128 x WIDE sums in registers -> + bias, GELU -> shared memory -> TMA -> out
//   multiplier 1   the same for every second tile: it multiplies while the other is at its GELU, and the other way round
//
//   shared memory  | x 128 x 64, weight WIDE x 64 | times STAGES | out 64 x WIDE | times 2 | bias | times 2 | barriers |
//
// Tiles are swizzled as the hardware does it by 128 bytes: sixteen bytes c of row r lie at c ^ r % 8. What is beyond the
// last row or column is read as zeros and not written; TMA sees to both. full[s] opens when all bytes of a stage have
// arrived, empty[s] when the multipliers of all blocks of the cluster have read it: the others write here, too.
// next[m] opens when all of a tile has arrived that the other multiplier had: a parity tells two phases apart, not three,
// so that nobody may wait for bytes before those in the same place have come.

// WIDE, STAGES and CLUSTER are given by whoever compiles.

constexpr int TALL = 128, DEEP = 64;
constexpr u32 X_BYTES = TALL * LINE, WEIGHT_BYTES = WIDE * LINE, STAGE = X_BYTES + WEIGHT_BYTES;
constexpr u32 BOX = 64 * LINE, HALF = WIDE / 64 * BOX;  // 64 x 64 numbers; what a multiplier writes out at a time
constexpr u32 OUT = STAGES * STAGE, BIAS = OUT + 2 * HALF, BARRIERS = BIAS + 2 * WIDE * 4;
constexpr u32 ARRIVALS = 4 * CLUSTER;  // warps of a multiplier, in every block

// What the hardware does; the rest of it is in hopper.cu.

// d (64, WIDE) = x (64, 16) weight^T (16, WIDE), added onto d where onto is not 0; it runs on until it is awaited.
__device__ __forceinline__ void multiply(float (&d)[WIDE / 2], u64 x, u64 weight, int onto) {
#if WIDE == 192
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) "%90,%91,%92,%93,%94,%95}, "
        "%96, %97, p, 1, 1, 0, 0;\n}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80)
        : "l"(x), "l"(weight), "r"(onto));
#else
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48) : "l"(x), "l"(weight), "r"(onto));
#endif
}

template <int LEFT> __device__ __forceinline__ void await_products(float (&d)[2][WIDE / 2]) {  // all but LEFT groups
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    if (LEFT == 0)
#pragma unroll
        for (int i = 0; i < WIDE; ++i) asm volatile("" : "+f"(d[i / (WIDE / 2)][i % (WIDE / 2)])::"memory");
}

// The rest is C++.

// x Phi(x), with 2^p(|x|) for Phi(-|x|): off by 5e-5 of it up to |x| = 8.5, where it is 1e-17, and 0 beyond. As torch
// has it, +inf stays, and -inf and NaN become NaN.
__device__ __forceinline__ float gelu(float x) {
    const float t = fabsf(x);
    float p = -1.113469465963135e-06f;
    p = fmaf(p, t, 4.4227457692613825e-05f);
    p = fmaf(p, t, -0.0007658047252334654f);
    p = fmaf(p, t, 0.007731737568974495f);
    p = fmaf(p, t, -0.05207822099328041f);
    p = fmaf(p, t, -0.4606463313102722f);
    p = fmaf(p, t, -1.150291919708252f);
    p = fmaf(p, t, -1.0000669956207275f);
    const float tail = power_of_two(p);
    return x * (x < 0 ? tail : 1 - tail);
}
#ifdef PLAIN
#define gelu(x) (x)
#endif

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(3 * WARPGROUP, 1) linear_gelu(
    const __grid_constant__ Map x, const __grid_constant__ Map weight, const __grid_constant__ Map out,
    const u32* __restrict__ bias, int rows, int columns, int depth) {
    extern __shared__ __align__(1024) char memory[];
    const u32 base = (u32)__cvta_generic_to_shared(memory), full = base + BARRIERS, empty = full + 8 * STAGES;
    const u32 next = empty + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) make_barrier(full + 8 * s, 1), make_barrier(empty + 8 * s, ARRIVALS);
        make_barrier(next, 1), make_barrier(next + 8, 1);
    }
    cluster_together();

    const int rank = rank_in_cluster(), first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    const int across = (columns + WIDE - 1) / WIDE, blocks = (depth + DEEP - 1) / DEEP;
    const int tiles = across * ((rows + CLUSTER * TALL - 1) / (CLUSTER * TALL));
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<40>();
        u32 stage = 0, parity = 1;  // a new barrier's phase before the first counts as over
        if (threadIdx.x == 0)
            for (int tile = first; tile < tiles; tile += step)
                for (int k = 0; k < blocks; ++k) {
                    const int row = (tile / across * CLUSTER + rank) * TALL, column = tile % across * WIDE;
                    const u32 to = base + stage * STAGE, here = full + 8 * stage;
                    await(empty + 8 * stage, parity);
                    expect(here, STAGE);
                    fetch(to, x, k * DEEP, row, here);
                    fetch_for_all(to + X_BYTES + rank * (WEIGHT_BYTES / CLUSTER), weight, k * DEEP,
                                  column + rank * (WIDE / CLUSTER), here);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
    } else {
        more_registers<232>();
        const int mine = threadIdx.x / WARPGROUP - 1, thread = threadIdx.x % WARPGROUP, lane = thread % 32;
        const u32 staged = base + OUT + mine * HALF;
        float* biases = (float*)(memory + BIAS) + mine * WIDE;
        float d[2][WIDE / 2];  // of 64 rows each; d[.][4j + i]: row lane / 4 + i / 2 * 8, column 8j + lane % 4 * 2 + i % 2
        for (int turn = mine, tile = first + mine * step; tile < tiles; turn += 2, tile += 2 * step) {
            const int row = (tile / across * CLUSTER + rank) * TALL, column = tile % across * WIDE;
            if (thread < WIDE / 2) {
                const u32 both = column + 2 * thread < columns ? bias[column / 2 + thread] : 0;
                biases[2 * thread] = __uint_as_float(both << 16);
                biases[2 * thread + 1] = __uint_as_float(both & 0xFFFF0000);
            }
            u32 stage = (u32)turn * blocks % STAGES, parity = (u32)turn * blocks / STAGES & 1, before = 0;
            await(next + 8 * mine, turn / 2 + mine + 1 & 1);  // the first of all waits for nobody
            for (int k = 0; k < blocks; ++k) {
                await(full + 8 * stage, parity);
                if (k == blocks - 1 && thread == 0) arrive(next + 8 * (1 - mine), rank);
                const u64 left = seen(base + stage * STAGE), right = seen(base + stage * STAGE + X_BYTES);
                begin_products();
#pragma unroll
                for (int part = 0; part < DEEP / 16; ++part) {
                    multiply(d[0], left + 2 * part, right + 2 * part, k | part);
                    multiply(d[1], left + (BOX >> 4) + 2 * part, right + 2 * part, k | part);
                }
                close_products();
                await_products<1>(d);
                if (k && lane < CLUSTER) arrive(empty + 8 * before, lane);
                before = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            await_products<0>(d);
            if (lane < CLUSTER) arrive(empty + 8 * before, lane);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (thread == 0) await_read();
                warpgroup_together(1 + mine);  // what was staged is sent, and the bias is there
#pragma unroll
                for (int j = 0; j < WIDE / 8; j += 2) {
                    u32 four[4];  // matrices of 8 x 8: two below each other, two side by side
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const float2 b = *(const float2*)(biases + 8 * (j + i / 2) + lane % 4 * 2);
                        four[i] = packed(gelu(d[half][4 * j + 2 * i] + b.x), gelu(d[half][4 * j + 2 * i + 1] + b.y));
                    }
                    const int line = thread / 32 * 16 + lane % 16, sixteen = (j + lane / 16) % 8 ^ lane % 8;
                    put_matrices(staged + j / 8 * BOX + line * LINE + 16 * sixteen, four);
                }
                show_to_tma();
                warpgroup_together(1 + mine);
                if (thread == 0) {
                    for (int box = 0; box < WIDE / 64; ++box)
                        send(staged + box * BOX, out, column + 64 * box, row + 64 * half);
                    close_group();
                }
            }
        }
        if (thread == 0) await_sent();
    }
    cluster_together();  // others may still write and count here
}
