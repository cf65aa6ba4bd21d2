// The blocks of a ConvNet (3x3 convolution, instance norm, ReLU, 2x2 average pooling) and the ways back to the image and
// to the weights.
// float32, channels-last: an image is height x width x channels. Channels come in sixteens, colours are few.
//
// The first block works image by image: its convolution is a matrix product over 9 x colours numbers, and norm, ReLU and
// pooling follow while the image is still in the cache. The other convolutions are Winograd's. The convolutions' biases
// are left out: instance norm takes them away again.
#include "gradient.h"
#include "norm.h"
#include "winograd.h"

// The images under the first convolution: count x height x width x colours, bytes or floats in [0, 1].
struct Images {
    const void* pixels;
    long bytes;
    const float *mean, *scale;
    long height, width, colours, pad;

    long out_h() const { return height + 2 * pad - 2; }
    long out_w() const { return width + 2 * pad - 2; }
    long line() const { return (out_w() + 2) * colours; }
    long size() const { return (out_h() + 2) * line(); }

    // image i, (pixel - mean) * scale, within a frame that stays as it is
    void read(long i, float* image) const {
        for (long r = 0; r < height; r++)
            for (long s = 0; s < width; s++)
                for (long k = 0; k < colours; k++) {
                    const long at = ((i * height + r) * width + s) * colours + k;
                    const float value = bytes ? ((const unsigned char*)pixels)[at] / 255.0f : ((const float*)pixels)[at];
                    image[(r + pad) * line() + (s + pad) * colours + k] = (value - mean[k]) * scale[k];
                }
    }

    // the 9 x colours numbers under each output of line r
    void windows(const float* image, long r, float* out) const {
        for (long s = 0; s < out_w(); s++)
            for (long k = 0; k < 3; k++)
                memcpy(out + (s * 3 + k) * 3 * colours, image + (r + k) * line() + s * colours, 3 * colours * sizeof(float));
    }

    // weights: channels/16 x (9 colours) x 16, rows in the order (y, x, colour)
    void convolve(const float* image, const float* weights, float* window, float* x, long channels) const {
        for (long r = 0; r < out_h(); r++) {
            windows(image, r, window);
            product(window, weights, x + r * out_w() * channels, out_w(), 9 * colours, channels);
        }
    }
};

extern "C" {

void norm_forward(const float* x, const float* gain, const float* shift, float epsilon, float* pooled, float* stats,
                  long count, long height, long width, long channels) {
    const Norm norm = {height, width, channels, gain, shift, epsilon};
#pragma omp parallel for
    for (long i = 0; i < count; i++)
        norm.forward(x + i * height * width * channels, pooled + i * (height / 2) * (width / 2) * channels,
                     stats + i * 2 * channels);
}

// own: count x 2 x channels, each image's gradients of shift and gain, or null
void norm_backward(const float* x, const float* stats, const float* g, const float* gain, const float* shift, float* dx,
                   float* own, long count, long height, long width, long channels) {
    const Norm norm = {height, width, channels, gain, shift, 0};
#pragma omp parallel
    {
        Floats scratch(2 * channels);
#pragma omp for
        for (long i = 0; i < count; i++)
            norm.backward(x + i * height * width * channels, stats + i * 2 * channels,
                          g + i * (height / 2) * (width / 2) * channels, dx + i * height * width * channels, scratch.p,
                          own ? own + i * 2 * channels : nullptr);
    }
}

// The first block; (pixel - mean) * scale is convolved. `pad` 1, or more: the output is larger then.
// x: what the convolution gave, kept for the way back, or null: then it never leaves the cache.
void first_forward(const void* pixels, long bytes, const float* mean, const float* scale, const float* weights,
                   const float* gain, const float* shift, float epsilon, float* x, float* pooled, float* stats, long count,
                   long height, long width, long colours, long channels, long pad) {
    const Images images = {pixels, bytes, mean, scale, height, width, colours, pad};
    const long out_h = images.out_h(), out_w = images.out_w();
    const Norm norm = {out_h, out_w, channels, gain, shift, epsilon};
#pragma omp parallel
    {
        Floats image(images.size()), window(out_w * 9 * colours), own(x ? 1 : out_h * out_w * channels);
        image.zero(images.size());
#pragma omp for
        for (long i = 0; i < count; i++) {
            float* to = x ? x + i * out_h * out_w * channels : own.p;
            images.read(i, image.p);
            images.convolve(image.p, weights, window.p, to, channels);
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
                          g + i * (out_h / 2) * (out_w / 2) * channels, gradient.p, scratch.p, nullptr);
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

// The gradients of the first block's weights, image by image. What the convolution gave is computed again: quicker than
// to keep it. dw: count x (9 colours) x channels, rows (y, x, colour); own: as above.
void first_gradient(const void* pixels, long bytes, const float* mean, const float* scale, const float* weights,
                    const float* stats, const float* g, const float* gain, const float* shift, float* dw, float* own,
                    long count, long height, long width, long colours, long channels, long pad) {
    const Images images = {pixels, bytes, mean, scale, height, width, colours, pad};
    const long out_h = images.out_h(), out_w = images.out_w(), nine = 9 * colours;
    const Norm norm = {out_h, out_w, channels, gain, shift, 0};
#pragma omp parallel
    {
        Floats image(images.size()), window(out_w * nine), x(out_h * out_w * channels), line(out_w * channels);
        Floats means(2 * channels);
        image.zero(images.size());
#pragma omp for
        for (long i = 0; i < count; i++) {
            const float *own_stats = stats + i * 2 * channels, *own_g = g + i * (out_h / 2) * (out_w / 2) * channels;
            float* sum = dw + i * nine * channels;
            memset(sum, 0, nine * channels * sizeof(float));
            images.read(i, image.p);
            images.convolve(image.p, weights, window.p, x.p, channels);
            norm.means(x.p, own_stats, own_g, means.p, own + i * 2 * channels);
            for (long r = 0; r < out_h; r++) {
                norm.line(r, x.p, own_stats, own_g, means.p, line.p);
                images.windows(image.p, r, window.p);
                for (long j = 0; j < channels; j += PANEL)
                    add_product(window.p, nine, line.p + j, channels, sum + j, channels, nine, out_w);
            }
        }
    }
}
}
