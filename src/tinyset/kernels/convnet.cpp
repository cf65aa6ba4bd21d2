// The blocks of a ConvNet (3x3 convolution, instance norm, ReLU, 2x2 average pooling) and the way back to the image.
// float32, channels-last: an image is height x width x channels. Channels come in sixteens, colours are few.
//
// The first block works image by image: its convolution is a matrix product over 9 x colours numbers, and norm, ReLU and
// pooling follow while the image is still in the cache. The other convolutions are Winograd's. The convolutions' biases
// are left out: instance norm takes them away again.
#include "norm.h"
#include "winograd.h"

extern "C" {

void norm_forward(const float* x, const float* gain, const float* shift, float epsilon, float* pooled, float* stats,
                  long count, long height, long width, long channels) {
    const Norm norm = {height, width, channels, gain, shift, epsilon};
#pragma omp parallel for
    for (long i = 0; i < count; i++)
        norm.forward(x + i * height * width * channels, pooled + i * (height / 2) * (width / 2) * channels,
                     stats + i * 2 * channels);
}

void norm_backward(const float* x, const float* stats, const float* g, const float* gain, const float* shift, float* dx,
                   long count, long height, long width, long channels) {
    const Norm norm = {height, width, channels, gain, shift, 0};
#pragma omp parallel
    {
        Floats scratch(2 * channels);
#pragma omp for
        for (long i = 0; i < count; i++)
            norm.backward(x + i * height * width * channels, stats + i * 2 * channels,
                          g + i * (height / 2) * (width / 2) * channels, dx + i * height * width * channels, scratch.p);
    }
}

// The first block. pixels: count x height x width x colours, bytes or floats in [0, 1]; (pixel - mean) * scale is convolved.
// weights: channels/16 x (9 colours) x 16, rows in the order (y, x, colour). `pad` 1, or more: the output is larger then.
// x: what the convolution gave, kept for the way back, or null: then it never leaves the cache.
void first_forward(const void* pixels, long bytes, const float* mean, const float* scale, const float* weights,
                   const float* gain, const float* shift, float epsilon, float* x, float* pooled, float* stats, long count,
                   long height, long width, long colours, long channels, long pad) {
    const long out_h = height + 2 * pad - 2, out_w = width + 2 * pad - 2, line = (out_w + 2) * colours, nine = 9 * colours;
    const Norm norm = {out_h, out_w, channels, gain, shift, epsilon};
#pragma omp parallel
    {
        Floats image((out_h + 2) * line), windows(out_w * nine), own(x ? 1 : out_h * out_w * channels);
        image.zero((out_h + 2) * line);
#pragma omp for
        for (long i = 0; i < count; i++) {
            for (long r = 0; r < height; r++)
                for (long s = 0; s < width; s++)
                    for (long k = 0; k < colours; k++) {
                        const long at = ((i * height + r) * width + s) * colours + k;
                        const float value = bytes ? ((const unsigned char*)pixels)[at] / 255.0f : ((const float*)pixels)[at];
                        image.p[(r + pad) * line + (s + pad) * colours + k] = (value - mean[k]) * scale[k];
                    }
            float* to = x ? x + i * out_h * out_w * channels : own.p;
            for (long r = 0; r < out_h; r++) {
                for (long s = 0; s < out_w; s++)
                    for (long k = 0; k < 3; k++)
                        memcpy(windows.p + s * nine + k * 3 * colours, image.p + (r + k) * line + s * colours,
                               3 * colours * sizeof(float));
                product(windows.p, weights, to + r * out_w * channels, out_w, nine, channels);
            }
            norm.forward(to, pooled + i * (out_h / 2) * (out_w / 2) * channels, stats + i * 2 * channels);
        }
    }
}

// g: gradient of pooled -> dx: count x height x width x colours, of the pixels in [0, 1].
// weights: columns/16 x channels x 16, columns (y, x, colour) filled up with zeros.
void first_backward(const float* x, const float* stats, const float* g, const float* gain, const float* shift,
                    const float* weights, const float* scale, float* dx, long count, long height, long width, long colours,
                    long channels, long pad) {
    const long out_h = height + 2 * pad - 2, out_w = width + 2 * pad - 2, line = (out_w + 2) * colours;
    const long columns = (9 * colours + PANEL - 1) / PANEL * PANEL;
    const Norm norm = {out_h, out_w, channels, gain, shift, 0};
#pragma omp parallel
    {
        Floats gradient(out_h * out_w * channels), windows(out_w * columns), sum((out_h + 2) * line), scratch(2 * channels);
#pragma omp for
        for (long i = 0; i < count; i++) {
            norm.backward(x + i * out_h * out_w * channels, stats + i * 2 * channels,
                          g + i * (out_h / 2) * (out_w / 2) * channels, gradient.p, scratch.p);
            sum.zero((out_h + 2) * line);
            for (long r = 0; r < out_h; r++) {
                product(gradient.p + r * out_w * channels, weights, windows.p, out_w, channels, columns);
                for (long s = 0; s < out_w; s++)
                    for (long k = 0; k < 3; k++)
                        for (long n = 0; n < 3 * colours; n++)
                            sum.p[(r + k) * line + s * colours + n] += windows.p[s * columns + k * 3 * colours + n];
            }
            for (long r = 0; r < height; r++)
                for (long s = 0; s < width; s++)
                    for (long k = 0; k < colours; k++)
                        dx[((i * height + r) * width + s) * colours + k] =
                            scale[k] * sum.p[(r + pad) * line + (s + pad) * colours + k];
        }
    }
}
}
