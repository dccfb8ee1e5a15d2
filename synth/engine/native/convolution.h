/* Convolutions of the codec's decoder with what goes before and behind them, a tile of columns at a
 * time, so that what lies between them stays in the processor's cache; a linear map is a convolution
 * of one tap. The specifications are `codec/layers.py` and `codec/stages.py`. */
#pragma once

#include "team.h"
#include "window.h"

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

/* What becomes of the sums of the wide taps. */
enum { SUMS, SNAKES, GATES, GELUS, ROTATED, TANGENTS };

/* One of a call's steps. Shapes: B pieces of `length` columns; all rows contiguous. The channels of a
 * column are one of: x, with or without a Snake, of which those of `depthwise` are mixed; the rows of
 * its codes; what a window shows. Then come a norm, taps, what `then` says and, with narrow weights,
 * one tap. With a stride so many neighbouring outputs are the columns of one. */
typedef struct {
    Snake first, second;
    Depthwise depthwise;
    Codebooks codebooks;
    Window window; /* also of rotated sums */
    Norm norm;
    Taps wide, narrow; /* the weight is NULL without it */
    int32_t stride, then, batch, threads;
    int64_t length, before_stride; /* floats from piece to piece of `before` */
    const void *x;                 /* float [B][channels][length]; codes int64 [B][count][length];
                                    * of a window queries, keys and values [B][3 * channels][length] */
    float *before;      /* [B][channels][(taps - 1) * step]: what lies ahead, Snake done, written over
                         * with what lies ahead of the next piece; of a window keys and values; NULL:
                         * zeros, or no keys */
    const float *added; /* to what comes out, of its shape, or NULL */
    float *out;         /* [B][outputs / stride][length * stride] */
    float *scratch;     /* [threads][tts_scratch] */
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

static inline int looks_back(const Convolution *c) {
    return c->depthwise.weight ? c->depthwise.taps - 1 : (c->wide.taps - 1) * c->wide.step;
}

/* Rows that come out of the last taps. */
static inline int last_rows(const Convolution *c) {
    return c->narrow.weight ? c->narrow.outputs : c->wide.outputs;
}

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
    size_t needed = (looks_back(c) + tile_columns(c) + 15) / 16 * 16;
    return needed / 16 % 2 ? needed : needed + 16;
}

/* Floats of scratch memory that one thread needs. */
int64_t tts_scratch(const Convolution *c) {
    int out = filled(c->wide.outputs) + (c->narrow.weight ? filled(c->narrow.outputs) : 0);
    int64_t scores = c->window.heads ? score_floats(&c->window) : 0;
    return (int64_t)scratch_row(c) * (c->wide.channels + out) + scores;
}

static void put_out(const Convolution *c, int64_t piece, int64_t start, int columns, const float *rows,
                    size_t row) {
    int outputs = last_rows(c), stride = c->stride;
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
        if (c->added)
            for (int i = 0; i < columns; i++) to[i] = c->added[place + i] + from[i];
        else
            memcpy(to, from, sizeof(float) * columns);
    }
}

/* Put the channels of x into rows: what lies ahead of the columns, and the columns. */
static void put_channels(const Convolution *c, float *in, size_t row, int64_t piece, int64_t start,
                         int columns) {
    int left = looks_back(c), channels = c->wide.channels;
    int64_t begin = start - left;
    int missing = begin < 0 ? (int)-begin : 0; /* columns ahead of the piece */
    for (int i = 0; i < channels; i++) {
        const float *x = (const float *)c->x + (piece * channels + i) * c->length;
        float *to = in + i * row;
        if (missing && c->before)
            memcpy(to, c->before + piece * c->before_stride + i * left + (left - missing),
                   sizeof(float) * missing);
        else if (missing)
            memset(to, 0, sizeof(float) * missing);
        put_snake(&c->first, i, x + begin + missing, left - missing + columns, to + missing);
        if (c->depthwise.weight) mix_taps(&c->depthwise, i, to, columns);
    }
}

/* Put what the queries of a tile see into rows. */
static void put_seen(const Convolution *c, float *in, size_t row, int64_t piece, int64_t start,
                     int columns, float *scores) {
    const Window *w = &c->window;
    int channels = c->wide.channels;
    const float *x = (const float *)c->x + piece * 3 * channels * c->length;
    for (int i = 0; i < channels; i++)
        memcpy(in + i * row, x + i * c->length + start, sizeof(float) * columns);
    int64_t carried = 0;
    if (c->before) carried = w->frames[piece] < w->size ? w->frames[piece] : w->size - 1;
    const float *ahead = c->before ? c->before + piece * c->before_stride : NULL;
    see(w, x, c->length, ahead, carried, start, columns, in, row, scores);
}

static void convolve_tile(const Convolution *c, float *scratch, int64_t piece, int64_t start) {
    const Window *w = &c->window;
    int width = tile_columns(c), channels = c->wide.channels, outputs = c->wide.outputs;
    int columns = (int)(c->length - start < width ? c->length - start : width);
    size_t row = scratch_row(c);
    float *in = scratch, *mid = in + row * channels, *out = mid;
    if (c->codebooks.table)
        look_up(&c->codebooks, (const int64_t *)c->x + piece * c->codebooks.count * c->length + start,
                c->length, in, row, columns);
    else if (w->heads && c->then != ROTATED)
        put_seen(c, in, row, piece, start, columns, scratch + tts_scratch(c) - score_floats(w));
    else
        put_channels(c, in, row, piece, start, columns);
    if (c->norm.weight) normalise(&c->norm, in, row, channels, columns);
    add_up(&c->wide, in, row, columns, mid, row);
    if (c->then == SNAKES)
        for (int o = 0; o < outputs; o++)
            put_snake(&c->second, o, mid + o * row, columns, mid + o * row);
    else if (c->then == GATES) open_gates(mid, row, outputs / 2, columns);
    else if (c->then == GELUS) put_gelu(mid, row, outputs, columns);
    else if (c->then == TANGENTS) bound(mid, row, outputs, columns);
    else if (c->then == ROTATED) /* queries and keys */
        rotate_rows(w->rope + piece * w->rope_stride + start * HEAD_DIM, mid, row, 2 * w->heads, columns);
    if (c->narrow.weight) {
        out = mid + row * filled(outputs);
        add_up(&c->narrow, mid, row, columns, out, row);
    }
    put_out(c, piece, start, columns, out, row);
}

/* Let `before` hold the newest columns: its own, as far as there are no others. */
static void keep_newest(const Convolution *c) {
    int left = looks_back(c), channels = c->wide.channels;
    int fresh = c->length < left ? (int)c->length : left;
    for (int64_t piece = 0; piece < c->batch; piece++) {
        float *to = c->before + piece * c->before_stride;
        const float *x = (const float *)c->x + piece * channels * c->length;
        if (c->window.heads) {
            keep_keys(&c->window, x + 2 * piece * channels * c->length, c->length, to);
            continue;
        }
        for (int i = 0; i < channels; i++, to += left, x += c->length) {
            memmove(to, to + fresh, sizeof(float) * (left - fresh));
            put_snake(&c->first, i, x + c->length - fresh, fresh, to + left - fresh);
        }
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
