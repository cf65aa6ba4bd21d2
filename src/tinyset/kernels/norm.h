// Instance norm, ReLU and 2x2 average pooling of one image, and the way back.
#pragma once
#include "product.h"

struct Norm {
    long height, width, channels;
    const float *gain, *shift;  // of the norm
    float epsilon;

    // x: height x width x channels -> pooled: height/2 x width/2 x channels; stats: mean and 1/deviation of each channel
    void forward(const float* x, float* pooled, float* stats) const {
        float *mean = stats, *scale = stats + channels;
        const long pixels = height * width;
        memset(stats, 0, 2 * channels * sizeof(float));
        for (long i = 0; i < pixels; i++)
            for (long c = 0; c < channels; c += LANES) store(mean + c, load(mean + c) + load(x + i * channels + c));
        for (long c = 0; c < channels; c++) mean[c] /= pixels;
        for (long i = 0; i < pixels; i++)
            for (long c = 0; c < channels; c += LANES) {
                const vec d = load(x + i * channels + c) - load(mean + c);
                store(scale + c, load(scale + c) + d * d);
            }
        for (long c = 0; c < channels; c++) scale[c] = 1 / std::sqrt(scale[c] / pixels + epsilon);
        for (long r = 0; r < height / 2; r++)
            for (long s = 0; s < width / 2; s++) {
                const float* at = x + (2 * r * width + 2 * s) * channels;
                for (long c = 0; c < channels; c += LANES) {
                    const vec times = load(scale + c) * load(gain + c), plus = load(shift + c) - load(mean + c) * times;
                    vec sum = {};
                    for (long k = 0; k < 4; k++) {
                        const vec z = load(at + (k / 2 * width + k % 2) * channels + c) * times + plus;
                        sum += positive(z, z);
                    }
                    store(pooled + (r * (width / 2) + s) * channels + c, 0.25f * sum);
                }
            }
    }

    // g: gradient of pooled -> dx: gradient of x; scratch: 2 x channels; own: gradients of shift and gain, or null
    void backward(const float* x, const float* stats, const float* g, float* dx, float* scratch, float* own) const {
        means(x, stats, g, scratch, own);
        for (long r = 0; r < height; r++) line(r, x, stats, g, scratch, dx + r * width * channels);
    }

    // over the image: of the gradient before the norm's gain and shift came, and of its product with the normed x
    void means(const float* x, const float* stats, const float* g, float* out, float* own) const {
        const float *mean = stats, *scale = stats + channels;
        float *sum = out, *dot = out + channels;
        memset(out, 0, 2 * channels * sizeof(float));
        for (long r = 0; r < height / 2; r++)
            for (long s = 0; s < width / 2; s++)
                for (long c = 0; c < channels; c += LANES) {
                    const vec d = 0.25f * load(g + (r * (width / 2) + s) * channels + c);
                    vec total = load(sum + c), product = load(dot + c);
                    for (long k = 0; k < 4; k++) {
                        const long at = ((2 * r + k / 2) * width + 2 * s + k % 2) * channels + c;
                        const vec hat = (load(x + at) - load(mean + c)) * load(scale + c);
                        const vec kept = positive(hat * load(gain + c) + load(shift + c), d);
                        total += kept;
                        product += kept * hat;
                    }
                    store(sum + c, total);
                    store(dot + c, product);
                }
        if (own) memcpy(own, out, 2 * channels * sizeof(float));
        for (long c = 0; c < 2 * channels; c++) out[c] = out[c] * gain[c % channels] / (height * width);
    }

    // dx: line r of the gradient of x
    void line(long r, const float* x, const float* stats, const float* g, const float* means, float* dx) const {
        const float *mean = stats, *scale = stats + channels, *sum = means, *dot = means + channels;
        for (long s = 0; s < width; s++) {
            const bool pooled = r / 2 < height / 2 && s / 2 < width / 2;  // an odd last line is not
            for (long c = 0; c < channels; c += LANES) {
                const vec hat = (load(x + (r * width + s) * channels + c) - load(mean + c)) * load(scale + c);
                vec d = {};
                if (pooled) d = 0.25f * load(g + (r / 2 * (width / 2) + s / 2) * channels + c) * load(gain + c);
                d = positive(hat * load(gain + c) + load(shift + c), d);
                store(dx + s * channels + c, load(scale + c) * (d - load(sum + c) - hat * load(dot + c)));
            }
        }
    }
};
