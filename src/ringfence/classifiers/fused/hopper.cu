// What Hopper's hardware does, a function for each. The tests have others of the same names, which run on a CPU.

typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) Map { u64 words[16]; };  // how TMA sees a matrix; the driver makes it
constexpr int WARPGROUP = 128, LINE = 128;  // threads; bytes of a row in shared memory: 64 numbers


__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void make_barrier(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void block_together() {  // barriers that were made before are seen by all, TMA too
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

__device__ __forceinline__ void cluster_together() {  // barriers that were made before are seen by all
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
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

__device__ __forceinline__ void arrive(u32 barrier, int block) {  // at the barrier of another block, too
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(block) : "memory");
}

__device__ __forceinline__ void fetch(u32 to, const Map& map, int column, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

__device__ __forceinline__ void fetch(u32 to, const Map& map, int column, int row, int head, int image, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];"
        ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(head), "r"(image), "r"(barrier) : "memory");
}

#ifdef CLUSTER
__device__ __forceinline__ void fetch_for_all(u32 to, const Map& map, int column, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"((short)((1 << CLUSTER) - 1)) : "memory");
}

#endif

__device__ __forceinline__ void send(u32 from, const Map& map, int column, int row, int head, int image) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
                 ::"l"(&map), "r"(column), "r"(row), "r"(head), "r"(image), "r"(from) : "memory");
}

__device__ __forceinline__ void send(u32 from, const Map& map, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(column), "r"(row), "r"(from) : "memory");
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

// The rest is C++.

// A tile in shared memory as wgmma sees it: eight rows are 1024 bytes, swizzled by 128. 2 more are 16 numbers further.
__device__ __forceinline__ u64 seen(u32 address) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

