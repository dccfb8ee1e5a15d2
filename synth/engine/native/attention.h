/* Attention of the rows of a step over caches of keys and values in float32. */
#pragma once

#include "matrix.h"

/* Caches [layers, streams, key heads, positions, head_dim]; strides in numbers. */
typedef struct {
    float *keys, *values;
    int64_t layer_stride, stream_stride, head_stride;
} Cache;

typedef struct {
    int32_t heads, kv_heads, head_dim;
    int32_t rounds;        /* results to bfloat16 */
    int32_t rounds_scores; /* and scores and shares too */
    float eps;
    const float *rope; /* [positions, head_dim / 2, 2], cos and sin */
} Attending;

/* Normalise one head where there is a weight, and turn it; from and to may be the same. */
static void turn_head(const Attending *a, const float *from, const float *weight, int64_t position,
                      float *to) {
    int size = a->head_dim;
    float inverse = 1.0f;
    if (weight) {
        float squares = 0;
        for (int i = 0; i < size; i++) squares += from[i] * from[i];
        inverse = 1.0f / sqrtf(squares / size + a->eps);
    }
    const float *turn = a->rope + position * size;
    for (int i = 0; i < size; i += 2) {
        float x = from[i], y = from[i + 1];
        if (weight) {
            x = rounded_1(x * inverse * weight[i], a->rounds);
            y = rounded_1(y * inverse * weight[i + 1], a->rounds);
        }
        float cosine = turn[i], sine = turn[i + 1];
        to[i] = rounded_1(x * cosine - y * sine, a->rounds);
        to[i + 1] = rounded_1(x * sine + y * cosine, a->rounds);
    }
}

ALWAYS float dot(const float *x, const float *y, int size) {
    vf acc = {0};
    int i = 0;
    for (; i + VL <= size; i += VL) acc += load(x + i) * load(y + i);
    float total = i ? sum(acc) : 0;
    for (; i < size; i++) total += x[i] * y[i];
    return total;
}

/* Add the positions of a block, weighted by shares, to an output [head_dim]. */
ALWAYS void add_values(const float *shares, const float *values, int count, int size, float *out) {
    int i = 0;
    for (; i + 4 * VL <= size; i += 4 * VL) {
        vf a = load(out + i), b = load(out + i + VL), c = load(out + i + 2 * VL),
           d = load(out + i + 3 * VL);
        for (int j = 0; j < count; j++) {
            const float *v = values + (size_t)j * size + i;
            vf share = all(shares[j]);
            a += share * load(v);
            b += share * load(v + VL);
            c += share * load(v + 2 * VL);
            d += share * load(v + 3 * VL);
        }
        store(out + i, a), store(out + i + VL, b), store(out + i + 2 * VL, c);
        store(out + i + 3 * VL, d);
    }
    for (; i + VL <= size; i += VL) {
        vf a = load(out + i);
        for (int j = 0; j < count; j++) a += all(shares[j]) * load(values + (size_t)j * size + i);
        store(out + i, a);
    }
    for (; i < size; i++)
        for (int j = 0; j < count; j++) out[i] += shares[j] * values[(size_t)j * size + i];
}

/* Turn scores [count] into shares; return what the shares are still to be divided by. */
static float to_shares(float *scores, int count, int rounds) {
    int padded = (count + VL - 1) / VL * VL;
    for (int i = count; i < padded; i++) scores[i] = -INFINITY;
    vf most = load(scores);
    for (int i = VL; i < padded; i += VL) {
        vf each = load(scores + i);
        most = choose(each > most, each, most);
    }
    float peak = largest(most);
    vf total = {0};
    for (int i = 0; i < padded; i += VL) {
        vf share = exponential(load(scores + i) - peak);
        total += share;
        store(scores + i, share);
    }
    float all_shares = sum(total);
    if (!rounds) return all_shares;
    for (int i = 0; i < count; i++) scores[i] = to_bf16_1(scores[i] / all_shares);
    return 1.0f;
}

#define BLOCK 32 /* positions whose keys or values stay near while every query head reads them */

/* Positions of one key head that lie one behind the other, from `begin` to `end`. */
typedef struct {
    const float *keys, *values;
    int begin, end;
} Part;

/* Let the query heads of one key head of one stream attend, at one position, to `parts` in turn. */
static void attend(const Attending *a, float *queries, float *scores, int room, const Part parts[2],
                   float *mixed) {
    int group = a->heads / a->kv_heads, size = a->head_dim, count = parts[1].end;
    float scale = 1.0f / sqrtf((float)size);
    if (!a->rounds_scores)
        for (int i = 0; i < group * size; i++) queries[i] *= scale;
    for (int p = 0; p < 2; p++)
        for (int begin = parts[p].begin; begin < parts[p].end; begin += BLOCK) {
            int end = begin + BLOCK < parts[p].end ? begin + BLOCK : parts[p].end;
            for (int g = 0; g < group; g++)
                for (int j = begin; j < end; j++)
                    scores[g * room + j] =
                        dot(queries + g * size, parts[p].keys + (size_t)j * size, size);
        }
    float weight[group];
    for (int g = 0; g < group; g++) {
        float *own = scores + g * room;
        if (a->rounds_scores)
            for (int j = 0; j < count; j++)
                own[j] = rounded_1(rounded_1(own[j], a->rounds) * scale, a->rounds);
        weight[g] = to_shares(own, count, a->rounds_scores && a->rounds);
    }
    memset(mixed, 0, sizeof(float) * group * size);
    for (int p = 0; p < 2; p++)
        for (int begin = parts[p].begin; begin < parts[p].end; begin += BLOCK) {
            int some = begin + BLOCK < parts[p].end ? BLOCK : parts[p].end - begin;
            for (int g = 0; g < group; g++)
                add_values(scores + g * room + begin, parts[p].values + (size_t)begin * size, some,
                           size, mixed + g * size);
        }
    for (int g = 0; g < group; g++)
        for (int i = 0; i < size; i++)
            mixed[g * size + i] = rounded_1(mixed[g * size + i] / weight[g], a->rounds);
}

/* The streams of a step. Those that began with copies of one prefix read the same copy of it, that
 * of stream `source`; what is read is equal to the bit, and comes from memory once. */
typedef struct {
    int count, span;         /* positions of each, from `position` on */
    const int64_t *position; /* [count] */
    const int64_t *source;   /* [count], or NULL where each has all of its own */
    const int64_t *alike;    /* [count], positions that `source` has as well */
} Streams;

/* Write keys and values of the streams' positions, and attend from each.
 *
 * joined [count * span][stride] holds queries, keys and values of every row, normalised by
 * head_norm [heads + key heads][head_dim] where there is one; mixed is [count * span][out_stride].
 */
static void attend_rows(Thread *t, const Attending *a, const float *head_norm, Cache cache, int layer,
                        Streams streams, const float *joined, int stride, float *mixed,
                        int out_stride) {
    int size = a->head_dim, group = a->heads / a->kv_heads, span = streams.span;
    int64_t longest = 0;
    for (int b = 0; b < streams.count; b++)
        longest = streams.position[b] > longest ? streams.position[b] : longest;
    int room = (int)(longest + span + 31) / 16 * 16;
    float *scores = reserve(&t->scores, sizeof(float) * ((size_t)group * room + group * size));
    if (!scores) return;
    float *queries = scores + (size_t)group * room;
    /* Head by head, so that what streams share is still near when the next one reads it. */
    for (int task; (task = take(1)) < streams.count * a->kv_heads;) {
        int stream = task % streams.count, head = task / streams.count;
        int64_t layers_place = layer * cache.layer_stride + head * cache.head_stride;
        int64_t place = layers_place + stream * cache.stream_stride, shared_place = place;
        int alike = 0;
        if (streams.source) {
            shared_place = layers_place + streams.source[stream] * cache.stream_stride;
            alike = (int)streams.alike[stream];
        }
        for (int s = 0; s < span; s++) {
            int64_t at = streams.position[stream] + s;
            const float *row = joined + (size_t)(stream * span + s) * stride;
            const float *key = row + (a->heads + head) * size;
            const float *value = row + (a->heads + a->kv_heads + head) * size;
            const float *norm = head_norm ? head_norm + (a->heads + head) * size : NULL;
            turn_head(a, key, norm, at, cache.keys + place + at * size);
            memcpy(cache.values + place + at * size, value, sizeof(float) * size);
            for (int g = 0; g < group; g++) {
                int query = head * group + g;
                turn_head(a, row + query * size, head_norm ? head_norm + query * size : NULL, at,
                          queries + g * size);
            }
            const Part parts[2] = {
                {cache.keys + shared_place, cache.values + shared_place, 0, alike},
                {cache.keys + place, cache.values + place, alike, (int)at + 1},
            };
            attend(a, queries, scores, room, parts,
                   mixed + (size_t)(stream * span + s) * out_stride + head * group * size);
        }
    }
}
