/* Draw tokens: top-p and top-k first, then temperature, then a race with counted noise. */
#pragma once

#include "attention.h"

#define MOST_CANDIDATES 64

/* The best logits of a row, best first; of equal ones the lower row first. */
typedef struct {
    int count;
    float logit[MOST_CANDIDATES];   /* and what they add up to: */
    float upto[MOST_CANDIDATES];    /* the full row's probability of all candidates so far */
    int32_t row[MOST_CANDIDATES];
    int is_finite; /* whether all logits of the row are */
} Candidates;

static void find_candidates(const float *logits, int rows, int most, Candidates *found) {
    int count = 0, whole = rows / VL * VL;
    most = most < 1 ? 1 : most > MOST_CANDIDATES ? MOST_CANDIDATES : most;
    most = most > rows ? rows : most;
    float least = -INFINITY;
    vf total = {0};
    float rest = 0;
    for (int begin = 0; begin < rows; begin += VL) {
        int end = begin + VL < rows ? begin + VL : rows;
        if (begin < whole) {
            vf each = load(logits + begin);
            total += each;
            if (count == most) { /* mostly nothing of a block is good enough */
                vi better = each > least;
#if VL == 16
                if (!_mm512_movepi32_mask((__m512i)better)) continue;
#else
                if (!_mm256_movemask_ps((__m256)better)) continue;
#endif
            }
        } else
            for (int i = begin; i < end; i++) rest += logits[i];
        for (int i = begin; i < end; i++) {
            float logit = logits[i];
            if (count == most && !(logit > least)) continue;
            int at = count < most ? count++ : most - 1;
            while (at > 0 && found->logit[at - 1] < logit) {
                found->logit[at] = found->logit[at - 1];
                found->row[at] = found->row[at - 1];
                at--;
            }
            found->logit[at] = logit;
            found->row[at] = i;
            if (count == most) least = found->logit[most - 1];
        }
    }
    found->count = count;
    found->is_finite = isfinite(sum(total) + rest);
    float peak = found->logit[0], weight = 0;
    vf sums = {0};
    for (int i = 0; i < whole; i += VL) sums += exponential(load(logits + i) - peak);
    weight = sum(sums);
    for (int i = whole; i < rows; i++) weight += expf(logits[i] - peak);
    float upto = 0;
    for (int i = 0; i < count; i++) {
        upto += expf(found->logit[i] - peak) / weight;
        found->upto[i] = upto;
    }
}

static uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    return x ^ (x >> 15);
}

/* Two words, to which the numbers of a draw's candidates are keyed. */
typedef struct {
    uint32_t first, second;
} Noise;

/* Return the noise of one draw of one frame: two words of Philox4x32-10. */
static Noise find_noise(int64_t seed, int64_t frame, int draw) {
    uint32_t a = (uint32_t)frame, b = (uint32_t)(frame >> 32), c = (uint32_t)draw, d = 0;
    uint32_t key = (uint32_t)seed, other_key = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t one = (uint64_t)a * 0xD2511F53u, other = (uint64_t)c * 0xCD9E8D57u;
        a = (uint32_t)(other >> 32) ^ b ^ key, b = (uint32_t)other;
        c = (uint32_t)(one >> 32) ^ d ^ other_key, d = (uint32_t)one;
        key += 0x9E3779B9u, other_key += 0xBB67AE85u;
    }
    return (Noise){a, b};
}

/* Return the rank of the winner. `ids`, where given, names the tokens of rows, as numbers are keyed
 * by tokens. */
static int draw(const Candidates *c, float temperature, float top_p, int64_t top_k, Noise noise,
                const int64_t *ids) {
    float weights[MOST_CANDIDATES], total = 0, peak = 0, best = -1;
    int winner = 0, left = 0;
    if (temperature < 1e-5f) temperature = 1e-5f;
    if (top_p >= 1) top_p = 3; /* none is cut, though a sum of floats may pass 1 */
    for (int i = 0; i < c->count; i++) {
        if (i && (i >= top_k || c->upto[i] > top_p)) continue;
        float scaled = c->logit[i] / temperature;
        if (!left++) peak = scaled;
        weights[i] = expf(scaled - peak);
        total += weights[i];
    }
    for (int i = 0; i < c->count; i++) {
        if (i && (i >= top_k || c->upto[i] > top_p)) continue;
        uint32_t id = (uint32_t)(ids ? ids[c->row[i]] : c->row[i]);
        uint32_t bits = mix(mix(id + noise.first) ^ noise.second) >> 9;
        float uniform = ((float)bits + 0.5f) * 0x1p-23f;
        float time = weights[i] / total / -logf(uniform);
        if (time > best) best = time, winner = i;
    }
    return winner;
}
