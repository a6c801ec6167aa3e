// What the kernels behind this ask of the hardware in the same words, each an instruction: matrices of 8 x 8 from shared
// memory, products of 16 x 8 tiles, bf16 with float32 sums. The tests have others of the same names, which run on a CPU.

typedef unsigned int u32;

// Four matrices; TURNED: rows are columns.
template <bool TURNED = false> __device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 address) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers in bf16. RELU: in the cast, where it costs nothing and NaN stays NaN. fmaxf would turn NaN into 0, and so
// an invalid row into one with a class.
template <bool RELU = false> __device__ __forceinline__ u32 pack(float low, float high) {
  u32 both;
  if (RELU)
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

