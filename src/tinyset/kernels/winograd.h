// Winograd's F(4x4, 3x3) (Lavin & Gray 2016): a tile of 4x4 outputs costs 36 products per pair of channels instead of 144,
//
//     Y = A^T [ (G w G^T) * (B^T d B) ] A        d: the 6x6 inputs under the tile
//
// and the products of many tiles at one of the 36 places are one matrix product. Interpolation at 0, +-3/4, +-3/2 and
// infinity: all numbers are exact in binary, and the rounding error is a quarter of that of the usual points 0, +-1, +-2.
#pragma once
#include "product.h"

static const float a = 0.75f, b = 1.5f, a2 = a * a, b2 = b * b, a2b2 = a2 * b2, sum2 = a2 + b2;
static const float by_a = 1 / (2 * a2 * (a2 - b2)), by_b = 1 / (2 * b2 * (b2 - a2));

static inline void input_line(const vec* d, vec* out) {  // B^T
    const vec even_a = d[4] - b2 * d[2], odd_a = a * (d[3] - b2 * d[1]);
    const vec even_b = d[4] - a2 * d[2], odd_b = b * (d[3] - a2 * d[1]);
    out[0] = a2b2 * d[0] - sum2 * d[2] + d[4];
    out[1] = even_a + odd_a;
    out[2] = even_a - odd_a;
    out[3] = even_b + odd_b;
    out[4] = even_b - odd_b;
    out[5] = a2b2 * d[1] - sum2 * d[3] + d[5];
}

static inline void output_line(const vec* m, vec* out) {  // A^T
    const vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    out[0] = m[0] + even_a + even_b;
    out[1] = a * odd_a + b * odd_b;
    out[2] = a2 * even_a + b2 * even_b;
    out[3] = a * a2 * odd_a + b * b2 * odd_b + m[5];
}

static inline void weight_line(const vec* w, vec* out) {  // G
    const vec even_a = (w[0] + a2 * w[2]) * by_a, odd_a = w[1] * (a * by_a);
    const vec even_b = (w[0] + b2 * w[2]) * by_b, odd_b = w[1] * (b * by_b);
    out[0] = w[0] * (1 / a2b2);
    out[1] = even_a + odd_a;
    out[2] = even_a - odd_a;
    out[3] = even_b + odd_b;
    out[4] = even_b - odd_b;
    out[5] = w[2];
}

struct Layout {
    long place, panel;  // distances of the 36 places and of 16 channels
};

struct Maps {  // count x height x width x channels, cut into tiles of 4x4
    const float* x;
    long height, width, channels;

    long high() const { return (height + 3) / 4; }
    long wide() const { return (width + 3) / 4; }

    const float* at(long image, long r, long s, const float* zero) const {
        const bool inside = r >= 0 && r < height && s >= 0 && s < width;
        return inside ? x + ((image * height + r) * width + s) * channels : zero;
    }

    // B^T d B of the 6x6 numbers under a tile; zero: as many as channels
    void input_tile(long tile, const float* zero, float* out, Layout layout) const {
        const long image = tile / (high() * wide()), top = tile / wide() % high() * 4 - 1, left = tile % wide() * 4 - 1;
        const float* under[6][6];
        for (long i = 0; i < 6; i++)
            for (long j = 0; j < 6; j++) under[j][i] = at(image, top + i, left + j, zero);
        for (long c = 0; c < channels; c += LANES) {
            float* to = out + c / PANEL * layout.panel + c % PANEL;
            vec lines[6][6], six[6], turned[6];
            for (long j = 0; j < 6; j++) {
                for (long i = 0; i < 6; i++) six[i] = load(under[j][i] + c);
                input_line(six, turned);
                for (long i = 0; i < 6; i++) lines[i][j] = turned[i];
            }
            for (long i = 0; i < 6; i++) {
                input_line(lines[i], turned);
                for (long j = 0; j < 6; j++) store(to + (i * 6 + j) * layout.place, turned[j]);
            }
        }
    }
};

extern "C" {

// w: to x from x 3 x 3 with strides in floats; `back`: the weights of the way back, to and from exchanged.
// out: 36 x to/16 x from x 16
void winograd_weights(const float* w, const long* stride, float* out, long from, long to, long back) {
#pragma omp parallel for
    for (long panel = 0; panel < to / PANEL; panel++)
        for (long c = 0; c < from; c++)
            for (long half = 0; half < PANEL; half += LANES) {
                vec given[3][3], lines[6][3], six[6];
                for (long y = 0; y < 3; y++)
                    for (long x = 0; x < 3; x++)
                        for (long l = 0; l < LANES; l++) {
                            const long o = panel * PANEL + half + l;
                            given[x][y][l] = back ? w[c * stride[0] + o * stride[1] + (2 - y) * stride[2] + (2 - x) * stride[3]]
                                                  : w[o * stride[0] + c * stride[1] + y * stride[2] + x * stride[3]];
                        }
                for (long x = 0; x < 3; x++) {
                    weight_line(given[x], six);
                    for (long y = 0; y < 6; y++) lines[y][x] = six[y];
                }
                for (long y = 0; y < 6; y++) {
                    weight_line(lines[y], six);
                    for (long x = 0; x < 6; x++)
                        store(out + (((y * 6 + x) * (to / PANEL) + panel) * from + c) * PANEL + half, six[x]);
                }
            }
}

// x: count x height x width x from -> y: count x height x width x to
void winograd(const float* x, const float* weights, float* y, long count, long height, long width, long from, long to) {
    const Maps maps = {x, height, width, from};
    const long high = maps.high(), wide = maps.wide(), tiles = count * high * wide;
    // the 36 places lie a little off whole pages: at equal distances they would fight for one set of the L1 cache
    const long v_place = BLOCK * from + PANEL, m_place = BLOCK * to + PANEL;
#pragma omp parallel
    {
        Floats v(PLACES * v_place), m(PLACES * m_place), zero(from);
        zero.zero(from);
#pragma omp for schedule(dynamic)
        for (long block = 0; block < tiles; block += BLOCK) {
            const long size = std::min(BLOCK, tiles - block);
            for (long t = 0; t < size; t++) maps.input_tile(block + t, zero.p, v.p + t * from, {v_place, PANEL});
            for (long p = 0; p < PLACES; p++)
                product(v.p + p * v_place, weights + p * from * to, m.p + p * m_place, size, from, to);
            for (long t = 0; t < size; t++) {
                const long tile = block + t, top = tile / wide % high * 4, left = tile % wide * 4;
                const long rows = std::min(4L, height - top), columns = std::min(4L, width - left);
                float* corner = y + ((tile / (high * wide) * height + top) * width + left) * to;
                for (long o = 0; o < to; o += LANES) {
                    vec lines[4][6], six[6], four[4];
                    for (long j = 0; j < 6; j++) {
                        for (long i = 0; i < 6; i++) six[i] = load(m.p + (i * 6 + j) * m_place + t * to + o);
                        output_line(six, four);
                        for (long i = 0; i < 4; i++) lines[i][j] = four[i];
                    }
                    for (long i = 0; i < rows; i++) {
                        output_line(lines[i], four);
                        for (long j = 0; j < columns; j++) store(corner + (i * width + j) * to + o, four[j]);
                    }
                }
            }
        }
    }
}
}
