// Vectors of the machine's width, scratch memory, and two matrix products with an operand in panels of 16 columns.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#ifdef __AVX512F__
static const long LANES = 16, ROWS = 8;  // floats of a vector; rows of c whose sums stay in registers
#else
static const long LANES = 8, ROWS = 6;
#endif
typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4)));

static const long PANEL = 16, BLOCK = 48, PLACES = 36;

static inline vec load(const float* p) { return *(const vec_at*)p; }
static inline void store(float* p, vec v) { *(vec_at*)p = v; }
static inline vec positive(vec x, vec v) { return x <= 0.0f ? vec{} : v; }  // v where x > 0, else 0; a NaN stays one

struct Floats {  // scratch memory of a thread
    float* p;
    explicit Floats(long count) : p((float*)aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64)) {}
    ~Floats() { free(p); }
    void zero(long count) { memset(p, 0, count * sizeof(float)); }
};

// c[R x V vectors] = a[R x depth] b[depth x V vectors]
template <int R, int V>
static inline void micro(const float* a, const float* b, float* c, long c_row, long depth) {
    vec sum[R][V] = {};
    for (long k = 0; k < depth; k++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            const long column = v * LANES;
            const vec own = load(b + column / PANEL * depth * PANEL + k * PANEL + column % PANEL);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) sum[r][v] += a[r * depth + k] * own;
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) store(c + r * c_row + v * LANES, sum[r][v]);
}

// V vectors of columns of `product`
template <int V>
static inline void columns(const float* a, const float* b, float* c, long rows, long depth, long width) {
    long i = 0;
    for (; i + ROWS <= rows; i += ROWS) micro<ROWS, V>(a + i * depth, b, c + i * width, width, depth);
    for (; i + 2 <= rows; i += 2) micro<2, V>(a + i * depth, b, c + i * width, width, depth);
    for (; i < rows; i++) micro<1, V>(a + i * depth, b, c + i * width, width, depth);
}

// c[rows x width] = a[rows x depth] b; b lies in panels of 16 columns: width/16 x depth x 16
static void product(const float* a, const float* b, float* c, long rows, long depth, long width) {
    long j = 0;
    for (; j + 2 * LANES <= width; j += 2 * LANES) columns<2>(a, b + j * depth, c + j, rows, depth, width);
    // with vectors of 16 a last panel may be left over
    for (; j < width; j += LANES) columns<1>(a, b + j * depth, c + j, rows, depth, width);
}

// c[R x 16] += a^T b over `depth` rows of a[R] and b[16]; summed in registers first: long sums keep their last digits
template <int R>
static inline void micro_sum(const float* a, long a_row, const float* b, long b_row, float* c, long c_row, long depth) {
    const int V = PANEL / LANES;
    vec sum[R][V] = {};
    for (long k = 0; k < depth; k++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            const vec own = load(b + k * b_row + v * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) sum[r][v] += a[k * a_row + r] * own;
        }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            float* at = c + r * c_row + v * LANES;
            store(at, load(at) + sum[r][v]);
        }
}

// c[rows x 16] += a^T b; `rows` is 16 or a multiple of 9
static void add_product(const float* a, long a_row, const float* b, long b_row, float* c, long c_row, long rows, long depth) {
    long i = 0;
#ifdef __AVX512F__
    if (rows == 16) return micro_sum<16>(a, a_row, b, b_row, c, c_row, depth);
    for (; i < rows; i += 9) micro_sum<9>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
#else
    for (; i + 6 <= rows; i += 6) micro_sum<6>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
    for (; i + 4 <= rows; i += 4) micro_sum<4>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
    for (; i + 3 <= rows; i += 3) micro_sum<3>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
#endif
}
