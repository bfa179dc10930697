/* SHA-256 (FIPS 180-4) with a streaming interface.
 *
 * Self-check: the three test vectors of the standard, and equality of any split of a message
 * over several updates with one update.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 64, DIGEST_BYTES = 32 };

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[BLOCK_BYTES];
    size_t filled;
};

static const uint32_t ROUND_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t word, unsigned count) {
    return word >> count | word << (32 - count);
}

static uint32_t load_be32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void store_be32(uint8_t *bytes, uint32_t word) {
    bytes[0] = (uint8_t)(word >> 24);
    bytes[1] = (uint8_t)(word >> 16);
    bytes[2] = (uint8_t)(word >> 8);
    bytes[3] = (uint8_t)word;
}

static void sha256_open(struct sha256 *hash) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, initial, sizeof initial);
    hash->length = 0;
    hash->filled = 0;
}

static void sha256_block(struct sha256 *hash, const uint8_t *block) {
    uint32_t schedule[64];
    uint32_t word[8];
    for (int i = 0; i < 16; i++) {
        schedule[i] = load_be32(block + 4 * i);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t x = schedule[i - 15], y = schedule[i - 2];
        uint32_t s0 = rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3;
        uint32_t s1 = rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10;
        schedule[i] = schedule[i - 16] + s0 + schedule[i - 7] + s1;
    }
    memcpy(word, hash->state, sizeof word);
    for (int i = 0; i < 64; i++) {
        uint32_t a = word[0], e = word[4];
        uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t choice = (e & word[5]) ^ (~e & word[6]);
        uint32_t t1 = word[7] + s1 + choice + ROUND_CONSTANTS[i] + schedule[i];
        uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        uint32_t majority = (a & word[1]) ^ (a & word[2]) ^ (word[1] & word[2]);
        memmove(word + 1, word, 7 * sizeof word[0]);
        word[4] += t1;
        word[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++) {
        hash->state[i] += word[i];
    }
}

static void sha256_update(struct sha256 *hash, const uint8_t *data, size_t size) {
    hash->length += size;
    while (size > 0) {
        size_t take = BLOCK_BYTES - hash->filled;
        if (take > size) {
            take = size;
        }
        memcpy(hash->block + hash->filled, data, take);
        hash->filled += take;
        data += take;
        size -= take;
        if (hash->filled == BLOCK_BYTES) {
            sha256_block(hash, hash->block);
            hash->filled = 0;
        }
    }
}

static void sha256_close(struct sha256 *hash, uint8_t *digest) {
    static const uint8_t padding[BLOCK_BYTES] = {0x80};
    uint8_t length[8];
    uint64_t bits = hash->length * 8;
    store_be32(length, (uint32_t)(bits >> 32));
    store_be32(length + 4, (uint32_t)bits);
    size_t used = hash->filled;
    sha256_update(hash, padding, (used < 56 ? 56 : 120) - used);
    sha256_update(hash, length, sizeof length);
    for (int i = 0; i < 8; i++) {
        store_be32(digest + 4 * i, hash->state[i]);
    }
}

static void hex(const uint8_t *digest, char *text) {
    for (int i = 0; i < DIGEST_BYTES; i++) {
        text[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    text[2 * DIGEST_BYTES] = '\0';
}

static void digest_of(const uint8_t *data, size_t size, size_t piece, uint8_t *digest) {
    struct sha256 hash;
    sha256_open(&hash);
    for (size_t done = 0; done < size; done += piece) {
        sha256_update(&hash, data + done, size - done < piece ? size - done : piece);
    }
    sha256_close(&hash, digest);
}

static int vector_holds(const char *message, size_t repeat, const char *expected) {
    struct sha256 hash;
    uint8_t digest[DIGEST_BYTES];
    char text[2 * DIGEST_BYTES + 1];
    sha256_open(&hash);
    for (size_t i = 0; i < repeat; i++) {
        sha256_update(&hash, (const uint8_t *)message, strlen(message));
    }
    sha256_close(&hash, digest);
    hex(digest, text);
    return strcmp(text, expected) == 0;
}

int main(void) {
    static uint8_t message[10000];
    uint8_t whole[DIGEST_BYTES], pieces[DIGEST_BYTES];
    char text[2 * DIGEST_BYTES + 1];
    int good =
        vector_holds("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") &&
        vector_holds("abc", 1,
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") &&
        vector_holds("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    for (size_t i = 0; i < sizeof message; i++) {
        message[i] = (uint8_t)(i * i >> 3);
    }
    digest_of(message, sizeof message, sizeof message, whole);
    for (size_t piece = 1; piece < 200; piece += 23) {
        digest_of(message, sizeof message, piece, pieces);
        good = good && memcmp(whole, pieces, sizeof whole) == 0;
    }
    if (!good) {
        fprintf(stderr, "sha256: a digest is wrong\n");
        return 1;
    }
    hex(whole, text);
    printf("sha256 %s\n", text);
    return 0;
}
