/* A small LZ77 compressor and its decompressor.
 *
 * Format: a control byte says for each of the next eight items whether it is a literal (1 byte)
 * or a match (3 bytes: distance low, distance high, length - MATCH_MIN).
 *
 * Self-check: decompressing gives back every input, and damaged input is refused, not followed.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    INPUT_MAX = 16384,
    OUTPUT_MAX = INPUT_MAX * 9 / 8 + 16,
    WINDOW = 8192,
    MATCH_MIN = 4,
    MATCH_MAX = MATCH_MIN + 255,
    HASH_BITS = 12,
    CHAIN_MAX = 16
};

struct matcher {
    int32_t head[1 << HASH_BITS];
    int32_t previous[INPUT_MAX];
};

static uint32_t hash4(const uint8_t *data) {
    uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                    (uint32_t)data[3] << 24;
    return word * 2654435761u >> (32 - HASH_BITS);
}

static void matcher_open(struct matcher *matcher) {
    for (size_t i = 0; i < sizeof matcher->head / sizeof matcher->head[0]; i++) {
        matcher->head[i] = -1;
    }
}

static void matcher_add(struct matcher *matcher, const uint8_t *data, size_t position, size_t size) {
    if (position + MATCH_MIN <= size) {
        uint32_t hash = hash4(data + position);
        matcher->previous[position] = matcher->head[hash];
        matcher->head[hash] = (int32_t)position;
    }
}

static size_t match_length(const uint8_t *a, const uint8_t *b, size_t limit) {
    size_t length = 0;
    while (length < limit && a[length] == b[length]) {
        length++;
    }
    return length;
}

/* Return the longest match before `position` and its distance, or 0. */
static size_t matcher_find(const struct matcher *matcher, const uint8_t *data, size_t position,
                           size_t size, size_t *distance) {
    size_t best = 0;
    size_t limit = size - position < MATCH_MAX ? size - position : MATCH_MAX;
    if (limit < MATCH_MIN) {
        return 0;
    }
    int32_t candidate = matcher->head[hash4(data + position)];
    for (int step = 0; step < CHAIN_MAX && candidate >= 0; step++) {
        size_t back = position - (size_t)candidate;
        if (back > WINDOW) {
            break;
        }
        size_t length = match_length(data + candidate, data + position, limit);
        if (length > best) {
            best = length;
            *distance = back;
        }
        candidate = matcher->previous[candidate];
    }
    return best >= MATCH_MIN ? best : 0;
}

static size_t compress(const uint8_t *data, size_t size, uint8_t *out) {
    static struct matcher matcher;
    size_t written = 0;
    size_t control = 0;
    unsigned item = 8;
    matcher_open(&matcher);
    for (size_t position = 0; position < size;) {
        size_t distance = 0;
        size_t length = matcher_find(&matcher, data, position, size, &distance);
        if (item == 8) {
            control = written++;
            out[control] = 0;
            item = 0;
        }
        if (length == 0) {
            out[written++] = data[position];
            length = 1;
        } else {
            out[control] |= (uint8_t)(1u << item);
            out[written++] = (uint8_t)(distance & 255);
            out[written++] = (uint8_t)(distance >> 8);
            out[written++] = (uint8_t)(length - MATCH_MIN);
        }
        item++;
        for (size_t i = 0; i < length; i++) {
            matcher_add(&matcher, data, position++, size);
        }
    }
    return written;
}

/* Return the number of bytes written, or -1 when the input is damaged or `out` too small. */
static long decompress(const uint8_t *data, size_t size, uint8_t *out, size_t capacity) {
    size_t written = 0;
    size_t read = 0;
    while (read < size) {
        unsigned control = data[read++];
        for (unsigned item = 0; item < 8 && read < size; item++) {
            if ((control >> item & 1) == 0) {
                if (written == capacity) {
                    return -1;
                }
                out[written++] = data[read++];
                continue;
            }
            if (size - read < 3) {
                return -1;
            }
            size_t distance = (size_t)data[read] | (size_t)data[read + 1] << 8;
            size_t length = (size_t)data[read + 2] + MATCH_MIN;
            read += 3;
            if (distance == 0 || distance > written || length > capacity - written) {
                return -1;
            }
            for (; length > 0; length--, written++) {
                out[written] = out[written - distance];
            }
        }
    }
    return (long)written;
}

static void make_input(uint8_t *data, size_t size, uint32_t seed, unsigned alphabet) {
    static const char *const words[] = {"basin ", "gate ", "turbine ", "water ",
                                        "sluice ", "stream ", "warm ", "ready\n"};
    size_t position = 0;
    while (position < size) {
        seed = seed * 1664525u + 1013904223u;
        if (alphabet == 0) {
            const char *word = words[seed >> 29];
            while (*word != '\0' && position < size) {
                data[position++] = (uint8_t)*word++;
            }
        } else {
            data[position++] = (uint8_t)((seed >> 16) % alphabet);
        }
    }
}

int main(void) {
    static uint8_t input[INPUT_MAX], packed[OUTPUT_MAX], output[INPUT_MAX];
    static const unsigned alphabets[] = {0, 1, 3, 16, 256};
    uint32_t checksum = 2166136261u;
    for (unsigned round = 0; round < 20; round++) {
        size_t size = (size_t)(round * 797u) % INPUT_MAX;
        make_input(input, size, round + 1, alphabets[round % 5]);
        size_t packed_size = compress(input, size, packed);
        for (size_t i = 0; i < packed_size; i++) {
            checksum = (checksum ^ packed[i]) * 16777619u;
        }
        long unpacked = decompress(packed, packed_size, output, sizeof output);
        if (unpacked != (long)size || memcmp(input, output, size) != 0) {
            fprintf(stderr, "lz: round %u does not come back\n", round);
            return 1;
        }
        if (packed_size > 16) {
            packed[0] = 255; /* the first item can never be a match */
            if (decompress(packed, packed_size, output, sizeof output) != -1) {
                fprintf(stderr, "lz: round %u: damage is not noticed\n", round);
                return 1;
            }
        }
    }
    printf("lz %08x\n", (unsigned)checksum);
    return 0;
}
