#include "memory/graph.h"

#include "charge/charge.h"
#include "charge/context.h"
#include "charge/pool.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "limits/config.h"
#include "limits/limits.h"
#include "os/fork.h"
#include "os/slab.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODES_ON_STACK 64 /* node handles on the stack; larger graphs map memory */
#define NESTING_MAX 16    /* of child graphs */

/* Memory that an executable graph allocates on one device. */
struct graph_allocation {
    CUgraphExec graph;
    struct aliquot_pool *pool;
    uint64_t bytes;
    unsigned reserved_generation; /* aliquot_pool_graph_trims at the last reservation */
    struct graph_allocation *next;
};

/* Guards the following. The driver is not called under it, except through pool.h. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct graph_allocation *graph_allocations;
static struct aliquot_slab graph_allocation_slab;
static atomic_bool any_graph_allocations; /* not guarded */

static void reset_graphs(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    graph_allocations = NULL;
    graph_allocation_slab.unused = NULL;
    atomic_store(&any_graph_allocations, false);
}

ALIQUOT_AFTER_FORK(reset_graphs);

/* Bytes per device that a graph's nodes allocate. The bodies of conditional nodes cannot allocate (cuda.h 13.5,
   CUDA_CONDITIONAL_NODE_PARAMS). */
struct allocation_sums {
    uint64_t bytes[ALIQUOT_LIMITS_VGPUS_MAX];
    CUdevice ordinal[ALIQUOT_LIMITS_VGPUS_MAX];
};

static void sum_graph(struct allocation_sums *sum, CUgraph graph, int depth);

static void sum_node(struct allocation_sums *sum, CUgraphNode node, int depth) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    CUgraph child = NULL;
    if (aliquot_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && aliquot_real.cuGraphChildGraphNodeGetGraph != NULL &&
        aliquot_real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        sum_graph(sum, child, depth + 1);
    }
    memset(&parameters, 0, sizeof parameters);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || aliquot_real.cuGraphMemAllocNodeGetParams == NULL ||
        aliquot_real.cuGraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS ||
        parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return;
    }
    int device = aliquot_device_of_ordinal(parameters.poolProps.location.id);
    if (device >= 0) {
        sum->bytes[device] += parameters.bytesize;
        sum->ordinal[device] = parameters.poolProps.location.id;
    }
}

static void sum_graph(struct allocation_sums *sum, CUgraph graph, int depth) {
    CUgraphNode on_stack[NODES_ON_STACK], *nodes = on_stack;
    size_t count = 0;
    if (depth > NESTING_MAX || aliquot_real.cuGraphGetNodes == NULL || aliquot_real.cuGraphNodeGetType == NULL ||
        aliquot_real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS) {
        return;
    }
    size_t capacity = count;
    if (count > NODES_ON_STACK) {
        nodes = aliquot_os_map(-1, count * sizeof *nodes);
    }
    if (nodes != NULL && count > 0 && aliquot_real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count && i < capacity; i++) {
            sum_node(sum, nodes[i], depth);
        }
    }
    if (nodes != NULL && nodes != on_stack) {
        aliquot_os_unmap(nodes, capacity * sizeof *nodes);
    }
}

/* Requires the mutex. */
static void remove_graph(CUgraphExec graph) {
    for (struct graph_allocation **link = &graph_allocations; *link != NULL;) {
        struct graph_allocation *entry = *link;
        if (entry->graph == graph) {
            *link = entry->next;
            aliquot_slab_give(&graph_allocation_slab, entry);
        } else {
            link = &entry->next;
        }
    }
}

/* False: there is no memory for the record. */
static bool add_graph_allocations(CUgraphExec graph, const struct allocation_sums *sum) {
    bool remembered = true;
    pthread_mutex_lock(&mutex);
    remove_graph(graph); /* an earlier graph with this handle, destroyed without a hook */
    for (int device = 0; device < ALIQUOT_LIMITS_VGPUS_MAX; device++) {
        if (sum->bytes[device] == 0) {
            continue;
        }
        struct graph_allocation *entry = aliquot_slab_take(&graph_allocation_slab, sizeof *entry);
        struct aliquot_pool *pool = aliquot_pool_of_graphs(device, sum->ordinal[device]);
        if (entry == NULL || pool == NULL) {
            remembered = false;
            break;
        }
        *entry = (struct graph_allocation){
            .graph = graph, .pool = pool, .bytes = sum->bytes[device], .next = graph_allocations};
        graph_allocations = entry;
        atomic_store_explicit(&any_graph_allocations, true, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return remembered;
}

/* After an instantiation: records what the graph allocates. */
static CUresult record_executable_graph(CUgraphExec *created, CUgraph graph, CUresult result) {
    struct allocation_sums sum = {{0}, {0}};
    if (result != CUDA_SUCCESS || aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        return result;
    }
    sum_graph(&sum, graph, 0);
    if (!add_graph_allocations(*created, &sum)) {
        aliquot_real.cuGraphExecDestroy(*created);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    aliquot_pool_update_charges();
    return result;
}

#define INSTANTIATE(symbol, parameters, ...)                                                                           \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        return record_executable_graph(created, graph, aliquot_real.symbol(created, graph, __VA_ARGS__));              \
    }

INSTANTIATE(cuGraphInstantiate, (CUgraphExec * created, CUgraph graph, CUgraphNode *node, char *log, size_t size), node,
            log, size)
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec * created, CUgraph graph, CUgraphNode *node, char *log, size_t size),
            node, log, size)
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * created, CUgraph graph, unsigned long long flags), flags)
INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec * created, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), parameters)
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec * created, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), parameters)

CUresult cuGraphExecDestroy(CUgraphExec graph) {
    ALIQUOT_REQUIRE(cuGraphExecDestroy)
    if (atomic_load_explicit(&any_graph_allocations, memory_order_acquire)) {
        pthread_mutex_lock(&mutex);
        remove_graph(graph); /* before another thread may get the same handle */
        pthread_mutex_unlock(&mutex);
    }
    CUresult result = aliquot_real.cuGraphExecDestroy(graph);
    aliquot_pool_update_charges();
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    ALIQUOT_REQUIRE(cuDeviceGraphMemTrim)
    CUresult result = aliquot_real.cuDeviceGraphMemTrim(device);
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&aliquot_pool_graph_trims, 1);
        aliquot_pool_update_charges();
    }
    return result;
}

/* What a launch takes from pools: a growth per device. */
struct launch_reservation {
    int count;
    struct aliquot_growth growth[ALIQUOT_LIMITS_VGPUS_MAX];
};

/* Lists the graph's allocations as growths to be reserved; those already reserved since the last trim get 0 bytes.
   Returns their number. */
static int collect_allocations(struct aliquot_growth growth[], CUgraphExec graph) {
    int count = 0;
    unsigned now = atomic_load(&aliquot_pool_graph_trims);
    pthread_mutex_lock(&mutex);
    for (struct graph_allocation *entry = graph_allocations; entry != NULL; entry = entry->next) {
        if (entry->graph == graph && count < ALIQUOT_LIMITS_VGPUS_MAX) {
            uint64_t bytes = entry->reserved_generation == now ? 0 : entry->bytes;
            growth[count++] = (struct aliquot_growth){.pool = entry->pool, .reserved = bytes};
            entry->reserved_generation = now;
        }
    }
    pthread_mutex_unlock(&mutex);
    return count;
}

static void mark_unreserved(CUgraphExec graph) {
    pthread_mutex_lock(&mutex);
    for (struct graph_allocation *entry = graph_allocations; entry != NULL; entry = entry->next) {
        entry->reserved_generation = entry->graph == graph ? 0 : entry->reserved_generation;
    }
    pthread_mutex_unlock(&mutex);
}

static void settle_reservation(struct launch_reservation *reservation) {
    for (int i = 0; i < reservation->count; i++) {
        aliquot_pool_settle_growth(&reservation->growth[i]);
        aliquot_pool_finish_growth(&reservation->growth[i]);
    }
}

/* Reserves what a launch needs. False: no room, and nothing stays reserved. */
static bool reserve_for_launch(struct launch_reservation *reservation, CUgraphExec graph, CUstream stream) {
    int count = collect_allocations(reservation->growth, graph);
    if (count > 0 && aliquot_capture_may_include(stream)) {
        mark_unreserved(graph);
        return true; /* the captured launch becomes a node of another graph */
    }
    for (int i = 0; i < count; i++) {
        struct aliquot_growth *growth = &reservation->growth[i];
        if (!aliquot_context_ensure_charged(growth->pool->device) ||
            !aliquot_pool_reserve_growth(growth, growth->pool, growth->reserved)) {
            settle_reservation(reservation);
            mark_unreserved(graph);
            return false;
        }
        reservation->count++;
    }
    return true;
}

CUresult aliquot_graph_launch(CUresult (*launch)(CUgraphExec graph, CUstream stream), CUgraphExec graph,
                              CUstream stream) {
    struct launch_reservation reservation;
    reservation.count = 0;
    if (!atomic_load_explicit(&any_graph_allocations, memory_order_acquire)) {
        return launch(graph, stream);
    }
    if (!reserve_for_launch(&reservation, graph, stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = launch(graph, stream);
    settle_reservation(&reservation);
    return result;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    ALIQUOT_REQUIRE(cuGraphUpload)
    return aliquot_graph_launch(aliquot_real.cuGraphUpload, graph, stream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
    ALIQUOT_REQUIRE(cuGraphUpload_ptsz)
    return aliquot_graph_launch(aliquot_real.cuGraphUpload_ptsz, graph, aliquot_per_thread(stream));
}
