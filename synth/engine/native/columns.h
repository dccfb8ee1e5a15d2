/* What the codec does to each column of a tile besides adding up taps. Rows are channels, `row` floats
 * apart; columns are filled up to whole vectors. The specifications are `codec/transformer.py` and
 * `codec/layers.py`. */
#pragma once

#include "vectors.h"

/* The root mean square of the channels, or with a bias their mean and deviation, becomes 1. */
typedef struct {
    const float *weight, *bias; /* [channels]; the weight is NULL without a norm */
    float eps;
} Norm;

/* A convolution of each channel on its own. */
typedef struct {
    const float *weight, *bias; /* [channels][taps], [channels]; NULL without one */
    int32_t taps;
} Depthwise;

/* Tables [size][width] one after the other, whose rows are the channels of a column. */
typedef struct {
    const float *table;           /* NULL without them */
    const int64_t *begins, *size; /* [count] */
    int32_t count, width;
} Codebooks;

static void normalise(const Norm *n, float *rows, size_t row, int channels, int columns) {
    for (int i = 0; i < columns; i += VL) {
        vf mean = {0}, squares = {0};
        if (n->bias) {
            for (int c = 0; c < channels; c++) mean += load(rows + c * row + i);
            mean /= (float)channels;
        }
        for (int c = 0; c < channels; c++) {
            vf x = load(rows + c * row + i) - mean;
            squares += x * x;
        }
        vf inverse = 1.0f / root(squares / (float)channels + n->eps);
        for (int c = 0; c < channels; c++) {
            float *at = rows + c * row + i;
            vf x = (load(at) - mean) * inverse * n->weight[c];
            store(at, n->bias ? x + n->bias[c] : x);
        }
    }
}

/* Put the sums of a channel's taps in the place of their first ones. */
static void mix_taps(const Depthwise *d, int channel, float *x, int columns) {
    const float *weight = d->weight + (size_t)channel * d->taps;
    for (int i = 0; i < columns; i += VL) {
        vf total = all(d->bias[channel]);
        for (int k = 0; k < d->taps; k++) total += load(x + i + k) * weight[k];
        store(x + i, total);
    }
}

/* Put the rows of codes [count][length], from `codes` on, side by side; a code above its table means
 * the last row. */
static void look_up(const Codebooks *b, const int64_t *codes, int64_t length, float *rows, size_t row,
                    int columns) {
    for (int k = 0; k < b->count; k++, codes += length, rows += b->width * row)
        for (int i = 0; i < columns; i++) {
            int64_t code = codes[i] < 0 ? 0 : codes[i] < b->size[k] ? codes[i] : b->size[k] - 1;
            const float *from = b->table + (b->begins[k] + code) * b->width;
            for (int w = 0; w < b->width; w++) rows[w * row + i] = from[w];
        }
}

/* Half of the rows are gates of the others: gate * sigmoid(gate) * other, in the gate's place. */
static void open_gates(float *rows, size_t row, int gates, int columns) {
    for (int r = 0; r < gates; r++)
        for (int i = 0; i < columns; i += VL) {
            float *at = rows + r * row + i;
            vf gate = load(at);
            store(at, gate / (1.0f + exponential(-gate)) * load(at + gates * row));
        }
}

/* x times the share of a normal distribution that lies below x. That share is within 1e-7: by the
 * rational approximation 7.1.26 of Abramowitz and Stegun's handbook. */
ALWAYS vf gelu(vf x) {
    vf size = choose(x < 0, -x, x) * 0.70710678118654752f;
    vf t = 1.0f / (1.0f + 0.3275911f * size);
    vf y = all(1.061405429f);
    y = y * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    vf tail = 0.5f * y * t * exponential(-size * size);
    return x * choose(x < 0, tail, 1.0f - tail);
}

static void put_gelu(float *rows, size_t row, int channels, int columns) {
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < columns; i += VL)
            store(rows + c * row + i, gelu(load(rows + c * row + i)));
}

/* Put each number's hyperbolic tangent in its place. */
static void bound(float *rows, size_t row, int channels, int columns) {
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < columns; i += VL) {
            float *at = rows + c * row + i;
            store(at, 1.0f - 2.0f / (exponential(2.0f * load(at)) + 1.0f));
        }
}
