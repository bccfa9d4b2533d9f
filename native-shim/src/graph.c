#include "graph.h"

#include "charge.h"
#include "config.h"
#include "device.h"
#include "limits.h"
#include "pool.h"
#include "slab.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODES 64 /* looked at on the stack; a graph with more needs memory for a moment */
#define DEPTH 16 /* of graphs in graphs */

/* What an executable graph allocates on one device. */
struct part {
    CUgraphExec graph;
    struct aliquot_pool *pool;
    uint64_t bytes;
    unsigned placed; /* the generation in which it was launched first */
    struct part *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below; the driver is not called under it */
static struct part *parts;
static struct aliquot_slab slab;
static atomic_uint generation = 1; /* not guarded; a trim begins another: what was placed may be gone */
static atomic_bool any;

void aliquot_graph_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    parts = NULL;
    slab.unused = NULL;
    atomic_store(&any, false);
}

void aliquot_graph_was_trimmed(void) {
    atomic_fetch_add(&generation, 1);
}

/* Bytes by device that a graph's nodes allocate. */
struct sum {
    uint64_t bytes[ALIQUOT_LIMITS_MOST_VGPUS];
    CUdevice ordinal[ALIQUOT_LIMITS_MOST_VGPUS];
};

static void add_graph(struct sum *sum, CUgraph graph, int depth);

static void add_node(struct sum *sum, CUgraphNode node, int depth) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    CUgraph child = NULL;
    if (aliquot_bare.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && aliquot_bare.cuGraphChildGraphNodeGetGraph != NULL &&
        aliquot_bare.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_graph(sum, child, depth + 1);
    }
    memset(&parameters, 0, sizeof parameters);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || aliquot_bare.cuGraphMemAllocNodeGetParams == NULL ||
        aliquot_bare.cuGraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS ||
        parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return;
    }
    int device = aliquot_device_of_ordinal(parameters.poolProps.location.id);
    if (device >= 0) {
        sum->bytes[device] += parameters.bytesize;
        sum->ordinal[device] = parameters.poolProps.location.id;
    }
}

static void add_graph(struct sum *sum, CUgraph graph, int depth) {
    CUgraphNode few[NODES], *nodes = few;
    size_t count = 0;
    if (depth > DEPTH || aliquot_bare.cuGraphGetNodes == NULL || aliquot_bare.cuGraphNodeGetType == NULL ||
        aliquot_bare.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS) {
        return;
    }
    size_t room = count;
    if (count > NODES) {
        nodes = aliquot_os_map(-1, count * sizeof *nodes);
    }
    if (nodes != NULL && count > 0 && aliquot_bare.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count && i < room; i++) {
            add_node(sum, nodes[i], depth);
        }
    }
    if (nodes != NULL && nodes != few) {
        aliquot_os_unmap(nodes, room * sizeof *nodes);
    }
}

/* With the mutex. */
static void forget(CUgraphExec graph) {
    for (struct part **link = &parts; *link != NULL;) {
        struct part *part = *link;
        if (part->graph == graph) {
            *link = part->next;
            aliquot_slab_give(&slab, part);
        } else {
            link = &part->next;
        }
    }
}

/* False: there is no memory to remember it. */
static bool remember(CUgraphExec graph, const struct sum *sum) {
    bool remembered = true;
    pthread_mutex_lock(&mutex);
    forget(graph); /* one whose end was not seen */
    for (int device = 0; device < ALIQUOT_LIMITS_MOST_VGPUS; device++) {
        if (sum->bytes[device] == 0) {
            continue;
        }
        struct part *part = aliquot_slab_take(&slab, sizeof *part);
        struct aliquot_pool *pool = aliquot_pool_of_graphs(device, sum->ordinal[device]);
        if (part == NULL || pool == NULL) {
            remembered = false;
            break;
        }
        *part = (struct part){.graph = graph, .pool = pool, .bytes = sum->bytes[device], .next = parts};
        parts = part;
        atomic_store_explicit(&any, true, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return remembered;
}

/* After an instantiation. */
static CUresult learn(CUgraphExec *made, CUgraph graph, CUresult result) {
    struct sum sum = {{0}, {0}};
    if (result != CUDA_SUCCESS || aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        return result;
    }
    add_graph(&sum, graph, 0);
    if (!remember(*made, &sum)) {
        aliquot_bare.cuGraphExecDestroy(*made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    aliquot_pool_true_up();
    return result;
}

#define INSTANTIATE(symbol, parameters, ...)                                                                           \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_NEED(symbol)                                                                                           \
        return learn(made, graph, aliquot_bare.symbol(made, graph, __VA_ARGS__));                                      \
    }

INSTANTIATE(cuGraphInstantiate, (CUgraphExec * made, CUgraph graph, CUgraphNode *node, char *log, size_t size), node,
            log, size)
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec * made, CUgraph graph, CUgraphNode *node, char *log, size_t size), node,
            log, size)
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * made, CUgraph graph, unsigned long long flags), flags)
INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec * made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), parameters)
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec * made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), parameters)

CUresult cuGraphExecDestroy(CUgraphExec graph) {
    ALIQUOT_NEED(cuGraphExecDestroy)
    if (atomic_load_explicit(&any, memory_order_acquire)) {
        pthread_mutex_lock(&mutex);
        forget(graph); /* before another thread's may have the same handle */
        pthread_mutex_unlock(&mutex);
    }
    CUresult result = aliquot_bare.cuGraphExecDestroy(graph);
    aliquot_pool_true_up();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    ALIQUOT_NEED(cuDeviceGraphMemTrim)
    CUresult result = aliquot_bare.cuDeviceGraphMemTrim(device);
    if (result == CUDA_SUCCESS) {
        aliquot_graph_was_trimmed();
        aliquot_pool_true_up();
    }
    return result;
}

static bool is_capturing(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return aliquot_bare.cuStreamIsCapturing != NULL &&
           (aliquot_bare.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* What a launch takes; 0 devices: the graph allocates nothing. */
struct taking {
    int count;
    struct {
        struct aliquot_pool *pool;
        uint64_t bytes;
    } on[ALIQUOT_LIMITS_MOST_VGPUS];
};

/* With the mutex: the graph's parts, those that were not placed yet with their bytes. */
static void list_parts(struct taking *taking, CUgraphExec graph) {
    unsigned now = atomic_load(&generation);
    for (struct part *part = parts; part != NULL; part = part->next) {
        if (part->graph == graph && taking->count < ALIQUOT_LIMITS_MOST_VGPUS) {
            taking->on[taking->count].pool = part->pool;
            taking->on[taking->count++].bytes = part->placed == now ? 0 : part->bytes;
            part->placed = now;
        }
    }
}

static void not_placed(CUgraphExec graph) {
    pthread_mutex_lock(&mutex);
    for (struct part *part = parts; part != NULL; part = part->next) {
        part->placed = part->graph == graph ? 0 : part->placed;
    }
    pthread_mutex_unlock(&mutex);
}

static void end(const struct taking *taking) {
    for (int i = 0; i < taking->count; i++) {
        aliquot_pool_end(taking->on[i].pool, taking->on[i].bytes);
        aliquot_pool_landed(taking->on[i].pool);
    }
}

/* False: there is no room, and nothing is taken. */
static bool begin(struct taking *taking, CUgraphExec graph, CUstream stream) {
    struct taking wanted = {.count = 0};
    pthread_mutex_lock(&mutex);
    list_parts(&wanted, graph);
    pthread_mutex_unlock(&mutex);
    if (wanted.count > 0 && is_capturing(stream)) {
        not_placed(graph);
        return true; /* it becomes a part of another graph */
    }
    for (int i = 0; i < wanted.count; i++) {
        if (!aliquot_pool_begin(wanted.on[i].pool, wanted.on[i].bytes)) {
            end(taking);
            not_placed(graph);
            return false;
        }
        taking->on[taking->count++] = wanted.on[i];
    }
    return true;
}

CUresult aliquot_graph_launch(CUresult (*launch)(CUgraphExec graph, CUstream stream), CUgraphExec graph,
                              CUstream stream) {
    struct taking taking;
    taking.count = 0;
    if (!atomic_load_explicit(&any, memory_order_acquire)) {
        return launch(graph, stream);
    }
    if (!begin(&taking, graph, stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = launch(graph, stream);
    end(&taking);
    return result;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    ALIQUOT_NEED(cuGraphUpload)
    return aliquot_graph_launch(aliquot_bare.cuGraphUpload, graph, stream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
    ALIQUOT_NEED(cuGraphUpload_ptsz)
    return aliquot_graph_launch(aliquot_bare.cuGraphUpload_ptsz, graph, stream == NULL ? CU_STREAM_PER_THREAD : stream);
}
