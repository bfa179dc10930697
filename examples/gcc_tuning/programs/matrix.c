/* Dense matrix kernels over integers modulo a prime: product, transpose, power, elimination.
 *
 * Integers modulo a prime rather than floats, so that every correct build prints the same.
 *
 * Self-check: the blocked product equals the plain one, A * inverse(A) is the identity, and
 * powers of the Fibonacci matrix give Fibonacci numbers.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SIDE_MAX = 48, BLOCK = 8 };

#define PRIME 1000003u

struct matrix {
    unsigned size;
    uint32_t at[SIDE_MAX][SIDE_MAX];
};

static uint32_t multiply_mod(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b % PRIME);
}

static uint32_t power_mod(uint32_t base, uint32_t exponent) {
    uint32_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result = multiply_mod(result, base);
        }
        base = multiply_mod(base, base);
    }
    return result;
}

static void matrix_identity(struct matrix *matrix, unsigned size) {
    memset(matrix, 0, sizeof *matrix);
    matrix->size = size;
    for (unsigned i = 0; i < size; i++) {
        matrix->at[i][i] = 1;
    }
}

static void matrix_random(struct matrix *matrix, unsigned size, uint32_t seed) {
    matrix_identity(matrix, size);
    for (unsigned i = 0; i < size; i++) {
        for (unsigned j = 0; j < size; j++) {
            seed = seed * 1103515245u + 12345u;
            matrix->at[i][j] = (seed >> 8) % PRIME;
        }
    }
}

static int matrix_equal(const struct matrix *a, const struct matrix *b) {
    if (a->size != b->size) {
        return 0;
    }
    for (unsigned i = 0; i < a->size; i++) {
        if (memcmp(a->at[i], b->at[i], a->size * sizeof a->at[i][0]) != 0) {
            return 0;
        }
    }
    return 1;
}

static void product_plain(struct matrix *out, const struct matrix *a, const struct matrix *b) {
    unsigned size = a->size;
    out->size = size;
    for (unsigned i = 0; i < size; i++) {
        for (unsigned j = 0; j < size; j++) {
            uint64_t sum = 0;
            for (unsigned k = 0; k < size; k++) {
                sum += (uint64_t)a->at[i][k] * b->at[k][j];
            }
            out->at[i][j] = (uint32_t)(sum % PRIME);
        }
    }
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

static void product_blocked(struct matrix *out, const struct matrix *a, const struct matrix *b) {
    static uint64_t sums[SIDE_MAX][SIDE_MAX];
    unsigned size = a->size;
    memset(sums, 0, sizeof sums);
    for (unsigned kk = 0; kk < size; kk += BLOCK) {
        for (unsigned jj = 0; jj < size; jj += BLOCK) {
            for (unsigned i = 0; i < size; i++) {
                for (unsigned k = kk; k < least(kk + BLOCK, size); k++) {
                    uint64_t factor = a->at[i][k];
                    for (unsigned j = jj; j < least(jj + BLOCK, size); j++) {
                        sums[i][j] += factor * b->at[k][j];
                    }
                }
            }
        }
    }
    out->size = size;
    for (unsigned i = 0; i < size; i++) {
        for (unsigned j = 0; j < size; j++) {
            out->at[i][j] = (uint32_t)(sums[i][j] % PRIME);
        }
    }
}

static void matrix_transpose(struct matrix *matrix) {
    for (unsigned i = 0; i < matrix->size; i++) {
        for (unsigned j = 0; j < i; j++) {
            uint32_t kept = matrix->at[i][j];
            matrix->at[i][j] = matrix->at[j][i];
            matrix->at[j][i] = kept;
        }
    }
}

static void swap_rows(struct matrix *matrix, unsigned a, unsigned b) {
    uint32_t row[SIDE_MAX];
    memcpy(row, matrix->at[a], sizeof row);
    memcpy(matrix->at[a], matrix->at[b], sizeof row);
    memcpy(matrix->at[b], row, sizeof row);
}

static void scale_row(struct matrix *matrix, unsigned row, uint32_t factor) {
    for (unsigned j = 0; j < matrix->size; j++) {
        matrix->at[row][j] = multiply_mod(matrix->at[row][j], factor);
    }
}

static void subtract_row(struct matrix *matrix, unsigned row, unsigned from, uint32_t factor) {
    for (unsigned j = 0; j < matrix->size; j++) {
        uint32_t part = multiply_mod(matrix->at[row][j], factor);
        matrix->at[from][j] = (matrix->at[from][j] + PRIME - part) % PRIME;
    }
}

/* Gauss-Jordan elimination; returns 0 when the matrix has no inverse. */
static int matrix_inverse(struct matrix *out, const struct matrix *matrix) {
    struct matrix work = *matrix;
    matrix_identity(out, matrix->size);
    for (unsigned column = 0; column < work.size; column++) {
        unsigned pivot = column;
        while (pivot < work.size && work.at[pivot][column] == 0) {
            pivot++;
        }
        if (pivot == work.size) {
            return 0;
        }
        swap_rows(&work, pivot, column);
        swap_rows(out, pivot, column);
        uint32_t factor = power_mod(work.at[column][column], PRIME - 2);
        scale_row(&work, column, factor);
        scale_row(out, column, factor);
        for (unsigned row = 0; row < work.size; row++) {
            if (row != column) {
                factor = work.at[row][column];
                subtract_row(&work, column, row, factor);
                subtract_row(out, column, row, factor);
            }
        }
    }
    return 1;
}

static int fibonacci_holds(void) {
    struct matrix step, power, next;
    uint32_t a = 0, b = 1;
    matrix_identity(&step, 2);
    step.at[0][1] = step.at[1][0] = 1;
    step.at[1][1] = 0;
    matrix_identity(&power, 2);
    for (int n = 0; n < 90; n++) {
        if (power.at[0][1] != a) {
            return 0;
        }
        product_plain(&next, &power, &step);
        power = next;
        uint32_t sum = (a + b) % PRIME;
        a = b;
        b = sum;
    }
    return 1;
}

int main(void) {
    static struct matrix a, b, plain, blocked, inverse, identity;
    uint32_t checksum = 0;
    int good = fibonacci_holds();
    for (unsigned size = 3; size <= SIDE_MAX && good; size += 9) {
        matrix_random(&a, size, size);
        matrix_random(&b, size, size * 7 + 1);
        product_plain(&plain, &a, &b);
        product_blocked(&blocked, &a, &b);
        good = matrix_equal(&plain, &blocked);
        good = good && matrix_inverse(&inverse, &a);
        product_blocked(&blocked, &inverse, &a);
        matrix_identity(&identity, size);
        good = good && matrix_equal(&blocked, &identity);
        matrix_transpose(&plain);
        for (unsigned i = 0; i < size; i++) {
            checksum = checksum * 31u + plain.at[i][size - 1 - i] + inverse.at[i][i];
        }
    }
    if (!good) {
        fprintf(stderr, "matrix: a product or an inverse is wrong\n");
        return 1;
    }
    printf("matrix %08x\n", (unsigned)checksum);
    return 0;
}
