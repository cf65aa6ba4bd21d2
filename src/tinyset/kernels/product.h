// Vectors of eight floats, scratch memory, and two matrix products with an operand in panels of 16 columns.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

static const long LANES = 8, PANEL = 16, ROWS = 6, BLOCK = 48, PLACES = 36;

static inline v8 load(const float* p) { return *(const v8u*)p; }
static inline void store(float* p, v8 v) { *(v8u*)p = v; }
static inline v8 positive(v8 x, v8 v) { return x <= 0.0f ? v8{} : v; }  // v where x > 0, else 0; a NaN stays one

struct Floats {  // scratch memory of a thread
    float* p;
    explicit Floats(long count) : p((float*)aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64)) {}
    ~Floats() { free(p); }
    void zero(long count) { memset(p, 0, count * sizeof(float)); }
};

// c[R x 16] = a[R x depth] b[depth x 16]
template <int R>
static inline void micro(const float* a, const float* b, float* c, long c_row, long depth) {
    v8 low[R] = {}, high[R] = {};
    for (long k = 0; k < depth; k++) {
        const v8 b0 = load(b + k * PANEL), b1 = load(b + k * PANEL + LANES);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            const float one = a[r * depth + k];
            low[r] += one * b0;
            high[r] += one * b1;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        store(c + r * c_row, low[r]);
        store(c + r * c_row + LANES, high[r]);
    }
}

// c[rows x width] = a[rows x depth] b; b lies in panels of 16 columns: width/16 x depth x 16
static void product(const float* a, const float* b, float* c, long rows, long depth, long width) {
    for (long j = 0; j < width; j += PANEL, b += depth * PANEL) {
        long i = 0;
        for (; i + ROWS <= rows; i += ROWS) micro<6>(a + i * depth, b, c + i * width + j, width, depth);
        for (; i + 2 <= rows; i += 2) micro<2>(a + i * depth, b, c + i * width + j, width, depth);
        for (; i < rows; i++) micro<1>(a + i * depth, b, c + i * width + j, width, depth);
    }
}

// c[R x 16] += a^T b over `depth` rows of a[R] and b[16]; summed in registers first: long sums keep their last digits
template <int R>
static inline void micro_sum(const float* a, long a_row, const float* b, long b_row, float* c, long c_row, long depth) {
    v8 low[R] = {}, high[R] = {};
    for (long k = 0; k < depth; k++) {
        const v8 b0 = load(b + k * b_row), b1 = load(b + k * b_row + LANES);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            const float one = a[k * a_row + r];
            low[r] += one * b0;
            high[r] += one * b1;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        store(c + r * c_row, load(c + r * c_row) + low[r]);
        store(c + r * c_row + LANES, load(c + r * c_row + LANES) + high[r]);
    }
}

// c[rows x 16] += a^T b; `rows` is 16 or a multiple of 9
static void add_product(const float* a, long a_row, const float* b, long b_row, float* c, long c_row, long rows, long depth) {
    long i = 0;
    for (; i + ROWS <= rows; i += ROWS) micro_sum<6>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
    for (; i + 4 <= rows; i += 4) micro_sum<4>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
    for (; i + 3 <= rows; i += 3) micro_sum<3>(a + i, a_row, b, b_row, c + i * c_row, c_row, depth);
}
