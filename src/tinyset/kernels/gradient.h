// The gradient of the weights in Winograd's domain: Y = A^T [ (G w G^T) * V ] A with V = B^T d B, hence
//
//     dw = G^T [ sum over tiles of V * (A dY A^T) ] G
//
// and the sum at one of the 36 places is one matrix product. A chunk of tiles is transformed by all threads, then each
// place's product is added by one: the order of the sums, and so the bytes, do not depend on the number of threads.
#pragma once
#include "winograd.h"

static const long CHUNK = 92;  // tiles; 92 x 16 floats are no whole pages, see `winograd`

static inline void gradient_line(const vec* g, vec* out) {  // A
    const vec even_a = g[0] + a2 * g[2], odd_a = a * (g[1] + a2 * g[3]);
    const vec even_b = g[0] + b2 * g[2], odd_b = b * (g[1] + b2 * g[3]);
    out[0] = g[0];
    out[1] = even_a + odd_a;
    out[2] = even_a - odd_a;
    out[3] = even_b + odd_b;
    out[4] = even_b - odd_b;
    out[5] = g[3];
}

static inline void back_line(const vec* u, vec* out) {  // G^T
    const vec even_a = by_a * (u[1] + u[2]), odd_a = by_a * (u[1] - u[2]);
    const vec even_b = by_b * (u[3] + u[4]), odd_b = by_b * (u[3] - u[4]);
    out[0] = u[0] * (1 / a2b2) + even_a + even_b;
    out[1] = a * odd_a + b * odd_b;
    out[2] = a2 * even_a + b2 * even_b + u[5];
}

// A dY A^T of a tile
static void gradient_tile(const Maps& maps, long tile, const float* zero, float* out, Layout layout) {
    const long high = maps.high(), wide = maps.wide(), top = tile / wide % high * 4, left = tile % wide * 4;
    const float* under[4][4];
    for (long i = 0; i < 4; i++)
        for (long j = 0; j < 4; j++) under[j][i] = maps.at(tile / (high * wide), top + i, left + j, zero);
    for (long c = 0; c < maps.channels; c += LANES) {
        float* to = out + c / PANEL * layout.panel + c % PANEL;
        vec lines[6][4], four[4], six[6];
        for (long j = 0; j < 4; j++) {
            for (long i = 0; i < 4; i++) four[i] = load(under[j][i] + c);
            gradient_line(four, six);
            for (long i = 0; i < 6; i++) lines[i][j] = six[i];
        }
        for (long i = 0; i < 6; i++) {
            gradient_line(lines[i], six);
            for (long j = 0; j < 6; j++) store(to + (i * 6 + j) * layout.place, six[j]);
        }
    }
}

extern "C" {

// x: count x height x width x from, g: count x height x width x to -> dw: to x from x 3 x 3 with strides in floats
void winograd_gradient(const float* x, const float* g, float* dw, const long* stride, long count, long height, long width,
                       long from, long to) {
    const Maps in = {x, height, width, from}, out = {g, height, width, to};
    const long tiles = count * in.high() * in.wide(), panel = CHUNK * PANEL;
    const Layout v_layout = {CHUNK * from + PANEL, panel}, z_layout = {CHUNK * to + PANEL, panel};
    Floats v(PLACES * v_layout.place), z(PLACES * z_layout.place), sum(PLACES * to * from), zero(std::max(from, to));
    sum.zero(PLACES * to * from);
    zero.zero(std::max(from, to));
#pragma omp parallel
    for (long chunk = 0; chunk < tiles; chunk += CHUNK) {
        const long size = std::min(CHUNK, tiles - chunk);
#pragma omp for
        for (long t = 0; t < size; t++) {
            in.input_tile(chunk + t, zero.p, v.p + t * PANEL, v_layout);
            gradient_tile(out, chunk + t, zero.p, z.p + t * PANEL, z_layout);
        }
#pragma omp for
        for (long p = 0; p < PLACES; p++)
            for (long o = 0; o < to; o += PANEL)
                for (long c = 0; c < from; c += PANEL)
                    add_product(z.p + p * z_layout.place + o / PANEL * panel, PANEL,
                                v.p + p * v_layout.place + c / PANEL * panel, PANEL, sum.p + (p * to + o) * from + c, from,
                                PANEL, size);
    }
#pragma omp parallel for
    for (long o = 0; o < to; o++)
        for (long c = 0; c < from; c += LANES) {
            vec lines[3][6], six[6], three[3];
            for (long j = 0; j < 6; j++) {
                for (long i = 0; i < 6; i++) six[i] = load(sum.p + ((i * 6 + j) * to + o) * from + c);
                back_line(six, three);
                for (long i = 0; i < 3; i++) lines[i][j] = three[i];
            }
            for (long y = 0; y < 3; y++) {
                back_line(lines[y], three);
                for (long w = 0; w < 3; w++)
                    for (long l = 0; l < LANES; l++)
                        dw[o * stride[0] + (c + l) * stride[1] + y * stride[2] + w * stride[3]] = three[w][l];
            }
        }
}
}
