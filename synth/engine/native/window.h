/* Attention of the codec's transformer: a query sees a window of the newest keys, rows are channels.
 * The specification is `codec/transformer.py`. */
#pragma once

#include "columns.h"

#define HEAD_DIM 64
#define SOME 8 /* keys, or channels, whose sums stay in registers */

/* A column is a position; it sees `size` keys, its own included. */
typedef struct {
    int32_t heads, size;   /* 0 heads without attention */
    const int64_t *frames; /* [B], positions so far of which keys and values may lie ahead */
    const float *rope;     /* cos and sin, [positions][HEAD_DIM / 2][2] */
    int64_t rope_stride;   /* floats from piece to piece */
} Window;

/* Keys or values of one head: those of a key are `step` apart. */
typedef struct {
    const float *at;
    int64_t to_next, step;
} Rows;

/* Rotate adjacent pairs of rows, of so many heads, by the numbers of positions from `rope` on. */
static void rotate_rows(const float *rope, float *rows, size_t row, int heads, int columns) {
    for (int i = 0; i < columns; i += VL)
        for (int pair = 0; pair < HEAD_DIM / 2; pair++) {
            float of_cos[VL] = {0}, of_sin[VL] = {0};
            for (int l = 0; l < VL && i + l < columns; l++) {
                const float *from = rope + (int64_t)(i + l) * HEAD_DIM + 2 * pair;
                of_cos[l] = from[0], of_sin[l] = from[1];
            }
            vf c = load(of_cos), s = load(of_sin);
            for (int h = 0; h < heads; h++) {
                float *at = rows + (size_t)(h * HEAD_DIM + 2 * pair) * row + i;
                vf x = load(at), y = load(at + row);
                store(at, x * c - y * s);
                store(at + row, x * s + y * c);
            }
        }
}

/* Multiply VL queries with some keys, into scores [keys][VL]. */
ALWAYS void score_some(const float *q, size_t row, Rows k, float *scores, const int some) {
    vf sums[SOME];
    EACH(s, some) sums[s] = (vf){0};
    for (int d = 0; d < HEAD_DIM; d++) {
        vf query = load(q + d * row);
        EACH(s, some) sums[s] += query * k.at[s * k.to_next + d * k.step];
    }
    EACH(s, some) store(scores + s * VL, sums[s]);
}

static void score(const float *q, size_t row, Rows k, int count, float *scores) {
    int j = 0;
    for (; j + SOME <= count; j += SOME, k.at += SOME * k.to_next)
        score_some(q, row, k, scores + j * VL, SOME);
    for (; j < count; j++, k.at += k.to_next) score_some(q, row, k, scores + j * VL, 1);
}

/* Add up the values of SOME channels, each times its scores. */
ALWAYS void add_seen(Rows v, int count, const float *scores, vf *sums) {
    for (int j = 0; j < count; j++, v.at += v.to_next) {
        vf weight = load(scores + j * VL);
        EACH(d, SOME) sums[d] += weight * v.at[d * v.step];
    }
}

/* Turn scores [count][VL] of keys from `first` on into shares, for queries from `start` on; return
 * what they are to be divided by. */
static vf share(const Window *w, float *scores, int count, int64_t first, int64_t start) {
    vf most = all(-INFINITY), total = {0};
    vi lane;
    for (int l = 0; l < VL; l++) lane[l] = l;
    for (int j = 0; j < count; j++) {
        vi behind = lane + (int32_t)(start - first - j);
        vf x = choose((behind >= 0) & (behind < w->size), load(scores + j * VL) * 0.125f,
                      all(-INFINITY));
        most = choose(x > most, x, most);
        store(scores + j * VL, x);
    }
    for (int j = 0; j < count; j++) {
        vf x = exponential(load(scores + j * VL) - most);
        total += x;
        store(scores + j * VL, x);
    }
    return total;
}

/* Let queries see keys: x [3][heads][HEAD_DIM][length], the queries' columns from `start` on are in
 * the rows already, and what they see takes their place. Ahead of the columns lie `ahead` keys, then
 * values, each [heads][size - 1][HEAD_DIM], of which the last `carried` are used. Which columns are
 * looked at together changes no bit. */
static void see(const Window *w, const float *x, int64_t length, const float *ahead, int64_t carried,
                int64_t start, int columns, float *rows, size_t row, float *scores) {
    int64_t inner = (int64_t)w->heads * HEAD_DIM, kept = w->size - 1;
    for (int h = 0; h < w->heads; h++) {
        const float *keys = x + (inner + h * HEAD_DIM) * length, *values = keys + inner * length;
        for (int i = 0; i < columns; i += VL) {
            int64_t from = start + i, first = from - kept < -carried ? -carried : from - kept;
            int64_t end = from + VL < length ? from + VL : length;
            int64_t own = first < 0 ? 0 : first; /* the first of this piece */
            int old = first < 0 ? (int)-first : 0, fresh = (int)(end - own);
            Rows k = {keys + own, 1, length}, v = {values + own, 1, length};
            const float *before = (old ? ahead : x) + ((h + 1) * kept - old) * HEAD_DIM;
            Rows old_k = {before, HEAD_DIM, 1}, old_v = {before + kept * inner, HEAD_DIM, 1};
            float *at = rows + (size_t)h * HEAD_DIM * row + i;
            if (old) score(at, row, old_k, old, scores);
            score(at, row, k, fresh, scores + old * VL);
            vf inverse = 1.0f / share(w, scores, old + fresh, first, from);
            for (int d = 0; d < HEAD_DIM; d += SOME) {
                vf sums[SOME];
                EACH(s, SOME) sums[s] = (vf){0};
                if (old) add_seen(old_v, old, scores, sums);
                add_seen(v, fresh, scores + old * VL, sums);
                EACH(s, SOME) store(at + (d + s) * row, sums[s] * inverse);
                old_v.at += SOME, v.at += SOME * length;
            }
        }
    }
}

/* Let what lies ahead be the newest keys and values. */
static void keep_keys(const Window *w, const float *x, int64_t length, float *ahead) {
    int64_t kept = w->size - 1, fresh = length < kept ? length : kept;
    int all_heads = 2 * w->heads; /* keys, then values */
    x += (int64_t)w->heads * HEAD_DIM * length;
    for (int h = 0; h < all_heads; h++, ahead += kept * HEAD_DIM, x += HEAD_DIM * length) {
        memmove(ahead, ahead + fresh * HEAD_DIM, sizeof(float) * (kept - fresh) * HEAD_DIM);
        for (int64_t j = 0; j < fresh; j++)
            for (int d = 0; d < HEAD_DIM; d++)
                ahead[(kept - fresh + j) * HEAD_DIM + d] = x[d * length + length - fresh + j];
    }
}

/* Floats that one thread needs for scores. */
static inline int64_t score_floats(const Window *w) { return (int64_t)(w->size + VL) * VL; }
