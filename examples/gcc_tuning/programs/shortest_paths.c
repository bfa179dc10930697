/* Dijkstra's algorithm on a binary heap with decrease-key, on a generated road-like graph.
 *
 * Self-check: no edge can shorten a found distance, each distance is reached by an edge of the
 * tree, and on small graphs the distances equal those of Floyd and Warshall.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 1200, DEGREE = 6, SMALL = 40 };

#define UNREACHED UINT32_MAX

struct edge {
    uint32_t target;
    uint32_t weight;
};

struct graph {
    uint32_t nodes;
    uint32_t degree[NODES_MAX];
    struct edge edges[NODES_MAX][DEGREE];
};

struct heap {
    uint32_t size;
    uint32_t nodes[NODES_MAX];    /* heap order */
    uint32_t place[NODES_MAX];    /* where a node stands in it, plus 1; 0: not there */
    const uint32_t *keys;
};

static void heap_place(struct heap *heap, uint32_t index, uint32_t node) {
    heap->nodes[index] = node;
    heap->place[node] = index + 1;
}

static void heap_up(struct heap *heap, uint32_t index) {
    uint32_t node = heap->nodes[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (heap->keys[heap->nodes[parent]] <= heap->keys[node]) {
            break;
        }
        heap_place(heap, index, heap->nodes[parent]);
        index = parent;
    }
    heap_place(heap, index, node);
}

static void heap_down(struct heap *heap, uint32_t index) {
    uint32_t node = heap->nodes[index];
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= heap->size) {
            break;
        }
        if (child + 1 < heap->size &&
            heap->keys[heap->nodes[child + 1]] < heap->keys[heap->nodes[child]]) {
            child++;
        }
        if (heap->keys[node] <= heap->keys[heap->nodes[child]]) {
            break;
        }
        heap_place(heap, index, heap->nodes[child]);
        index = child;
    }
    heap_place(heap, index, node);
}

/* Insert a node, or move it up after its key went down. */
static void heap_lower(struct heap *heap, uint32_t node) {
    if (heap->place[node] == 0) {
        heap_place(heap, heap->size++, node);
    }
    heap_up(heap, heap->place[node] - 1);
}

static uint32_t heap_pop(struct heap *heap) {
    uint32_t first = heap->nodes[0];
    uint32_t last = heap->nodes[--heap->size];
    heap->place[first] = 0;
    if (heap->size > 0) {
        heap_place(heap, 0, last);
        heap_down(heap, 0);
    }
    return first;
}

static void graph_connect(struct graph *graph, uint32_t from, uint32_t to, uint32_t weight) {
    if (from != to && graph->degree[from] < DEGREE) {
        struct edge *edge = &graph->edges[from][graph->degree[from]++];
        edge->target = to;
        edge->weight = weight;
    }
}

static void graph_generate(struct graph *graph, uint32_t nodes, uint32_t seed) {
    memset(graph, 0, sizeof *graph);
    graph->nodes = nodes;
    for (uint32_t node = 0; node < nodes; node++) {
        for (uint32_t i = 0; i < 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t near = (node + 1 + (seed >> 24) % 20) % nodes;
            uint32_t far = (seed >> 8) % nodes;
            graph_connect(graph, node, i == 3 ? far : near, 1 + (seed >> 12) % 1000);
        }
        graph_connect(graph, (node + 1) % nodes, node, 700);
    }
}

static void dijkstra(const struct graph *graph, uint32_t source, uint32_t *distance,
                     uint32_t *parent) {
    static struct heap heap;
    memset(&heap, 0, sizeof heap);
    heap.keys = distance;
    for (uint32_t node = 0; node < graph->nodes; node++) {
        distance[node] = UNREACHED;
        parent[node] = UNREACHED;
    }
    distance[source] = 0;
    heap_lower(&heap, source);
    while (heap.size > 0) {
        uint32_t node = heap_pop(&heap);
        for (uint32_t i = 0; i < graph->degree[node]; i++) {
            const struct edge *edge = &graph->edges[node][i];
            uint32_t through = distance[node] + edge->weight;
            if (through < distance[edge->target]) {
                distance[edge->target] = through;
                parent[edge->target] = node;
                heap_lower(&heap, edge->target);
            }
        }
    }
}

/* Whether the distances are those of a shortest-path tree. */
static int tree_holds(const struct graph *graph, uint32_t source, const uint32_t *distance,
                      const uint32_t *parent) {
    static unsigned char reached[NODES_MAX];
    memset(reached, 0, sizeof reached);
    for (uint32_t node = 0; node < graph->nodes; node++) {
        if (distance[node] == UNREACHED) {
            continue;
        }
        for (uint32_t i = 0; i < graph->degree[node]; i++) {
            const struct edge *edge = &graph->edges[node][i];
            if (distance[edge->target] > distance[node] + edge->weight) {
                return 0;
            }
            if (parent[edge->target] == node &&
                distance[edge->target] == distance[node] + edge->weight) {
                reached[edge->target] = 1;
            }
        }
    }
    for (uint32_t node = 0; node < graph->nodes; node++) {
        if (node != source && distance[node] != UNREACHED && !reached[node]) {
            return 0;
        }
    }
    return distance[source] == 0;
}

static int equals_floyd_warshall(const struct graph *graph) {
    static uint64_t all[SMALL][SMALL];
    static uint32_t distance[NODES_MAX], parent[NODES_MAX];
    uint32_t n = graph->nodes;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            all[i][j] = i == j ? 0 : UNREACHED;
        }
        for (uint32_t e = 0; e < graph->degree[i]; e++) {
            const struct edge *edge = &graph->edges[i][e];
            if (edge->weight < all[i][edge->target]) {
                all[i][edge->target] = edge->weight;
            }
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; j < n; j++) {
                if (all[i][k] + all[k][j] < all[i][j]) {
                    all[i][j] = all[i][k] + all[k][j];
                }
            }
        }
    }
    for (uint32_t source = 0; source < n; source += 13) {
        dijkstra(graph, source, distance, parent);
        for (uint32_t j = 0; j < n; j++) {
            if (distance[j] != all[source][j]) {
                return 0;
            }
        }
    }
    return 1;
}

int main(void) {
    static struct graph graph;
    static uint32_t distance[NODES_MAX], parent[NODES_MAX];
    uint32_t checksum = 0;
    for (uint32_t round = 1; round <= 4; round++) {
        graph_generate(&graph, SMALL - round, round);
        if (!equals_floyd_warshall(&graph)) {
            fprintf(stderr, "shortest_paths: small graph %u is wrong\n", (unsigned)round);
            return 1;
        }
    }
    graph_generate(&graph, NODES_MAX, 5);
    for (uint32_t source = 0; source < NODES_MAX; source += 173) {
        dijkstra(&graph, source, distance, parent);
        if (!tree_holds(&graph, source, distance, parent)) {
            fprintf(stderr, "shortest_paths: the tree from %u is wrong\n", (unsigned)source);
            return 1;
        }
        for (uint32_t node = 0; node < NODES_MAX; node++) {
            checksum = checksum * 31u + distance[node];
        }
    }
    printf("shortest_paths %08x\n", (unsigned)checksum);
    return 0;
}
