/* Vectors of the processor this is compiled for: 16 floats with AVX-512, else 8. */
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)
#define LANES 16 /* columns of a panel of weights, and what every row is padded to */

#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));

#ifdef __AVX512F__
ALWAYS vf load(const float *p) { return (vf)_mm512_loadu_ps(p); }
ALWAYS void store(float *p, vf x) { _mm512_storeu_ps(p, (__m512)x); }
ALWAYS vi load_bits(const void *p) { return (vi)_mm512_loadu_si512(p); }
#else
ALWAYS vf load(const float *p) { return (vf)_mm256_loadu_ps(p); }
ALWAYS void store(float *p, vf x) { _mm256_storeu_ps(p, (__m256)x); }
ALWAYS vi load_bits(const void *p) { return (vi)_mm256_loadu_si256(p); }
#endif

ALWAYS vf root(vf x) {
#ifdef __AVX512F__
    return (vf)_mm512_sqrt_ps((__m512)x);
#else
    return (vf)_mm256_sqrt_ps((__m256)x);
#endif
}

ALWAYS vf all(float x) { return x - (vf){0}; }

ALWAYS float sum(vf x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x);
#else
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#endif
}

/* Whether any lane of a mask, all ones or 0 each, is set. */
ALWAYS int any(vi mask) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#else
    return _mm256_movemask_ps((__m256)mask);
#endif
}

ALWAYS float largest(vf x) {
    float most = x[0];
    for (int i = 1; i < VL; i++) most = x[i] > most ? x[i] : most;
    return most;
}

ALWAYS vf choose(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

/* To the nearest bfloat16, ties to even, as PyTorch rounds. */
ALWAYS vf to_bf16(vf x) {
    vu bits = (vu)x;
    bits += 0x7fffu + ((bits >> 16) & 1u);
    return (vf)(bits & 0xffff0000u);
}

ALWAYS float to_bf16_1(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

ALWAYS vf rounded(vf x, int rounds) { return rounds ? to_bf16(x) : x; }
ALWAYS float rounded_1(float x, int rounds) { return rounds ? to_bf16_1(x) : x; }

/* e to the x within 2 units of the last place; 0 where it is no normal number of float32 any more,
 * infinite above 88.7. */
ALWAYS vf exponential(vf x) {
    const vf low = all(-87.3f), high = all(88.7f);
    vi under = x < low;
    vf bound = choose(x > high, high, choose(under, low, x));
    vf shifted = bound * 1.44269504088896341f + 12582912.0f; /* its low bits are the whole part */
    vi whole = (vi)shifted - 0x4b400000;
    vf count = shifted - 12582912.0f;
    vf rest = bound - count * 0.693359375f;
    rest = rest - count * -2.12194440e-4f;
    vf y = all(1.9875691500e-4f);
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    vf scaled = (vf)((vi)y + (whole << 23));
    scaled = choose(under, all(0.0f), scaled);
    scaled = choose(x > high, all(INFINITY), scaled);
    return choose(x != x, x, scaled);
}
