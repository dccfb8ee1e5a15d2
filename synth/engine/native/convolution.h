/* Convolutions of the codec's decoder with the Snakes around them, a tile of columns at a time, so
 * that what lies between them stays in the processor's cache. The specifications are
 * `codec/residual.py` and `codec/decoder_layers.py`. */
#pragma once

#include "team.h"

#if VL == 16
#define OUTPUTS 8 /* whose sums stay in registers, */
#else
#define OUTPUTS 4
#endif
#define SPAN 3 /* for so many vectors of columns */
#define TILE_FLOATS 40960 /* of a tile's input: with its outputs they fit into the second cache */
#define LARGEST_ANGLE 3e4f

typedef struct {
    const float *alpha, *inverse; /* [channels], 1 / alpha; NULL without a Snake */
} Snake;

/* `weight` is [outputs / OUTPUTS][channels][taps][OUTPUTS], filled up with zeros. */
typedef struct {
    int32_t channels, outputs, taps, step; /* columns from tap to tap */
    const float *weight, *bias;            /* bias: [outputs filled up] */
} Taps;

/* One of a call's steps. Shapes: B pieces of `length` columns; all rows contiguous. Snake, taps and,
 * with narrow weights, Snake and one tap that are added to x. With a stride so many neighbouring
 * outputs are the columns of one. */
typedef struct {
    Snake first, second;
    Taps wide, narrow; /* the weight is NULL without it */
    int32_t stride, is_tanh, batch, threads;
    int64_t length, before_stride; /* floats from piece to piece of `before` */
    const float *x;                /* [B][channels][length] */
    float *before;  /* [B][channels][(taps - 1) * step]: what lies ahead, Snake done, written over
                     * with what lies ahead of the next piece; NULL: zeros */
    float *out;     /* [B][outputs / stride][length * stride] */
    float *scratch; /* [threads][tts_scratch] */
    atomic_int next, thread;
} Convolution;

static inline int filled(int outputs) { return (outputs + OUTPUTS - 1) / OUTPUTS * OUTPUTS; }

/* sin(angle)^2 within 2 units of the last place of 1; by the C library where angles are so large
 * that three parts of pi are not exact enough. */
ALWAYS vf bumps(vf angle) {
    vf count = angle * 0.318309886f + 12582912.0f - 12582912.0f; /* to the nearest whole number */
    vf r = angle - count * 3.140625f;
    r = r - count * 9.67502593994140625e-4f;
    r = r - count * 1.509957990978376432e-7f;
    vf q = r * r;
    vf y = all(-2.3889859e-8f);
    y = y * q + 2.7525562e-6f;
    y = y * q - 1.9840874e-4f;
    y = y * q + 8.3333310e-3f;
    y = y * q - 1.6666667e-1f;
    y = y * q * r + r;
    if (__builtin_expect(any((vi)(angle > LARGEST_ANGLE) | (vi)(angle < -LARGEST_ANGLE)), 0))
        for (int i = 0; i < VL; i++)
            if (fabsf(angle[i]) > LARGEST_ANGLE) y[i] = sinf(angle[i]);
    return y * y;
}

ALWAYS vf snake(vf x, float alpha, float inverse) { return x + bumps(x * alpha) * inverse; }

/* Put Snake of a row, or the row without one, into `to`; what lies behind it stays. */
static void put_snake(const Snake *s, int channel, const float *x, int count, float *to) {
    if (!s->alpha) {
        memcpy(to, x, sizeof(float) * count);
        return;
    }
    float alpha = s->alpha[channel], inverse = s->inverse[channel], rest[VL] = {0};
    int i = 0;
    for (; i + VL <= count; i += VL) store(to + i, snake(load(x + i), alpha, inverse));
    if (i == count) return;
    memcpy(rest, x + i, sizeof(float) * (count - i));
    store(rest, snake(load(rest), alpha, inverse));
    memcpy(to + i, rest, sizeof(float) * (count - i));
}

/* Add up all taps of OUTPUTS outputs for `span` vectors of columns; `row` floats from channel to
 * channel. */
ALWAYS void add_taps(const Taps *t, const float *in, size_t row, const float *weight,
                     const float *bias, float *to, size_t to_row, const int span) {
    vf sums[OUTPUTS][SPAN];
    EACH(o, OUTPUTS) EACH(s, span) sums[o][s] = all(bias[o]);
    for (int c = 0; c < t->channels; c++, in += row)
        for (int k = 0; k < t->taps; k++, weight += OUTPUTS) {
            vf x[SPAN];
            EACH(s, span) x[s] = load(in + (size_t)k * t->step + s * VL);
            EACH(o, OUTPUTS) {
                vf w = all(weight[o]);
                EACH(s, span) sums[o][s] += w * x[s];
            }
        }
    EACH(o, OUTPUTS) EACH(s, span) store(to + o * to_row + s * VL, sums[o][s]);
}

/* Map rows of `columns` and what the taps look back on to rows of outputs; columns are filled up. */
static void add_up(const Taps *t, const float *in, size_t row, int columns, float *to, size_t to_row) {
    size_t block = (size_t)t->channels * t->taps * OUTPUTS;
    int spans = (columns + VL - 1) / VL;
    for (int o = 0; o < t->outputs; o += OUTPUTS) {
        const float *weight = t->weight + o / OUTPUTS * block, *bias = t->bias + o;
        float *rows = to + o * to_row;
        int s = 0;
        for (; s + SPAN <= spans; s += SPAN)
            add_taps(t, in + s * VL, row, weight, bias, rows + s * VL, to_row, SPAN);
        if (spans - s == 2)
            add_taps(t, in + s * VL, row, weight, bias, rows + s * VL, to_row, 2);
        else if (spans - s == 1)
            add_taps(t, in + s * VL, row, weight, bias, rows + s * VL, to_row, 1);
    }
}

static inline int looks_back(const Taps *t) { return (t->taps - 1) * t->step; }

/* Columns of a tile: whole blocks of SPAN vectors. */
static int tile_columns(const Convolution *c) {
    int block = SPAN * VL, rows = c->wide.channels > filled(c->wide.outputs) ? c->wide.channels
                                                                             : filled(c->wide.outputs);
    int most = TILE_FLOATS / rows / block * block;
    if (most < 2 * block) most = 2 * block;
    return most < 1920 ? most : 1920;
}

/* Floats from row to row of the scratch memory: no power of two, as such rows share cache lines. */
static size_t scratch_row(const Convolution *c) {
    size_t needed = (looks_back(&c->wide) + tile_columns(c) + 15) / 16 * 16;
    return needed / 16 % 2 ? needed : needed + 16;
}

/* Floats of scratch memory that one thread needs. */
int64_t tts_scratch(const Convolution *c) {
    int out = filled(c->wide.outputs) + (c->narrow.weight ? filled(c->narrow.outputs) : 0);
    return (int64_t)scratch_row(c) * (c->wide.channels + out);
}

static void put_out(const Convolution *c, int64_t piece, int64_t start, int columns, const float *rows,
                    size_t row) {
    int outputs = c->wide.outputs, stride = c->stride;
    for (int o = 0; o < outputs; o++) {
        const float *from = rows + o * row;
        if (stride > 1) {
            float *to = c->out + (piece * (outputs / stride) + o / stride) * c->length * stride +
                        start * stride + o % stride;
            for (int i = 0; i < columns; i++) to[(size_t)i * stride] = from[i];
            continue;
        }
        int64_t place = (piece * outputs + o) * c->length + start;
        float *to = c->out + place;
        if (c->narrow.weight)
            for (int i = 0; i < columns; i++) to[i] = c->x[place + i] + from[i];
        else
            memcpy(to, from, sizeof(float) * columns);
    }
}

/* Put each row's hyperbolic tangent in its place; columns are filled up. */
static void bound(float *rows, size_t row, int outputs, int columns) {
    for (int o = 0; o < outputs; o++)
        for (int i = 0; i < columns; i += VL) {
            float *at = rows + o * row + i;
            store(at, 1.0f - 2.0f / (exponential(2.0f * load(at)) + 1.0f));
        }
}

static void convolve_tile(const Convolution *c, float *scratch, int64_t piece, int64_t start) {
    int left = looks_back(&c->wide), width = tile_columns(c), channels = c->wide.channels;
    int columns = (int)(c->length - start < width ? c->length - start : width);
    size_t row = scratch_row(c);
    float *in = scratch, *mid = in + row * channels, *out = mid;
    for (int i = 0; i < channels; i++) {
        const float *x = c->x + (piece * channels + i) * c->length;
        float *to = in + i * row;
        int64_t begin = start - left;
        int missing = begin < 0 ? (int)-begin : 0; /* columns ahead of the piece */
        if (missing && c->before)
            memcpy(to, c->before + piece * c->before_stride + i * left + (left - missing),
                   sizeof(float) * missing);
        else if (missing)
            memset(to, 0, sizeof(float) * missing);
        put_snake(&c->first, i, x + begin + missing, left - missing + columns, to + missing);
    }
    add_up(&c->wide, in, row, columns, mid, row);
    if (c->narrow.weight) {
        for (int o = 0; o < c->wide.outputs; o++)
            put_snake(&c->second, o, mid + o * row, columns, mid + o * row);
        out = mid + row * filled(c->wide.outputs);
        add_up(&c->narrow, mid, row, columns, out, row);
    }
    if (c->is_tanh) bound(out, row, c->wide.outputs, columns);
    put_out(c, piece, start, columns, out, row);
}

/* Let `before` hold the newest columns: its own, as far as there are no others. */
static void keep_newest(const Convolution *c) {
    int left = looks_back(&c->wide), channels = c->wide.channels;
    int fresh = c->length < left ? (int)c->length : left;
    for (int64_t piece = 0; piece < c->batch; piece++)
        for (int i = 0; i < channels; i++) {
            float *to = c->before + piece * c->before_stride + (int64_t)i * left;
            const float *x = c->x + (piece * channels + i + 1) * c->length - fresh;
            memmove(to, to + fresh, sizeof(float) * (left - fresh));
            put_snake(&c->first, i, x, fresh, to + left - fresh);
        }
}

static void convolve_tiles(void *given) {
    Convolution *c = given;
    int64_t width = tile_columns(c), tiles = (c->length + width - 1) / width;
    float *scratch = c->scratch + atomic_fetch_add(&c->thread, 1) * tts_scratch(c);
    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < tiles * c->batch;)
        convolve_tile(c, scratch, i / tiles, i % tiles * width);
}

static void convolve(Convolution *c) {
    atomic_store(&c->next, 0);
    atomic_store(&c->thread, 0);
    if (c->threads > 1 && openmp.start) openmp.start(convolve_tiles, c, (unsigned)c->threads, 0);
    else convolve_tiles(c);
    if (c->before) keep_newest(c);
}

/* Convolve, one after the other; every output depends, in each bit, on its own piece alone. */
void tts_convolve(Convolution *steps, int32_t count) {
    for (int i = 0; i < count; i++) convolve(&steps[i]);
}

/* How many outputs weights are laid out for side by side. */
int tts_outputs(void) { return OUTPUTS; }
