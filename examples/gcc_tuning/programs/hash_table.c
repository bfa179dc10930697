/* Open-addressing hash table with string keys: insert, update, delete, grow, iterate.
 *
 * Self-check: a second, much simpler structure (a flat array indexed by the key's number)
 * is kept in step and every key is compared with it at the end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 16, KEYS = 900, ROUNDS = 12000 };

enum slot_state { SLOT_EMPTY = 0, SLOT_USED = 1, SLOT_DELETED = 2 };

struct slot {
    enum slot_state state;
    uint32_t hash;
    uint32_t value;
    char key[KEY_MAX];
};

struct table {
    struct slot *slots;
    size_t capacity; /* a power of two */
    size_t used;
    size_t deleted;
};

static uint32_t hash_of(const char *key) {
    uint32_t hash = 2166136261u;
    for (; *key != '\0'; key++) {
        hash ^= (unsigned char)*key;
        hash *= 16777619u;
    }
    return hash;
}

static int table_open(struct table *table, size_t capacity) {
    table->slots = calloc(capacity, sizeof *table->slots);
    table->capacity = capacity;
    table->used = 0;
    table->deleted = 0;
    return table->slots != NULL;
}

static void table_close(struct table *table) {
    free(table->slots);
    table->slots = NULL;
}

/* Return the slot that holds `key`, or the first one where it may be put. */
static struct slot *table_find(const struct table *table, const char *key, uint32_t hash) {
    size_t mask = table->capacity - 1;
    size_t index = hash & mask;
    struct slot *reusable = NULL;
    for (size_t probe = 1;; probe++) {
        struct slot *slot = &table->slots[index];
        if (slot->state == SLOT_EMPTY) {
            return reusable != NULL ? reusable : slot;
        }
        if (slot->state == SLOT_DELETED) {
            if (reusable == NULL) {
                reusable = slot;
            }
        } else if (slot->hash == hash && strcmp(slot->key, key) == 0) {
            return slot;
        }
        index = (index + probe) & mask; /* triangular numbers visit every slot */
    }
}

static int table_put(struct table *table, const char *key, uint32_t value);

static int table_grow(struct table *table) {
    struct table bigger;
    if (!table_open(&bigger, table->capacity * 2)) {
        return 0;
    }
    for (size_t i = 0; i < table->capacity; i++) {
        const struct slot *slot = &table->slots[i];
        if (slot->state == SLOT_USED && !table_put(&bigger, slot->key, slot->value)) {
            table_close(&bigger);
            return 0;
        }
    }
    table_close(table);
    *table = bigger;
    return 1;
}

static int table_put(struct table *table, const char *key, uint32_t value) {
    if ((table->used + table->deleted + 1) * 4 > table->capacity * 3 && !table_grow(table)) {
        return 0;
    }
    uint32_t hash = hash_of(key);
    struct slot *slot = table_find(table, key, hash);
    if (slot->state != SLOT_USED) {
        table->deleted -= slot->state == SLOT_DELETED;
        table->used++;
        slot->state = SLOT_USED;
        slot->hash = hash;
        strncpy(slot->key, key, KEY_MAX - 1);
        slot->key[KEY_MAX - 1] = '\0';
    }
    slot->value = value;
    return 1;
}

static int table_get(const struct table *table, const char *key, uint32_t *value) {
    const struct slot *slot = table_find(table, key, hash_of(key));
    if (slot->state != SLOT_USED) {
        return 0;
    }
    *value = slot->value;
    return 1;
}

static int table_delete(struct table *table, const char *key) {
    struct slot *slot = table_find(table, key, hash_of(key));
    if (slot->state != SLOT_USED) {
        return 0;
    }
    slot->state = SLOT_DELETED;
    table->used--;
    table->deleted++;
    return 1;
}

static uint32_t next_random(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static int check(const struct table *table, const uint32_t *values, const char *present) {
    size_t count = 0;
    for (unsigned number = 0; number < KEYS; number++) {
        char key[KEY_MAX];
        uint32_t value = 0;
        snprintf(key, sizeof key, "key-%u", number);
        int found = table_get(table, key, &value);
        if (found != present[number] || (found && value != values[number])) {
            fprintf(stderr, "hash_table: %s is wrong\n", key);
            return 0;
        }
        count += (size_t)found;
    }
    return count == table->used;
}

int main(void) {
    static uint32_t values[KEYS];
    static char present[KEYS];
    struct table table;
    uint32_t random = 2463534242u;
    uint32_t checksum = 0;
    if (!table_open(&table, 16)) {
        return 2;
    }
    for (int round = 0; round < ROUNDS; round++) {
        char key[KEY_MAX];
        unsigned number = next_random(&random) % KEYS;
        snprintf(key, sizeof key, "key-%u", number);
        if (next_random(&random) % 3 == 0) {
            if (table_delete(&table, key) != present[number]) {
                return 1;
            }
            present[number] = 0;
        } else {
            values[number] = next_random(&random);
            present[number] = 1;
            if (!table_put(&table, key, values[number])) {
                return 2;
            }
        }
    }
    if (!check(&table, values, present)) {
        return 1;
    }
    for (size_t i = 0; i < table.capacity; i++) {
        if (table.slots[i].state == SLOT_USED) {
            checksum = checksum * 31u + (table.slots[i].hash ^ table.slots[i].value);
        }
    }
    printf("hash_table %zu %08x\n", table.used, (unsigned)checksum);
    table_close(&table);
    return 0;
}
