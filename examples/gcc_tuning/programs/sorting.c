/* A sorting suite: insertion, shell, heap, merge, quick and radix sort on several inputs.
 *
 * Self-check: each result is in order and a permutation of its input (by sum and by product of
 * shifted values), and the stable sorts keep the order of equal keys.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 700, INPUTS = 6 };

struct item {
    uint32_t key;
    uint32_t order; /* place in the input: tells whether a sort is stable */
};

typedef void (*sorter)(struct item *items, size_t count);

static void swap(struct item *a, struct item *b) {
    struct item kept = *a;
    *a = *b;
    *b = kept;
}

static void sort_insertion(struct item *items, size_t count) {
    for (size_t i = 1; i < count; i++) {
        struct item item = items[i];
        size_t place = i;
        while (place > 0 && items[place - 1].key > item.key) {
            items[place] = items[place - 1];
            place--;
        }
        items[place] = item;
    }
}

static void sort_shell(struct item *items, size_t count) {
    static const size_t gaps[] = {301, 132, 57, 23, 10, 4, 1}; /* Ciura's */
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        size_t gap = gaps[g];
        for (size_t i = gap; i < count; i++) {
            struct item item = items[i];
            size_t place = i;
            while (place >= gap && items[place - gap].key > item.key) {
                items[place] = items[place - gap];
                place -= gap;
            }
            items[place] = item;
        }
    }
}

static void sift_down(struct item *items, size_t root, size_t count) {
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && items[child + 1].key > items[child].key) {
            child++;
        }
        if (items[root].key >= items[child].key) {
            return;
        }
        swap(&items[root], &items[child]);
        root = child;
    }
}

static void sort_heap(struct item *items, size_t count) {
    for (size_t root = count / 2; root-- > 0;) {
        sift_down(items, root, count);
    }
    for (size_t end = count; end > 1; end--) {
        swap(&items[0], &items[end - 1]);
        sift_down(items, 0, end - 1);
    }
}

static void sort_merge(struct item *items, size_t count) {
    static struct item scratch[COUNT];
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t start = 0; start < count; start += 2 * width) {
            size_t middle = start + width < count ? start + width : count;
            size_t end = start + 2 * width < count ? start + 2 * width : count;
            size_t left = start, right = middle;
            for (size_t out = start; out < end; out++) {
                int take_left =
                    left < middle && (right == end || items[left].key <= items[right].key);
                scratch[out] = items[take_left ? left++ : right++];
            }
        }
        memcpy(items, scratch, count * sizeof *items);
    }
}

static void sort_quick(struct item *items, size_t count) {
    while (count > 12) {
        size_t middle = count / 2, last = count - 1;
        if (items[middle].key < items[0].key) {
            swap(&items[middle], &items[0]);
        }
        if (items[last].key < items[0].key) {
            swap(&items[last], &items[0]);
        }
        if (items[last].key < items[middle].key) {
            swap(&items[last], &items[middle]);
        }
        uint32_t pivot = items[middle].key;
        size_t i = 0, j = last;
        for (;;) {
            while (items[i].key < pivot) {
                i++;
            }
            while (items[j].key > pivot) {
                j--;
            }
            if (i >= j) {
                break;
            }
            swap(&items[i++], &items[j--]);
        }
        size_t split = j + 1;
        if (split < count - split) { /* recurse into the smaller half */
            sort_quick(items, split);
            items += split;
            count -= split;
        } else {
            sort_quick(items + split, count - split);
            count = split;
        }
    }
    sort_insertion(items, count);
}

static void sort_radix(struct item *items, size_t count) {
    static struct item scratch[COUNT];
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t start[257] = {0};
        for (size_t i = 0; i < count; i++) {
            start[(items[i].key >> shift & 255) + 1]++;
        }
        for (size_t digit = 0; digit < 256; digit++) {
            start[digit + 1] += start[digit];
        }
        for (size_t i = 0; i < count; i++) {
            scratch[start[items[i].key >> shift & 255]++] = items[i];
        }
        memcpy(items, scratch, count * sizeof *items);
    }
}

static const struct {
    const char *name;
    sorter sort;
    int stable;
} SORTERS[] = {
    {"insertion", sort_insertion, 1}, {"shell", sort_shell, 0}, {"heap", sort_heap, 0},
    {"merge", sort_merge, 1},         {"quick", sort_quick, 0}, {"radix", sort_radix, 1},
};

static void make_input(struct item *items, size_t count, unsigned kind) {
    uint32_t seed = kind + 17;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t number = (uint32_t)i;
        switch (kind) {
        case 0:
            items[i].key = seed;
            break;
        case 1:
            items[i].key = number;
            break;
        case 2:
            items[i].key = (uint32_t)(count - i);
            break;
        case 3:
            items[i].key = 42;
            break;
        case 4:
            items[i].key = (seed >> 16) % 10;
            break;
        default:
            items[i].key = number < count / 2 ? number : (uint32_t)(count - i);
            break;
        }
        items[i].order = number;
    }
}

static uint32_t permutation_mark(const struct item *items, size_t count) {
    uint32_t sum = 0, product = 1;
    for (size_t i = 0; i < count; i++) {
        sum += items[i].key ^ items[i].order * 2654435761u;
        product *= 2 * (items[i].key + items[i].order) + 1;
    }
    return sum ^ product;
}

static int in_order(const struct item *items, size_t count, int stable) {
    for (size_t i = 1; i < count; i++) {
        if (items[i - 1].key > items[i].key) {
            return 0;
        }
        if (stable && items[i - 1].key == items[i].key && items[i - 1].order > items[i].order) {
            return 0;
        }
    }
    return 1;
}

int main(void) {
    static struct item items[COUNT];
    uint32_t checksum = 0;
    for (size_t s = 0; s < sizeof SORTERS / sizeof SORTERS[0]; s++) {
        for (unsigned kind = 0; kind < INPUTS; kind++) {
            size_t count = COUNT - kind * 31;
            make_input(items, count, kind);
            uint32_t mark = permutation_mark(items, count);
            SORTERS[s].sort(items, count);
            if (!in_order(items, count, SORTERS[s].stable) ||
                permutation_mark(items, count) != mark) {
                fprintf(stderr, "sorting: %s fails on input %u\n", SORTERS[s].name, kind);
                return 1;
            }
            for (size_t i = 0; i < count; i++) {
                checksum = checksum * 31u + items[i].key;
            }
        }
    }
    printf("sorting %08x\n", (unsigned)checksum);
    return 0;
}
