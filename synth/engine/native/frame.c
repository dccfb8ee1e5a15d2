/* Whole frames of all streams: slow AR, draws, fast AR. The specification is `decode.py`. */
#include "convolution.h"
#include "sampler.h"

#define WINDOW 10

typedef struct {
    Matrix qkv, out, gate_up, down;
    const float *attention_norm, *ffn_norm;
    const float *head_norm; /* [heads + key heads][head_dim] or NULL */
} Layer;

typedef struct {
    int32_t num_layers, width, hidden;
    Attending attending;
    const Layer *layers;
    const float *norm;
    Matrix head;
} Stack;

typedef struct {
    const Stack *slow, *fast;
    const Matrix *project_in;  /* from the slow AR's width to the fast AR's, or NULL */
    const void *token_table;   /* [vocabulary][width], and of the codes of all codebooks: */
    const void *columns_table; /* [codebooks * codebook size][width] */
    const void *codes_table;   /* [codebook size][width of the fast AR] */
    const int64_t *tokens;     /* of the rows of the slow AR's head */
    int64_t semantic_begin, semantic_end;
    int32_t tables_are_bf16, num_codebooks, codebook_size;
} Model;

/* One call. Shapes: B streams, K codebooks; all rows contiguous. */
typedef struct {
    const Model *model;
    int32_t streams, threads;
    const int64_t *newest;    /* [B][1 + K], the columns to be run through the slow AR */
    const int64_t *position;  /* [B], where the slow AR writes */
    const int64_t *prefix;    /* [B], which copied prefix a stream began with, or 0, */
    const int64_t *prefix_positions; /* and how long it is */
    Cache cache, frame_cache;
    const float *temperature, *top_p;
    const int64_t *top_k, *frame, *window;
    const int64_t *seed, *noise_offset; /* [B]; frames' noise is counted from the offset on */
    float *states;            /* [B][width] */
    int64_t *first, *second;  /* [B] */
    int64_t *columns;         /* [B][1 + K], a token and its codes */
    uint8_t *is_finite;       /* [B] */
} Frame;

/* Memory that all threads of a job share; reserved by the first one. */
static struct {
    Buffer x, joined, mixed, act, logits, numbers;
    int is_whole; /* told before all meet: every thread goes on, or none does */
} shared;

static inline int64_t *codes_of(const Frame *f, int stream) {
    return f->columns + (size_t)stream * (1 + f->model->num_codebooks) + 1;
}

static inline int padded(int size) { return (size + LANES - 1) / LANES * LANES; }

static void norm_row(const float *x, const float *weight, float eps, int size, int rounds, float *to) {
    vf squares = {0};
    int i = 0;
    float total = 0;
    for (; i + VL <= size; i += VL) squares += load(x + i) * load(x + i);
    for (; i < size; i++) total += x[i] * x[i];
    float inverse = 1.0f / sqrtf((total + sum(squares)) / size + eps);
    for (i = 0; i + VL <= size; i += VL)
        store(to + i, rounded(rounded(load(x + i) * inverse, rounds) * load(weight + i), rounds));
    for (; i < size; i++)
        to[i] = rounded_1(rounded_1(x[i] * inverse, rounds) * weight[i], rounds);
}

/* Prepare rows, `step` apart in x, for a matrix; normalised where there is a weight. */
static Input prepare(Thread *t, const Matrix *m, const float *x, int step, int rows,
                     const float *weight, float eps, int rounds, float *states) {
    Input in = open_input(t, m, rows);
    float *row = reserve(&t->row, sizeof(float) * padded(m->columns));
    if (!row || !in.rows) return in;
    for (int r = 0; r < rows; r++) {
        const float *from = x + (size_t)r * step;
        if (weight) norm_row(from, weight, eps, m->columns, rounds, row);
        put_row(m, in, r, weight ? row : from);
        if (states && t->index == 0)
            memcpy(states + (size_t)r * m->columns, weight ? row : from, sizeof(float) * m->columns);
    }
    return in;
}

/* Run x [streams' count * span][padded width] through all layers, in place. */
static void run_layers(Thread *t, const Stack *s, Cache cache, Streams streams, float *x) {
    const Attending *a = &s->attending;
    int rows = streams.count * streams.span, width = padded(s->width), rounds = a->rounds;
    int joined = padded((a->heads + 2 * a->kv_heads) * a->head_dim);
    int mixed = padded(a->heads * a->head_dim), hidden = padded(s->hidden);
    for (int l = 0; l < s->num_layers; l++) {
        const Layer *layer = &s->layers[l];
        float *to = shared.joined.bytes, *heads = shared.mixed.bytes, *act = shared.act.bytes;
        Input in = prepare(t, &layer->qkv, x, width, rows, layer->attention_norm, a->eps, rounds, NULL);
        multiply(t, &layer->qkv, in, rows, KEEP, rounds, to, joined);
        meet();
        attend_rows(t, a, layer->head_norm, cache, l, streams, to, joined, heads, mixed);
        meet();
        in = prepare(t, &layer->out, heads, mixed, rows, NULL, 0, rounds, NULL);
        multiply(t, &layer->out, in, rows, ADD, rounds, x, width);
        meet();
        in = prepare(t, &layer->gate_up, x, width, rows, layer->ffn_norm, a->eps, rounds, NULL);
        multiply(t, &layer->gate_up, in, rows, GATE, rounds, act, hidden);
        meet();
        in = prepare(t, &layer->down, act, hidden, rows, NULL, 0, rounds, NULL);
        multiply(t, &layer->down, in, rows, ADD, rounds, x, width);
        meet();
    }
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Find for each stream the first one that began with the same prefix, and how much they share. */
static void find_sources(const Frame *f, int64_t *source) {
    int64_t *alike = source + f->streams;
    for (int b = 0; b < f->streams; b++) {
        int first = 0;
        while (f->prefix[first] != f->prefix[b]) first++;
        source[b] = first;
        alike[b] = first < b && f->prefix[b] ? f->prefix_positions[b] : 0;
    }
}

static Streams slow_streams(const Frame *f) {
    const int64_t *source = shared.numbers.bytes;
    return (Streams){f->streams, 1, f->position, source, source + f->streams};
}

/* Reserve what the threads share; return whether there was room for it. */
static int share_all(Thread *t, const Frame *f) {
    const Stack *both[2] = {f->model->slow, f->model->fast};
    size_t x = 0, joined = 0, mixed = 0, act = 0, logits = 0, rows = f->streams;
    for (int i = 0; i < 2; i++) {
        const Attending *a = &both[i]->attending;
        size_t some = rows * (i + 1); /* a frame begins with two positions of the fast AR */
        x = larger(x, some * padded(both[i]->width));
        joined = larger(joined, some * padded((a->heads + 2 * a->kv_heads) * a->head_dim));
        mixed = larger(mixed, some * padded(a->heads * a->head_dim));
        act = larger(act, some * padded(both[i]->hidden));
        logits = larger(logits, rows * padded(both[i]->head.rows));
    }
    const size_t numbers[] = {x, joined, mixed, act, logits, rows * 4};
    Buffer *buffers[] = {&shared.x,   &shared.joined, &shared.mixed,
                         &shared.act, &shared.logits, &shared.numbers};
    if (t->index == 0) {
        shared.is_whole = 1;
        for (int i = 0; i < 6; i++)
            if (!reserve(buffers[i], sizeof(float) * numbers[i])) shared.is_whole = 0;
        if (shared.is_whole) find_sources(f, shared.numbers.bytes);
    }
    meet();
    return shared.is_whole;
}

static Noise noise_of(const Frame *f, int stream, int draw) {
    return find_noise(f->seed[stream], f->frame[stream] + f->noise_offset[stream], draw);
}

static void draw_first(const Frame *f) {
    const Model *m = f->model;
    int rows = m->slow->head.rows, stride = padded(rows);
    Candidates found;
    for (int b; (b = take(1)) < f->streams;) {
        find_candidates((float *)shared.logits.bytes + (size_t)b * stride, rows, (int)f->top_k[b],
                        &found);
        int one = draw(&found, f->temperature[b], f->top_p[b], f->top_k[b], noise_of(f, b, 0),
                       m->tokens);
        int other = draw(&found, 1.0f, 0.9f, f->top_k[b], noise_of(f, b, 1), m->tokens);
        int64_t token = m->tokens[found.row[one]];
        f->first[b] = token;
        f->second[b] = m->tokens[found.row[other]];
        int semantic = token >= m->semantic_begin && token <= m->semantic_end, repeated = 0;
        for (int i = 0; i < WINDOW; i++) repeated |= f->window[b * WINDOW + i] == token;
        if (f->frame[b] && semantic && repeated) token = f->second[b];
        codes_of(f, b)[-1] = token;
        int64_t code = token - m->semantic_begin;
        code = code < 0 ? 0 : code;
        codes_of(f, b)[0] = code < m->codebook_size ? code : m->codebook_size - 1;
        f->is_finite[b] = (uint8_t)found.is_finite;
    }
}

static void draw_code(const Frame *f, int codebook) {
    const Model *m = f->model;
    int rows = m->fast->head.rows, stride = padded(rows);
    Candidates found;
    for (int b; (b = take(1)) < f->streams;) {
        find_candidates((float *)shared.logits.bytes + (size_t)b * stride, rows, (int)f->top_k[b],
                        &found);
        int one = draw(&found, f->temperature[b], f->top_p[b], f->top_k[b],
                       noise_of(f, b, codebook + 1), NULL);
        codes_of(f, b)[codebook] = found.row[one];
        f->is_finite[b] &= (uint8_t)found.is_finite;
    }
}

static void embed(const Model *m, const void *table, int64_t row, int width, float *to) {
    if (!m->tables_are_bf16) {
        memcpy(to, (const float *)table + row * width, sizeof(float) * width);
        return;
    }
    const uint16_t *from = (const uint16_t *)table + row * width;
    for (int i = 0; i < width; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, 4);
    }
}

/* Embed a column [1 + K]: codes count only beside a semantic token; there the sum is scaled. */
static void embed_column(Thread *t, const Model *m, const int64_t *column, float *to) {
    int width = m->slow->width, rounds = m->slow->attending.rounds;
    float *row = reserve(&t->row, sizeof(float) * 2 * padded(width)), *audio = row + padded(width);
    embed(m, m->token_table, column[0], width, to);
    if (!row || column[0] < m->semantic_begin || column[0] > m->semantic_end) return;
    memset(audio, 0, sizeof(float) * width);
    for (int k = 0; k < m->num_codebooks; k++) {
        embed(m, m->columns_table, column[1 + k] + (int64_t)k * m->codebook_size, width, row);
        for (int i = 0; i < width; i++) audio[i] += row[i];
    }
    float scale = (float)sqrt(m->num_codebooks + 1);
    for (int i = 0; i < width; i++)
        to[i] = rounded_1(rounded_1(to[i] + rounded_1(audio[i], rounds), rounds) / scale, rounds);
}

/* Put what the fast AR begins with into x: states, projected if need be, beside first codes. */
static void begin_fast(Thread *t, const Frame *f, float *x) {
    const Model *m = f->model;
    int width = m->fast->width, stride = padded(width), wide = m->slow->width;
    if (m->project_in) {
        Input in = prepare(t, m->project_in, f->states, wide, f->streams, NULL, 0, 0, NULL);
        multiply(t, m->project_in, in, f->streams, KEEP, m->fast->attending.rounds, x, 2 * stride);
        meet();
    }
    for (int b; (b = take(1)) < f->streams;) {
        float *row = x + (size_t)b * 2 * stride;
        if (!m->project_in) memcpy(row, f->states + (size_t)b * wide, sizeof(float) * wide);
        memset(row + width, 0, sizeof(float) * (stride - width));
        memset(row + stride + width, 0, sizeof(float) * (stride - width));
        embed(m, m->codes_table, codes_of(f, b)[0], width, row + stride);
    }
    meet();
}

static void make_frame(Thread *t, void *given) {
    const Frame *f = given;
    const Model *m = f->model;
    const Stack *slow = m->slow, *fast = m->fast;
    if (!share_all(t, f)) return;
    float *x = shared.x.bytes, *logits = shared.logits.bytes;
    int width = padded(slow->width), rounds = slow->attending.rounds;
    for (int b; (b = take(1)) < f->streams;) {
        embed_column(t, m, f->newest + (size_t)b * (1 + m->num_codebooks), x + (size_t)b * width);
        memset(x + (size_t)b * width + slow->width, 0, sizeof(float) * (width - slow->width));
    }
    meet();
    run_layers(t, slow, f->cache, slow_streams(f), x);
    Input in = prepare(t, &slow->head, x, width, f->streams, slow->norm, slow->attending.eps, rounds,
                       f->states);
    multiply(t, &slow->head, in, f->streams, KEEP, rounds, logits, padded(slow->head.rows));
    meet();
    draw_first(f);
    meet();
    begin_fast(t, f, x);
    int stride = padded(fast->width);
    int64_t *place = shared.numbers.bytes;
    rounds = fast->attending.rounds;
    for (int codebook = 1; codebook < m->num_codebooks; codebook++) {
        int span = codebook == 1 ? 2 : 1;
        if (codebook > 1)
            for (int b; (b = take(1)) < f->streams;)
                embed(m, m->codes_table, codes_of(f, b)[codebook - 1], fast->width,
                      x + (size_t)b * stride);
        if (t->index == 0)
            for (int b = 0; b < f->streams; b++) place[b] = codebook == 1 ? 0 : codebook;
        meet();
        run_layers(t, fast, f->frame_cache, (Streams){f->streams, span, place, NULL, NULL}, x);
        in = prepare(t, &fast->head, x + (size_t)(span - 1) * stride, span * stride, f->streams,
                     fast->norm, fast->attending.eps, rounds, NULL);
        multiply(t, &fast->head, in, f->streams, KEEP, rounds, logits, padded(fast->head.rows));
        meet();
        draw_code(f, codebook);
        meet();
    }
}

/* Make a frame; return 0, or 1 where memory ran out. */
int tts_make_frame(Frame *f) { return run_together(make_frame, f, f->threads); }

typedef struct {
    const Matrix *matrix;
    const float *x;
    float *out;
    int64_t rows;
    int32_t use, rounds;
} Product;

#define ROWS_AT_ONCE 512

static void multiply_rows(Thread *t, void *given) {
    const Product *p = given;
    int columns = p->matrix->columns, stride = padded(p->matrix->rows) / (p->use == GATE ? 2 : 1);
    for (int64_t begin = 0; begin < p->rows; begin += ROWS_AT_ONCE) {
        int rows = (int)(p->rows - begin < ROWS_AT_ONCE ? p->rows - begin : ROWS_AT_ONCE);
        Input in = prepare(t, p->matrix, p->x + begin * columns, columns, rows, NULL, 0, 0, NULL);
        multiply(t, p->matrix, in, rows, p->use, p->rounds, p->out + begin * stride, stride);
        meet();
    }
}

/* Multiply float32 rows [rows][columns] into out [rows][outputs padded to 16], or half as many. */
int tts_multiply(const Matrix *matrix, const float *x, int64_t rows, float *out, int32_t use,
                 int32_t rounds, int32_t threads) {
    Product product = {matrix, x, out, rows, use, rounds};
    return run_together(multiply_rows, &product, threads);
}

/* Take the threads of an OpenMP library that is loaded already: GOMP_parallel, omp_get_thread_num
 * and omp_get_num_threads. Without them every job has one thread. */
void tts_use_threads(void *start, void *index, void *count) {
    openmp.start = (void (*)(void (*)(void *), void *, unsigned, unsigned))start;
    openmp.index = (int (*)(void))index;
    openmp.count = (int (*)(void))count;
}

/* What this was compiled for, and the sizes that Python's structures must have. */
int tts_lanes(void) { return VL; }
int tts_sizes(int32_t *sizes) {
    sizes[0] = sizeof(Matrix), sizes[1] = sizeof(Layer), sizes[2] = sizeof(Stack);
    sizes[3] = sizeof(Model), sizes[4] = sizeof(Frame), sizes[5] = sizeof(Convolution);
    return 0;
}
