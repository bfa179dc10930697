/* Parts of the programs to train on. Each begins with a line "//// name", and has a function of that
   name; T is an unsigned type, R float or double, N a size, K an odd number, all chosen by a seed. */

//// bubble
unsigned bubble(unsigned seed) {
    T items[N];
    for (unsigned i = 0; i < N; i++) items[i] = (T)draw(&seed);
    for (unsigned end = N; end > 1; end--)
        for (unsigned i = 1; i < end; i++)
            if (items[i - 1] > items[i]) {
                T kept = items[i];
                items[i] = items[i - 1];
                items[i - 1] = kept;
            }
    unsigned sum = 0;
    for (unsigned i = 0; i < N; i++) sum = sum * K + (unsigned)items[i];
    return sum;
}

//// counts
static const char *const level_names[] = {"none", "few", "some", "many", "most"};
unsigned counts(unsigned seed) {
    unsigned buckets[64] = {0}, sum = 0;
    for (unsigned i = 0; i < N * 8; i++) buckets[draw(&seed) % 64]++;
    for (unsigned i = 0; i < 64; i++) {
        const char *name = level_names[buckets[i] > 4 ? 4 : buckets[i]];
        while (*name) sum = sum * 31 + (unsigned char)*name++;
    }
    return sum;
}

//// checksum
unsigned checksum(unsigned seed) {
    unsigned char bytes[N];
    for (unsigned i = 0; i < N; i++) bytes[i] = (unsigned char)draw(&seed);
    unsigned value = ~0u;
    for (unsigned i = 0; i < N; i++) {
        value ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xedb88000u + K : value >> 1;
    }
    return ~value;
}

//// product
static void multiply(R out[8][8], R left[8][8], R right[8][8]) {
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            R sum = 0;
            for (int k = 0; k < 8; k++) sum += left[i][k] * right[k][j];
            out[i][j] = sum;
        }
}
unsigned product(unsigned seed) {
    R a[8][8], b[8][8], c[8][8];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            a[i][j] = (R)(draw(&seed) % 16);
            b[i][j] = (R)(draw(&seed) % K % 16);
        }
    multiply(c, a, b);
    R trace = 0;
    for (int i = 0; i < 8; i++) trace += c[i][i] - c[i][7 - i] / 2;
    return (unsigned)(int)trace;
}

//// words
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
unsigned words(unsigned seed) {
    char text[N + 1];
    for (unsigned i = 0; i < N; i++) text[i] = "etaoin shrdlu ETAOIN, SHRDLU."[draw(&seed) % 29];
    text[N] = 0;
    unsigned count = 0, longest = 0, length = 0;
    for (char *at = text; *at; at++) {
        if (is_letter(*at)) {
            if (*at >= 'A' && *at <= 'Z') *at += 'a' - 'A';
            length++;
        } else {
            if (length > longest) longest = length;
            if (length) count++;
            length = 0;
        }
    }
    return count * K + longest * 3 + (unsigned)strlen(text);
}

//// list
struct link { T value; struct link *next; };
static struct link *reversed(struct link *list) {
    struct link *done = 0;
    while (list) {
        struct link *next = list->next;
        list->next = done;
        done = list;
        list = next;
    }
    return done;
}
unsigned list(unsigned seed) {
    static struct link pool[N];
    struct link *head = 0;
    for (unsigned i = 0; i < N; i++) {
        pool[i].value = (T)draw(&seed);
        pool[i].next = head;
        head = &pool[i];
    }
    unsigned sum = 0;
    for (struct link *at = reversed(head); at; at = at->next) sum = sum * K ^ (unsigned)at->value;
    return sum;
}

//// tree
struct node { unsigned key; short left, right; };
static struct node nodes[N];
static short insert(short at, short fresh) {
    if (at < 0) return fresh;
    if (nodes[fresh].key < nodes[at].key) nodes[at].left = insert(nodes[at].left, fresh);
    else nodes[at].right = insert(nodes[at].right, fresh);
    return at;
}
static int depth(short at) {
    if (at < 0) return 0;
    int left = depth(nodes[at].left), right = depth(nodes[at].right);
    return 1 + (left > right ? left : right);
}
unsigned tree(unsigned seed) {
    short root = -1;
    for (short i = 0; i < N; i++) {
        nodes[i] = (struct node){draw(&seed) % (K * 8u), -1, -1};
        root = insert(root, i);
    }
    return (unsigned)depth(root) * K + nodes[root].key;
}

//// machine
unsigned machine(unsigned seed) {
    unsigned stack[16], top = 0, done = 0;
    for (unsigned step = 0; step < N * 4; step++) {
        unsigned code = draw(&seed);
        if (top < 2) { stack[top++] = code; continue; }
        switch (code % 9) {
        case 0: stack[top - 2] += stack[top - 1]; top--; break;
        case 1: stack[top - 2] -= stack[top - 1]; top--; break;
        case 2: stack[top - 2] *= stack[top - 1] | 1; top--; break;
        case 3: stack[top - 1] ^= K; break;
        case 4: stack[top - 1] = ~stack[top - 1]; break;
        case 5: stack[top - 1] >>= 3; break;
        case 6: if (top < 16) { stack[top] = stack[top - 1]; top++; } break;
        case 7: done += stack[--top]; break;
        default: if (top < 16) stack[top++] = code; break;
        }
    }
    return done ^ stack[0];
}

//// table
static unsigned keys[256], held[256];
static unsigned *find(unsigned key) {
    unsigned at = key * 2654435761u >> 24;
    while (keys[at] && keys[at] != key) at = (at + 1) % 256;
    keys[at] = key;
    return &held[at];
}
unsigned table(unsigned seed) {
    memset(keys, 0, sizeof keys);
    memset(held, 0, sizeof held);
    for (unsigned i = 0; i < N * 2; i++) *find(draw(&seed) % N + 1) += i * K;
    unsigned sum = 0;
    for (unsigned key = 1; key <= N; key++) sum ^= *find(key) + key;
    return sum;
}

//// sieve
unsigned sieve(unsigned seed) {
    unsigned char crossed[N * 4] = {0};
    unsigned found = 0, last = 0;
    for (unsigned i = 2; i < sizeof crossed; i++) {
        if (crossed[i]) continue;
        found++;
        last = i;
        for (unsigned j = i * i; j < sizeof crossed; j += i) crossed[j] = 1;
    }
    return found * K + last + seed % 7;
}

//// power
static T greatest(T a, T b) { while (b) { T rest = a % b; a = b; b = rest; } return a; }
unsigned power(unsigned seed) {
    unsigned sum = 0;
    for (unsigned i = 0; i < N; i++) {
        unsigned long long base = draw(&seed) % 9973, value = 1;
        for (unsigned n = draw(&seed) % 1000; n; n >>= 1) {
            if (n & 1) value = value * base % 9973;
            base = base * base % 9973;
        }
        sum += (unsigned)value + (unsigned)greatest((T)draw(&seed), (T)(draw(&seed) % K + 1));
    }
    return sum;
}

//// filter
static const signed char taps[] = {1, -4, 9, 23, 9, -4, 1};
unsigned filter(unsigned seed) {
    int in[N + 6], sum = 0;
    short out[N];
    for (unsigned i = 0; i < N + 6; i++) in[i] = (int)(draw(&seed) % 512) - 256;
    for (unsigned i = 0; i < N; i++) {
        int value = 0;
        for (unsigned tap = 0; tap < 7; tap++) value += in[i + tap] * taps[tap];
        out[i] = (short)(value / 32);
    }
    for (unsigned i = 0; i < N; i++) sum += out[i] < 0 ? -out[i] : out[i] * 2;
    return (unsigned)sum * K;
}

//// common
unsigned common(unsigned seed) {
    char a[N], b[N];
    T best[2][N + 1];
    for (unsigned i = 0; i < N; i++) { a[i] = (char)(draw(&seed) % 5); b[i] = (char)(draw(&seed) % 5); }
    memset(best, 0, sizeof best);
    for (unsigned i = 0; i < N; i++)
        for (unsigned j = 0; j < N; j++) {
            T here = best[i & 1][j + 1], there = best[(i + 1) & 1][j];
            if (a[i] == b[j]) best[(i + 1) & 1][j + 1] = (T)(best[i & 1][j] + 1);
            else best[(i + 1) & 1][j + 1] = here > there ? here : there;
        }
    return (unsigned)best[N & 1][N] * K;
}

//// grid
unsigned grid(unsigned seed) {
    signed char open[16][16];
    unsigned char queue[256], steps[16][16] = {{0}};
    for (int y = 0; y < 16; y++) for (int x = 0; x < 16; x++) open[y][x] = draw(&seed) % 10 < 7;
    unsigned head = 0, tail = 0, last = 0;
    queue[tail++] = 0;
    steps[0][0] = 1;
    while (head < tail) {
        int x = queue[head] % 16, y = queue[head] / 16;
        head++;
        last = steps[y][x];
        for (int way = 0; way < 4; way++) {
            int u = x + (way == 0) - (way == 1), v = y + (way == 2) - (way == 3);
            if (u < 0 || v < 0 || u > 15 || v > 15 || !open[v][u] || steps[v][u]) continue;
            steps[v][u] = (unsigned char)(last + 1);
            queue[tail++] = (unsigned char)(v * 16 + u);
        }
    }
    return last * K + tail;
}

//// digits
static int put_number(char *out, unsigned value, unsigned base) {
    char reversed[34];
    int length = 0, written = 0;
    do reversed[length++] = "0123456789abcdefghijklmnop"[value % base]; while (value /= base);
    while (length) out[written++] = reversed[--length];
    out[written] = 0;
    return written;
}
unsigned digits(unsigned seed) {
    char text[40];
    unsigned sum = 0;
    for (unsigned i = 0; i < N; i++) {
        int length = put_number(text, draw(&seed), 2 + i % 24);
        for (int at = 0; at < length; at++) sum = sum * K + (unsigned char)text[at];
    }
    return sum;
}

//// heap
typedef int (*order)(unsigned, unsigned);
static int smaller(unsigned a, unsigned b) { return a < b; }
static int rounder(unsigned a, unsigned b) { return a % K < b % K || (a % K == b % K && a < b); }
static void sift(unsigned *items, unsigned at, unsigned count, order before) {
    for (unsigned child; (child = at * 2 + 1) < count; at = child) {
        if (child + 1 < count && before(items[child + 1], items[child])) child++;
        if (!before(items[child], items[at])) return;
        unsigned kept = items[at];
        items[at] = items[child];
        items[child] = kept;
    }
}
unsigned heap(unsigned seed) {
    unsigned items[N], sum = 0;
    order before = seed & 1 ? smaller : rounder;
    for (unsigned i = 0; i < N; i++) items[i] = draw(&seed);
    for (unsigned i = N / 2; i-- > 0;) sift(items, i, N, before);
    for (unsigned count = N; count > 1;) {
        sum = sum * 33 + items[0];
        items[0] = items[--count];
        sift(items, 0, count, before);
    }
    return sum;
}

//// bits
static T rotated(T value, unsigned by) {
    unsigned width = sizeof(T) * 8;
    by %= width;
    return by ? (T)(value << by | value >> (width - by)) : value;
}
unsigned bits(unsigned seed) {
    unsigned set = 0;
    T value = (T)K;
    for (unsigned i = 0; i < N; i++) {
        value = (T)(rotated(value, i) ^ (T)draw(&seed));
        for (T left = value; left; left &= (T)(left - 1)) set++;
    }
    return set * 31 + (unsigned)value;
}

//// queens
static int place(unsigned row, unsigned columns, unsigned up, unsigned down) {
    if (row == 6) return 1;
    int ways = 0;
    for (unsigned column = 0; column < 6; column++) {
        unsigned c = 1u << column, u = 1u << (row + column), d = 1u << (row + 6 - column);
        if (columns & c || up & u || down & d) continue;
        ways += place(row + 1, columns | c, up | u, down | d);
    }
    return ways;
}
unsigned queens(unsigned seed) { return (unsigned)place(0, 1u << seed % 6, 0, 0) * K + (unsigned)place(0, 0, 0, 0); }

//// shape
struct point { R x, y; };
static R area(const struct point *points, int count) {
    R twice = 0;
    for (int i = 0; i < count; i++) {
        const struct point *a = &points[i], *b = &points[i + 1 == count ? 0 : i + 1];
        twice += a->x * b->y - a->y * b->x;
    }
    return twice < 0 ? -twice : twice;
}
unsigned shape(unsigned seed) {
    struct point points[12];
    R least = 1000;
    for (int i = 0; i < 12; i++) points[i] = (struct point){(R)(draw(&seed) % 64), (R)(draw(&seed) % K % 64)};
    for (int i = 0; i < 12; i++) if (points[i].y < least) least = points[i].y;
    return (unsigned)area(points, 12) * 16 + (unsigned)least;
}

//// runs
static unsigned pack(unsigned char *out, const unsigned char *in, unsigned count) {
    unsigned written = 0;
    for (unsigned i = 0; i < count;) {
        unsigned run = 1;
        while (i + run < count && in[i + run] == in[i] && run < 127) run++;
        if (run > 2) { out[written++] = (unsigned char)(128 + run); out[written++] = in[i]; }
        else for (unsigned j = 0; j < run; j++) out[written++] = in[i] & 127;
        i += run;
    }
    return written;
}
unsigned runs(unsigned seed) {
    unsigned char in[N], out[N * 2];
    for (unsigned i = 0; i < N; i++) in[i] = i && draw(&seed) % 3 ? in[i - 1] : (unsigned char)(draw(&seed) % 128);
    unsigned written = pack(out, in, N), sum = written * K;
    for (unsigned i = 0; i < written; i++) sum = (sum << 1 | sum >> 31) ^ out[i];
    return sum;
}
