/* A calculator for natural numbers of any size, in reverse Polish notation.
 *
 * Numbers are little-endian digits in base 2^32; division goes bit by bit, the way of the pencil.
 *
 * Self-check: known values (50!, powers of 2 and 10), and q * b + r == a with r < b for many
 * divisions.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS_MAX = 48, STACK_MAX = 8, TEXT_MAX = DIGITS_MAX * 10 + 1 };

struct number {
    unsigned length; /* without leading zeros; 0 is zero */
    uint32_t digits[DIGITS_MAX];
};

static void trim(struct number *number) {
    while (number->length > 0 && number->digits[number->length - 1] == 0) {
        number->length--;
    }
}

static void number_set(struct number *number, uint32_t value) {
    number->length = value != 0;
    number->digits[0] = value;
}

static int number_compare(const struct number *a, const struct number *b) {
    if (a->length != b->length) {
        return a->length < b->length ? -1 : 1;
    }
    for (unsigned i = a->length; i-- > 0;) {
        if (a->digits[i] != b->digits[i]) {
            return a->digits[i] < b->digits[i] ? -1 : 1;
        }
    }
    return 0;
}

/* out = a + b; out may be a or b. Returns 0 when the result is too large. */
static int number_add(struct number *out, const struct number *a, const struct number *b) {
    unsigned length = a->length > b->length ? a->length : b->length;
    uint64_t carry = 0;
    for (unsigned i = 0; i < length; i++) {
        carry += i < a->length ? a->digits[i] : 0;
        carry += i < b->length ? b->digits[i] : 0;
        out->digits[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0) {
        if (length == DIGITS_MAX) {
            return 0;
        }
        out->digits[length++] = (uint32_t)carry;
    }
    out->length = length;
    return 1;
}

/* out = a - b where a >= b; out may be a or b. */
static void number_subtract(struct number *out, const struct number *a, const struct number *b) {
    uint64_t borrow = 0;
    for (unsigned i = 0; i < a->length; i++) {
        uint64_t part = (i < b->length ? b->digits[i] : 0) + borrow;
        borrow = a->digits[i] < part;
        out->digits[i] = (uint32_t)(a->digits[i] - part);
    }
    out->length = a->length;
    trim(out);
}

/* out = a * b; out is neither. Returns 0 when the result is too large. */
static int number_multiply(struct number *out, const struct number *a, const struct number *b) {
    if (a->length + b->length > DIGITS_MAX) {
        return 0;
    }
    memset(out->digits, 0, sizeof out->digits);
    for (unsigned i = 0; i < a->length; i++) {
        uint64_t carry = 0;
        for (unsigned j = 0; j < b->length; j++) {
            carry += (uint64_t)a->digits[i] * b->digits[j] + out->digits[i + j];
            out->digits[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        out->digits[i + b->length] = (uint32_t)carry;
    }
    out->length = a->length + b->length;
    trim(out);
    return 1;
}

/* Divide by a small number in place; return the remainder. */
static uint32_t number_divide_small(struct number *number, uint32_t divisor) {
    uint64_t rest = 0;
    for (unsigned i = number->length; i-- > 0;) {
        rest = rest << 32 | number->digits[i];
        number->digits[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    trim(number);
    return (uint32_t)rest;
}

static void shift_in_bit(struct number *number, unsigned bit) {
    uint32_t carry = bit;
    for (unsigned i = 0; i < number->length; i++) {
        uint32_t next = number->digits[i] >> 31;
        number->digits[i] = number->digits[i] << 1 | carry;
        carry = next;
    }
    if (carry != 0) {
        number->digits[number->length++] = carry;
    }
}

/* Long division bit by bit: a = q * b + r, r < b. Returns 0 for division by zero. */
static int number_divide(struct number *q, struct number *r, const struct number *a,
                         const struct number *b) {
    if (b->length == 0 || b->length == DIGITS_MAX) {
        return 0;
    }
    memset(q->digits, 0, sizeof q->digits);
    q->length = a->length;
    number_set(r, 0);
    for (unsigned i = a->length * 32; i-- > 0;) {
        shift_in_bit(r, a->digits[i / 32] >> i % 32 & 1);
        if (number_compare(r, b) >= 0) {
            number_subtract(r, r, b);
            q->digits[i / 32] |= (uint32_t)1 << i % 32;
        }
    }
    trim(q);
    return 1;
}

static void number_text(const struct number *number, char *text) {
    struct number rest = *number;
    char reversed[TEXT_MAX];
    unsigned length = 0;
    do {
        reversed[length++] = (char)('0' + number_divide_small(&rest, 10));
    } while (rest.length > 0);
    for (unsigned i = 0; i < length; i++) {
        text[i] = reversed[length - 1 - i];
    }
    text[length] = '\0';
}

static int apply(char operation, struct number *a, const struct number *b) {
    struct number result, rest;
    switch (operation) {
    case '+':
        return number_add(a, a, b);
    case '-':
        if (number_compare(a, b) < 0) {
            return 0;
        }
        number_subtract(a, a, b);
        return 1;
    case '*':
        if (!number_multiply(&result, a, b)) {
            return 0;
        }
        *a = result;
        return 1;
    case '/':
    case '%':
        if (!number_divide(&result, &rest, a, b)) {
            return 0;
        }
        *a = operation == '/' ? result : rest;
        return 1;
    default:
        return 0;
    }
}

static int push_literal(struct number *number, const char **text) {
    struct number ten, digit, shifted;
    number_set(number, 0);
    number_set(&ten, 10);
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        number_set(&digit, (uint32_t)(**text - '0'));
        if (!number_multiply(&shifted, number, &ten) || !number_add(number, &shifted, &digit)) {
            return 0;
        }
    }
    return 1;
}

/* Evaluate for example "2 3 + 4 *"; returns 0 for what is no expression or too large. */
static int evaluate(const char *text, struct number *result) {
    static struct number stack[STACK_MAX];
    unsigned depth = 0;
    while (*text != '\0') {
        if (*text == ' ') {
            text++;
        } else if (*text >= '0' && *text <= '9') {
            if (depth == STACK_MAX || !push_literal(&stack[depth], &text)) {
                return 0;
            }
            depth++;
        } else {
            if (depth < 2 || !apply(*text++, &stack[depth - 2], &stack[depth - 1])) {
                return 0;
            }
            depth--;
        }
    }
    if (depth != 1) {
        return 0;
    }
    *result = stack[0];
    return 1;
}

static int gives(const char *expression, const char *expected) {
    struct number result;
    char text[TEXT_MAX];
    if (!evaluate(expression, &result)) {
        return expected == NULL;
    }
    number_text(&result, text);
    return expected != NULL && strcmp(text, expected) == 0;
}

static int divisions_hold(uint32_t *checksum) {
    struct number a, b, q, r, product, sum;
    uint32_t seed = 99;
    for (unsigned round = 0; round < 60; round++) {
        a.length = 1 + round % 20;
        b.length = 1 + round % 7;
        for (unsigned i = 0; i < 20; i++) {
            seed = seed * 1664525u + 1013904223u;
            a.digits[i] = seed ^ seed >> 15;
            b.digits[i] = (seed >> 7) + i + 1;
        }
        trim(&a);
        trim(&b);
        if (!number_divide(&q, &r, &a, &b) || !number_multiply(&product, &q, &b) ||
            !number_add(&sum, &product, &r) || number_compare(&sum, &a) != 0 ||
            number_compare(&r, &b) >= 0) {
            return 0;
        }
        *checksum = *checksum * 31u + (r.length ? r.digits[0] : 0) + q.length;
    }
    return 1;
}

static int factorial_holds(void) {
    struct number product, factor, next;
    char text[TEXT_MAX];
    number_set(&product, 1);
    for (uint32_t i = 2; i <= 50; i++) {
        number_set(&factor, i);
        if (!number_multiply(&next, &product, &factor)) {
            return 0;
        }
        product = next;
    }
    number_text(&product, text);
    return strcmp(text, "30414093201713378043612608166064768844377641568960512000000000000") == 0;
}

int main(void) {
    uint32_t checksum = 0;
    int good = gives("2 3 + 4 *", "20") && gives("0 7 *", "0") && gives("5 6 -", NULL) &&
               gives("1 0 /", NULL) && gives("1 +", NULL) && gives("1 2", NULL) &&
               gives("4294967295 1 + 4294967296 *", "18446744073709551616") &&
               gives("340282366920938463463374607431768211456 18446744073709551616 /",
                     "18446744073709551616") &&
               gives("1000000000000000000000000000000 999999999989 %", "121000000") &&
               factorial_holds();
    if (!good || !divisions_hold(&checksum)) {
        fprintf(stderr, "big_integer: a result is wrong\n");
        return 1;
    }
    printf("big_integer %08x\n", (unsigned)checksum);
    return 0;
}
