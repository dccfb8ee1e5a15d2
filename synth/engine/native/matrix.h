/* Products of few rows with weights laid out in panels of 16 outputs. */
#pragma once

#include "team.h"

enum { FLOAT32, BFLOAT16, INT8 };

/* `weight` is [panels][columns / group][16][group], group 1, 2 or 4 numbers of one output, so that
 * 64 bytes of it serve 16 outputs; rows and columns beyond the matrix's own are 0. */
typedef struct {
    int32_t kind, rows, columns, padded;
    const void *weight;
    const float *scale;  /* [panels * 16], of int8 */
    const int32_t *sums; /* [panels * 16], of int8: each output's weights */
    const float *bias;   /* [panels * 16] or NULL */
} Matrix;

#if defined(__AVX512BF16__)
#define BF16_INPUT 2 /* bytes of a number of a row that bfloat16 weights are multiplied with */
#else
#define BF16_INPUT 4
#endif
#if defined(__AVX512VNNI__)
#define LEVELS 127 /* either side of 0 that a row's numbers are rounded to, of int8 */
#define OFFSET 128
#else
#define LEVELS 64 /* two products of up to 128 and 127 are added in 16 bits */
#define OFFSET 64
#endif

#if VL == 16
#define MOST_ROWS 8 /* of a tile whose sums stay in registers, and its rows' addresses too */
#else
#define MOST_ROWS 6 /* 12 sums of 16 registers: products come quicker than sums of fewer */
#endif
#define PARTS (LANES / VL)
#define MOST_PANELS 4
#define AHEAD 4096 /* bytes of weights that are asked for before they are needed */

static inline int input_bytes(const Matrix *m) {
    return m->kind == INT8 ? 1 : m->kind == BFLOAT16 ? BF16_INPUT : 4;
}

static inline size_t panel_bytes(const Matrix *m) {
    return (size_t)m->padded * LANES * (m->kind == INT8 ? 1 : m->kind == BFLOAT16 ? 2 : 4);
}

static inline int num_panels(const Matrix *m) { return (m->rows + LANES - 1) / LANES; }

/* The rows that a thread multiplies: made by `put_row`, `scale` of int8 behind them. */
typedef struct {
    char *rows;
    float *scale;
    size_t stride;
} Input;

static Input open_input(Thread *t, const Matrix *m, int rows) {
    size_t stride = ((size_t)m->padded * input_bytes(m) + 63) / 64 * 64;
    char *bytes = reserve(&t->input, stride * rows + sizeof(float) * rows);
    return (Input){bytes, (float *)(bytes + stride * rows), stride};
}

/* Store numbers rounded to the nearest of the levels, ties to even, each a byte. */
ALWAYS void store_levels(uint8_t *to, vf x) {
#if VL == 16
    __m512i levels = _mm512_add_epi32(_mm512_cvtps_epi32((__m512)x), _mm512_set1_epi32(OFFSET));
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(levels));
#else
    __m256i levels = _mm256_add_epi32(_mm256_cvtps_epi32((__m256)x), _mm256_set1_epi32(OFFSET));
    __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(words, words));
#endif
}

static void put_row(const Matrix *m, Input in, int row, const float *x) {
    char *to = in.rows + in.stride * row;
    int n = m->columns, padded = m->padded;
    if (m->kind == INT8) {
        int whole = n / VL * VL;
        vf sizes = {0}, lost = {0}; /* not 0 but NaN where a number is not finite */
        for (int i = 0; i < whole; i += VL) {
            vf each = load(x + i), size = (vf)((vi)each & 0x7fffffff);
            sizes = choose(size > sizes, size, sizes);
            lost += each - each;
        }
        float most = largest(sizes), rest = sum(lost);
        for (int i = whole; i < n; i++) {
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
            rest += x[i] - x[i];
        }
        if (!isfinite(rest)) { /* whole numbers cannot say so */
            memset(to, OFFSET, padded);
            in.scale[row] = NAN;
            return;
        }
        most = most > 1e-30f ? most : 1e-30f;
        float inverse = LEVELS / most;
        for (int i = 0; i < whole; i += VL) store_levels((uint8_t *)to + i, load(x + i) * inverse);
        for (int i = whole; i < n; i++)
            ((uint8_t *)to)[i] = (uint8_t)(lrintf(x[i] * inverse) + OFFSET);
        memset(to + n, 0, padded - n);
        in.scale[row] = most / LEVELS;
    } else if (m->kind == BFLOAT16 && BF16_INPUT == 2) {
        uint16_t *out = (uint16_t *)to;
        for (int i = 0; i < n; i++) {
            uint32_t bits;
            float value = to_bf16_1(x[i]);
            memcpy(&bits, &value, 4);
            out[i] = (uint16_t)(bits >> 16);
        }
        memset(out + n, 0, (padded - n) * 2);
    } else {
        memcpy(to, x, n * 4);
        memset(to + n * 4, 0, (padded - n) * 4);
    }
}

/* Which weights are asked for while others are used, as a core that waits for sums does not run far
 * enough ahead by itself: of each panel a line of 64 bytes from `from` on, at every `pace`th step.
 * What several tiles in turn read, they ask for in turn, so that memory is read all the time. */
typedef struct {
    const char *from;
    int pace;
} Ahead;

#define ASK_AHEAD()                                                                                \
    if (!--wait) {                                                                                 \
        EACH(p, panels) _mm_prefetch(ahead.from + p * panel, _MM_HINT_T0);                         \
        ahead.from += 64, wait = ahead.pace;                                                       \
    }

/* Multiply `rows` rows with `panels` panels into out [panels][rows][16], as sums of products. */
ALWAYS void tile_float(const int rows, const int panels, const float *const *x, const char *weight,
                       size_t panel, int columns, Ahead ahead, float *out) {
    vf acc[MOST_ROWS][MOST_PANELS][PARTS];
    EACH(r, rows) EACH(p, panels) EACH(h, PARTS) acc[r][p][h] = (vf){0};
    int wait = 1;
    for (int k = 0; k < columns; k++) {
        ASK_AHEAD()
        vf w[MOST_PANELS][PARTS];
        EACH(p, panels) EACH(h, PARTS)
            w[p][h] = load((const float *)(weight + p * panel + ((size_t)k * LANES + h * VL) * 4));
        EACH(r, rows) {
            vf each = all(x[r][k]);
            EACH(p, panels) EACH(h, PARTS) acc[r][p][h] += each * w[p][h];
        }
    }
    EACH(p, panels) EACH(r, rows) EACH(h, PARTS)
        store(out + (p * rows + r) * LANES + h * VL, acc[r][p][h]);
}

ALWAYS void tile_bf16(const int rows, const int panels, const char *const *x, const char *weight,
                      size_t panel, int columns, Ahead ahead, float *out) {
    vf acc[MOST_ROWS][MOST_PANELS][PARTS];
    EACH(r, rows) EACH(p, panels) EACH(h, PARTS) acc[r][p][h] = (vf){0};
    int wait = 1;
    for (int k = 0; k < columns / 2; k++) {
        ASK_AHEAD()
#if BF16_INPUT == 2
        __m512bh w[MOST_PANELS];
        EACH(p, panels)
            w[p] = (__m512bh)_mm512_loadu_si512(weight + p * panel + (size_t)k * 64);
        EACH(r, rows) {
            __m512bh each = (__m512bh)_mm512_set1_epi32(((const int32_t *)x[r])[k]);
            EACH(p, panels)
                acc[r][p][0] = (vf)_mm512_dpbf16_ps((__m512)acc[r][p][0], each, w[p]);
        }
#else
        vf even[MOST_PANELS][PARTS], odd[MOST_PANELS][PARTS];
        EACH(p, panels) EACH(h, PARTS) {
            vu both = (vu)load_bits(weight + p * panel + (size_t)k * 64 + h * VL * 4);
            even[p][h] = (vf)(both << 16);
            odd[p][h] = (vf)(both & 0xffff0000u);
        }
        EACH(r, rows) {
            vf one = all(((const float *)x[r])[2 * k]), two = all(((const float *)x[r])[2 * k + 1]);
            EACH(p, panels) EACH(h, PARTS) {
                acc[r][p][h] += one * even[p][h];
                acc[r][p][h] += two * odd[p][h];
            }
        }
#endif
    }
    EACH(p, panels) EACH(r, rows) EACH(h, PARTS)
        store(out + (p * rows + r) * LANES + h * VL, acc[r][p][h]);
}

ALWAYS vi dot4(vi acc, vi x, vi w) {
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)w);
#else
    __m256i pairs = _mm256_maddubs_epi16((__m256i)x, (__m256i)w);
    return acc + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

ALWAYS void tile_int8(const int rows, const int panels, const char *const *x, const char *weight,
                      size_t panel, int columns, Ahead ahead, int32_t *out) {
    vi acc[MOST_ROWS][MOST_PANELS][PARTS];
    EACH(r, rows) EACH(p, panels) EACH(h, PARTS) acc[r][p][h] = (vi){0};
    int wait = 1;
    for (int k = 0; k < columns / 4; k++) {
        ASK_AHEAD()
        vi w[MOST_PANELS][PARTS];
        EACH(p, panels) EACH(h, PARTS)
            w[p][h] = load_bits(weight + p * panel + (size_t)k * 64 + h * VL * 4);
        EACH(r, rows) {
            vi each = ((const int32_t *)x[r])[k] - (vi){0};
            EACH(p, panels) EACH(h, PARTS) acc[r][p][h] = dot4(acc[r][p][h], each, w[p][h]);
        }
    }
    EACH(p, panels) EACH(r, rows) EACH(h, PARTS)
        memcpy(out + (p * rows + r) * LANES + h * VL, &acc[r][p][h], sizeof(vi));
}

#define TILE(kind, r, p) tile_##kind(r, p, x, weight, panel, columns, ahead, out)
#define TILES(kind, type, result)                                                                  \
    static void some_##kind(int rows, int panels, const type *const *x, const char *weight,        \
                            size_t panel, int columns, Ahead ahead, result *out) {                 \
        if (rows == 1 && panels == 4) TILE(kind, 1, 4);                                            \
        else if (rows == 1 && panels == 2) TILE(kind, 1, 2);                                       \
        else if (rows == 1) TILE(kind, 1, 1);                                                      \
        else if (rows == 2 && panels == 2) TILE(kind, 2, 2);                                       \
        else if (rows == 2) TILE(kind, 2, 1);                                                      \
        else if (rows == 4 && panels == 2) TILE(kind, 4, 2);                                       \
        else if (rows == 4) TILE(kind, 4, 1);                                                      \
        TALL_TILES(kind)                                                                           \
    }
#if VL == 16
#define TALL_TILES(kind)                                                                           \
    else if (rows == 8 && panels == 2) TILE(kind, 8, 2);                                           \
    else TILE(kind, 8, 1);
#else
#define TALL_TILES(kind) else TILE(kind, 6, 1);
#endif

TILES(float, float, float)
TILES(bf16, char, float)
TILES(int8, char, int32_t)

/* Return how many panels a tile of so many rows has at most. */
static inline int most_panels(int rows) {
#if VL == 16
    return rows == 1 ? 4 : 2;
#else
    return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#endif
}

/* Return how many of so many rows the next tile has; 8 are 4 and 4, not 6 and 2. */
static inline int tile_rows(int rows) {
#if VL == 16
    int some = 8;
#else
    if (rows >= MOST_ROWS && rows != 8) return MOST_ROWS;
    int some = 4;
#endif
    while (some > rows) some /= 2;
    return some;
}

/* Multiply rows from `first` on with panels from `panel` on; out float [panels][rows][16]. */
static void multiply_tile(const Matrix *m, Input in, int first, int rows, int panel, int panels,
                          Ahead ahead, float *out) {
    const char *x[MOST_ROWS];
    for (int r = 0; r < rows; r++) x[r] = in.rows + in.stride * (first + r);
    const char *weight = (const char *)m->weight + panel_bytes(m) * panel;
    size_t step = panel_bytes(m);
    if (m->kind == FLOAT32)
        some_float(rows, panels, (const float *const *)x, weight, step, m->padded, ahead, out);
    else if (m->kind == BFLOAT16)
        some_bf16(rows, panels, x, weight, step, m->padded, ahead, out);
    else {
        int32_t *whole = (int32_t *)out;
        some_int8(rows, panels, x, weight, step, m->padded, ahead, whole);
        for (int p = 0; p < panels; p++) {
            const float *scale = m->scale + (panel + p) * LANES;
            const int32_t *sums = m->sums + (panel + p) * LANES;
            for (int r = 0; r < rows; r++) {
                int32_t *from = whole + (p * rows + r) * LANES;
                float *to = out + (p * rows + r) * LANES, by = in.scale[first + r];
                for (int i = 0; i < LANES; i++)
                    to[i] = (float)(from[i] - OFFSET * sums[i]) * scale[i] * by;
            }
        }
    }
    if (m->bias)
        for (int p = 0; p < panels; p++)
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < LANES; i++)
                    out[(p * rows + r) * LANES + i] += m->bias[(panel + p) * LANES + i];
}

/* What becomes of products: kept, added to what is there, or half of them gates of the others. */
enum { KEEP, ADD, GATE };

static void put_tile(int use, int rounds, const float *tile, int first, int rows, int panel,
                     int panels, float *out, int stride) {
    if (use == GATE) {
        for (int p = 0; p < panels; p += 2)
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < LANES; i += VL) {
                    vf gate = rounded(load(tile + (p * rows + r) * LANES + i), rounds);
                    vf up = rounded(load(tile + ((p + 1) * rows + r) * LANES + i), rounds);
                    vf open = rounded(gate / (1.0f + exponential(-gate)), rounds);
                    store(out + (size_t)(first + r) * stride + (panel + p) / 2 * LANES + i,
                          rounded(open * up, rounds));
                }
        return;
    }
    for (int p = 0; p < panels; p++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < LANES; i += VL) {
                float *to = out + (size_t)(first + r) * stride + (panel + p) * LANES + i;
                vf product = rounded(load(tile + (p * rows + r) * LANES + i), rounds);
                store(to, use == ADD ? rounded(load(to) + product, rounds) : product);
            }
}

/* Multiply a thread's input rows with its share of a matrix's panels; out is everybody's. */
static void multiply(Thread *t, const Matrix *m, Input in, int rows, int use, int rounds, float *out,
                     int stride) {
    float *tile = reserve(&t->tile, sizeof(float) * MOST_PANELS * MOST_ROWS * LANES);
    if (!tile || !in.rows) return;
    int panels = num_panels(m), chunk = MOST_PANELS, groups = 0;
    for (int first = 0; first < rows; first += tile_rows(rows - first)) groups++;
    int step = most_panels(tile_rows(rows)), in_pairs = use == GATE && step < 2;
    if (in_pairs) step = 2;
    const size_t bytes = panel_bytes(m);
    const int others = atomic_load_explicit(&team.size, memory_order_relaxed) - 1;
    for (int begin; (begin = take(chunk)) < panels;) {
        int end = begin + chunk < panels ? begin + chunk : panels;
        for (int p = begin, few; p < end; p += few) {
            for (few = step; few > end - p;) few /= 2;
            /* Behind these panels come this thread's next ones, if all threads are as quick. */
            int next = p + few < end ? p + few : end + others * chunk;
            if (next + few > panels) next = p;
            for (int first = 0, group = 0, some; first < rows; first += some, group++) {
                some = tile_rows(rows - first);
                Ahead ahead = {(const char *)m->weight + bytes * p + AHEAD, 1};
                if (groups > 1)
                    ahead = (Ahead){(const char *)m->weight + bytes * next +
                                        bytes / 64 * group / groups * 64,
                                    groups};
                if (in_pairs) {
                    multiply_tile(m, in, first, some, p, 1, ahead, tile);
                    ahead.from += bytes;
                    multiply_tile(m, in, first, some, p + 1, 1, ahead, tile + some * LANES);
                } else
                    multiply_tile(m, in, first, some, p, few, ahead, tile);
                put_tile(use, rounds, tile, first, some, p, few, out, stride);
            }
        }
    }
}
