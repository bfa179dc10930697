/* A recursive-descent JSON scanner (RFC 8259): validates text and counts what it holds.
 *
 * Self-check: documents with known counts, documents that must be refused, and a generated
 * document whose counts are known from its generation.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 64, TEXT_MAX = 65536 };

struct counts {
    unsigned objects, arrays, strings, numbers, literals, members;
    unsigned depth_max;
    uint32_t checksum;
};

struct scanner {
    const char *at;
    const char *end;
    unsigned depth;
    struct counts counts;
};

static int scan_value(struct scanner *scanner);

static int peek(const struct scanner *scanner) {
    return scanner->at < scanner->end ? (unsigned char)*scanner->at : -1;
}

static void skip_space(struct scanner *scanner) {
    for (;;) {
        switch (peek(scanner)) {
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            scanner->at++;
            break;
        default:
            return;
        }
    }
}

static int accept(struct scanner *scanner, int character) {
    if (peek(scanner) != character) {
        return 0;
    }
    scanner->at++;
    return 1;
}

static void mix(struct scanner *scanner, uint32_t value) {
    scanner->counts.checksum = (scanner->counts.checksum ^ value) * 16777619u;
}

static int hex_value(int character) {
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    if (character >= 'a' && character <= 'f') {
        return character - 'a' + 10;
    }
    if (character >= 'A' && character <= 'F') {
        return character - 'A' + 10;
    }
    return -1;
}

static int scan_escape(struct scanner *scanner) {
    uint32_t code = 0;
    switch (peek(scanner)) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        mix(scanner, (uint32_t)*scanner->at++);
        return 1;
    case 'u':
        scanner->at++;
        for (int i = 0; i < 4; i++) {
            int digit = hex_value(peek(scanner));
            if (digit < 0) {
                return 0;
            }
            code = code << 4 | (uint32_t)digit;
            scanner->at++;
        }
        mix(scanner, code);
        return 1;
    default:
        return 0;
    }
}

static int scan_string(struct scanner *scanner) {
    if (!accept(scanner, '"')) {
        return 0;
    }
    scanner->counts.strings++;
    for (;;) {
        int character = peek(scanner);
        if (character < 0x20) { /* the end of the text, too */
            return 0;
        }
        scanner->at++;
        if (character == '"') {
            return 1;
        }
        if (character == '\\') {
            if (!scan_escape(scanner)) {
                return 0;
            }
        } else {
            mix(scanner, (uint32_t)character);
        }
    }
}

static int scan_digits(struct scanner *scanner) {
    const char *start = scanner->at;
    while (peek(scanner) >= '0' && peek(scanner) <= '9') {
        mix(scanner, (uint32_t)*scanner->at++);
    }
    return scanner->at > start;
}

static int scan_number(struct scanner *scanner) {
    scanner->counts.numbers++;
    accept(scanner, '-');
    if (!accept(scanner, '0') && !scan_digits(scanner)) {
        return 0;
    }
    if (accept(scanner, '.') && !scan_digits(scanner)) {
        return 0;
    }
    if (accept(scanner, 'e') || accept(scanner, 'E')) {
        if (!accept(scanner, '+')) {
            accept(scanner, '-');
        }
        return scan_digits(scanner);
    }
    return 1;
}

static int scan_literal(struct scanner *scanner, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(scanner->end - scanner->at) < length || memcmp(scanner->at, word, length) != 0) {
        return 0;
    }
    scanner->at += length;
    scanner->counts.literals++;
    mix(scanner, (uint32_t)length);
    return 1;
}

static int scan_items(struct scanner *scanner, char close, int keyed) {
    skip_space(scanner);
    if (accept(scanner, close)) {
        return 1;
    }
    do {
        skip_space(scanner);
        if (keyed) {
            scanner->counts.members++;
            if (!scan_string(scanner)) {
                return 0;
            }
            skip_space(scanner);
            if (!accept(scanner, ':')) {
                return 0;
            }
        }
        if (!scan_value(scanner)) {
            return 0;
        }
        skip_space(scanner);
    } while (accept(scanner, ','));
    return accept(scanner, close);
}

static int scan_nested(struct scanner *scanner, char close, int keyed) {
    scanner->at++;
    if (++scanner->depth > DEPTH_MAX) {
        return 0;
    }
    if (scanner->depth > scanner->counts.depth_max) {
        scanner->counts.depth_max = scanner->depth;
    }
    int good = scan_items(scanner, close, keyed);
    scanner->depth--;
    return good;
}

static int scan_value(struct scanner *scanner) {
    skip_space(scanner);
    switch (peek(scanner)) {
    case '{':
        scanner->counts.objects++;
        return scan_nested(scanner, '}', 1);
    case '[':
        scanner->counts.arrays++;
        return scan_nested(scanner, ']', 0);
    case '"':
        return scan_string(scanner);
    case 't':
        return scan_literal(scanner, "true");
    case 'f':
        return scan_literal(scanner, "false");
    case 'n':
        return scan_literal(scanner, "null");
    default:
        return scan_number(scanner);
    }
}

static int scan(const char *text, size_t size, struct counts *counts) {
    struct scanner scanner = {.at = text, .end = text + size};
    int good = scan_value(&scanner);
    skip_space(&scanner);
    *counts = scanner.counts;
    return good && scanner.at == scanner.end;
}

static int refuses_bad_documents(void) {
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\" 1}", "\"open", "01", "1.", "2e+",
                                      "tru", "[1] 2", "\"\\x\"", "\"\\u12g4\"", "{1:2}", "-", "\"\t\""};
    struct counts counts;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (scan(bad[i], strlen(bad[i]), &counts)) {
            fprintf(stderr, "json_scan: accepts %s\n", bad[i]);
            return 0;
        }
    }
    char deep[DEPTH_MAX + 1];
    memset(deep, '[', sizeof deep);
    return !scan(deep, sizeof deep, &counts);
}

static size_t generate(char *text, unsigned records) {
    size_t size = 0;
    text[size++] = '[';
    for (unsigned i = 0; i < records; i++) {
        size += (size_t)snprintf(text + size, TEXT_MAX - size,
                                 "%s{\"id\": %u, \"tag\":\"t\\u00e%x\\n\", \"ok\":%s,\n"
                                 " \"xs\":[-%u.5, 1e%u, []], \"sub\":{\"none\": null}}",
                                 i ? ", " : "", i, i % 16, i % 2 ? "true" : "false", i, i % 30);
    }
    text[size++] = ']';
    return size;
}

int main(void) {
    static char text[TEXT_MAX];
    struct counts counts;
    const unsigned records = 500;
    size_t size = generate(text, records);
    int good = scan(text, size, &counts) && counts.objects == 2 * records &&
               counts.arrays == 1 + 2 * records && counts.strings == 7 * records &&
               counts.numbers == 3 * records && counts.literals == 2 * records &&
               counts.members == 6 * records && counts.depth_max == 4;
    if (!good || !refuses_bad_documents()) {
        fprintf(stderr, "json_scan: the counts are wrong\n");
        return 1;
    }
    for (size_t cut = 0; cut < size; cut += size / 50 + 1) {
        struct counts ignored;
        if (scan(text, cut, &ignored)) {
            fprintf(stderr, "json_scan: accepts a document cut at %zu\n", cut);
            return 1;
        }
    }
    printf("json_scan %zu %08x\n", size, (unsigned)counts.checksum);
    return 0;
}
