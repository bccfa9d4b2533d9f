/*
 * Launching graphs. A launch is a list of steps in topological order, copied from the graph's nodes because the graph
 * may change while it runs.
 *
 * Data: copies and fills run in that order during the call, as everywhere in this driver. Those after a host function
 * run on the driver's thread that calls it, after it has returned. If other host functions are outstanding at the
 * launch, all copies and fills run on that thread, in stream order. Graph memory is allocated and freed during the
 * call.
 *
 * Time: a chain of steps without other dependencies and dependents, none of them a copy, is one segment: one piece of
 * GPU work. Its duration is the sum of theirs, and its number of multiprocessors is their average over time. The first
 * segment is in the stream's queue. Where the graph branches, one branch continues in the queue of its predecessor,
 * and the others go to queues of their own. At the end, the stream waits for all branches. Host functions and events
 * are always in the stream's queue.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_module.h"
#include "cuda_pool.h"
#include "cuda_work.h"

#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX

enum { IN_STREAM = 0, BRANCHES = GPU_QUEUES - GPU_BARRIER_QUEUES };

struct step {
    CUgraphNodeParams params;      /* of type EMPTY for the beginning and the end of a child graph */
    size_t first_edge, edge_count; /* its dependencies: edge_count entries of edges, from first_edge on */
    size_t dependents;
    size_t head;          /* the first step of its segment */
    struct gpu_work work; /* of a head: the work of the whole segment */
    uint64_t number;      /* of a head: the number of its submitted work; 0: not submitted yet, or none needed */
    unsigned lane;        /* of a head: IN_STREAM, or 1 + the branch */
};

struct graph_launch {
    struct step *steps;
    size_t count, capacity;
    size_t *edges;
    size_t edge_count, edge_capacity;
    /* The head that was submitted last to each lane. */
    size_t latest[1 + BRANCHES];
    unsigned branches;
    uint64_t start; /* the work in the stream that all other work of the launch comes after */
    struct CUctx_st *context;
    CUstream stream;
};

static bool ensure_capacity(void **list, size_t *capacity, size_t count, size_t size) {
    if (count < *capacity)
        return true;
    size_t grown_capacity = *capacity == 0 ? 64 : 2 * *capacity;
    void *grown = realloc(*list, grown_capacity * size);
    if (grown == NULL)
        return false;
    *list = grown;
    *capacity = grown_capacity;
    return true;
}

static bool add_edge(struct graph_launch *launch, size_t from) {
    struct step *step = &launch->steps[launch->count - 1];
    if (!ensure_capacity((void **)&launch->edges, &launch->edge_capacity, launch->edge_count, sizeof launch->edges[0]))
        return false;
    launch->edges[launch->edge_count++] = from;
    launch->steps[from].dependents++;
    step->edge_count++;
    return true;
}

static bool add_step(struct graph_launch *launch, const CUgraphNodeParams *params) {
    if (!ensure_capacity((void **)&launch->steps, &launch->capacity, launch->count, sizeof launch->steps[0]))
        return false;
    launch->steps[launch->count] =
        (struct step){.params = *params, .first_edge = launch->edge_count, .head = launch->count};
    launch->count++;
    return true;
}

/*
 * Adds the graph's steps after the step entry (NONE: after no step). Afterwards, the scratch value of each node is its
 * last step.
 */
static bool add_graph_steps(struct graph_launch *launch, CUgraph graph, size_t entry) {
    static const CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUgraphNode cycle_node;
    CUgraphNode *order = graph_topological_order(graph, &cycle_node);
    bool added = order != NULL;
    for (size_t i = 0; added && i < graph->node_count; i++) {
        CUgraphNode node = order[i];
        added = add_step(launch, node->child != NULL ? &empty : &node->params);
        for (size_t n = 0; added && n < node->dependencies.count; n++)
            added = add_edge(launch, node->dependencies.nodes[n]->scratch);
        if (added && node->dependencies.count == 0 && entry != NONE)
            added = add_edge(launch, entry);
        if (added && node->child != NULL) {
            size_t child_start = launch->count - 1;
            added = add_graph_steps(launch, node->child, child_start) && add_step(launch, &empty) &&
                    add_edge(launch, child_start);
            for (CUgraphNode inner = node->child->first; added && inner != NULL; inner = inner->next)
                if (inner->dependents.count == 0)
                    added = add_edge(launch, inner->scratch);
        }
        node->scratch = launch->count - 1;
    }
    free(order);
    return added;
}

/* ---- data ---- */

static void run_data_step(const struct step *step) {
    if (step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY)
        run_memcpy(&step->params.memcpy.copyParams);
    else if (step->params.type == CU_GRAPH_NODE_TYPE_MEMSET)
        run_memset(&step->params.memset);
}

static void no_host_function(void *unused) {
    (void)unused;
}

/* A host function, and the data steps between it and the next one. */
struct host_node_call {
    CUDA_HOST_NODE_PARAMS_v2 host;
    size_t count;
    struct step steps[];
};

static void run_host_node_call(void *data) {
    struct host_node_call *call = data;
    call->host.fn(call->host.userData);
    for (size_t i = 0; i < call->count; i++)
        run_data_step(&call->steps[i]);
    free(call);
}

static bool is_data_step(const struct step *step) {
    return step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY || step->params.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

/* Creates the call for the host function at that step; NONE: for the data steps before the first host function. */
static struct host_node_call *host_node_call_new(const struct graph_launch *launch, size_t at) {
    size_t next = at == NONE ? 0 : at + 1;
    struct host_node_call *call = malloc(sizeof *call + (launch->count - next) * sizeof call->steps[0]);
    if (call == NULL)
        return NULL;
    call->host = at == NONE ? (CUDA_HOST_NODE_PARAMS_v2){.fn = no_host_function} : launch->steps[at].params.host;
    call->count = 0;
    for (size_t i = next; i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST; i++)
        if (is_data_step(&launch->steps[i]))
            call->steps[call->count++] = launch->steps[i];
    return call;
}

/* ---- memory ---- */

/* Runs the memory nodes in order. If one fails, frees the memory that was allocated. Called with the lock held. */
static CUresult run_memory_nodes(const struct graph_launch *launch, bool free_first) {
    CUresult result = CUDA_SUCCESS;
    size_t at = 0;
    for (size_t i = 0; free_first && i < launch->count; i++)
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_free(graph_memory_find(launch->steps[i].params.alloc.dptr));
    for (; at < launch->count && result == CUDA_SUCCESS; at++) {
        const CUgraphNodeParams *params = &launch->steps[at].params;
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            result = graph_memory_allocate(graph_memory_find(params->alloc.dptr));
        if (params->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
            continue;
        struct graph_memory *freed = graph_memory_find(params->free.dptr);
        if (freed == NULL || !graph_memory_is_allocated(freed))
            result = CUDA_ERROR_INVALID_VALUE;
        else
            graph_memory_free(freed);
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i + 1 < at; i++)
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_free(graph_memory_find(launch->steps[i].params.alloc.dptr));
    return result;
}

/* ---- time ---- */

static struct gpu_work step_work(const struct graph_launch *launch, const struct step *step) {
    const struct device *device = stream_context(launch->context, launch->stream)->device;
    const CUgraphNodeParams *params = &step->params;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
        CUfunction function = kernel->func != NULL ? kernel->func : (CUfunction)(void *)kernel->kern;
        uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
        unsigned threads = kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
        struct gpu_work work = kernel_work(device, is_function(function) ? function_name(function) : "", blocks,
                                           threads, kernel->kernelParams, kernel->extra);
        return (struct gpu_work){.ns = work.ns, .sms = work.sms}; /* a collective does not wait for its peers */
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const CUDA_MEMCPY3D *copy = &params->memcpy.copyParams;
        enum copy_direction direction = memcpy_reads_host(copy)    ? COPY_HOST_TO_DEVICE
                                        : memcpy_writes_host(copy) ? COPY_DEVICE_TO_HOST
                                                                   : COPY_WITHIN_DEVICE;
        return memcpy_work(direction, copy->WidthInBytes * copy->Height * copy->Depth);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return memset_work(device, params->memset.width * params->memset.elementSize * params->memset.height);
    return (struct gpu_work){0};
}

static bool is_stream_step(const struct step *step) {
    return step->params.type == CU_GRAPH_NODE_TYPE_HOST || step->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
           step->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

/* Merges chains of steps into segments. */
static void merge_steps(struct graph_launch *launch) {
    for (size_t i = 0; i < launch->count; i++) {
        struct step *step = &launch->steps[i];
        step->work = step_work(launch, step);
        if (step->edge_count != 1 || is_stream_step(step) || (step->work.flags != 0 && step->work.ns != 0))
            continue;
        const struct step *before = &launch->steps[launch->edges[step->first_edge]];
        struct step *head = &launch->steps[before->head];
        if (before->dependents != 1 || is_stream_step(head) || head->work.flags != 0)
            continue;
        uint64_t ns = head->work.ns + step->work.ns;
        if (ns != 0)
            head->work.sms = (uint32_t)(((double)head->work.sms * (double)head->work.ns +
                                         (double)step->work.sms * (double)step->work.ns) /
                                            (double)ns +
                                        0.5);
        head->work.ns = ns < GPU_MAX_WORK_NS ? ns : GPU_MAX_WORK_NS;
        step->head = before->head;
    }
}

/*
 * Waits until the GPU's queue has space for that many pieces of work. Called with the lock held; on failure the lock
 * has been released.
 */
static CUresult ensure_queue_space(struct graph_launch *launch, unsigned count) {
    struct capture_member *capturing;
    if (gpu_has_queue_space(stream_context(launch->context, launch->stream)->device->gpu, count))
        return CUDA_SUCCESS;
    leave(CUDA_SUCCESS);
    CUresult result = enter_with_queue_space(&launch->context, launch->stream, count, &capturing);
    if (result == CUDA_SUCCESS && capturing != NULL) /* another thread began a capture meanwhile */
        result = leave(CUDA_ERROR_ILLEGAL_STATE);
    return result;
}

static uint64_t submit(struct graph_launch *launch, unsigned lane, struct gpu_work work) {
    return lane == IN_STREAM ? work_submit(launch->context, launch->stream, work, NULL)
                             : work_submit_branch(launch->context, launch->stream, lane - 1, work);
}

static unsigned choose_lane(struct graph_launch *launch, const struct step *step, size_t at) {
    if (is_stream_step(step))
        return IN_STREAM;
    for (size_t i = 0; i < step->edge_count; i++) {
        size_t before = launch->steps[launch->edges[step->first_edge + i]].head;
        if (launch->latest[launch->steps[before].lane] == before)
            return launch->steps[before].lane;
    }
    if (at == 0)
        return IN_STREAM;
    return 1 + launch->branches++ % BRANCHES;
}

/* Whether there are data steps before the first host function. */
static bool has_data_before_host_node(const struct graph_launch *launch) {
    size_t i = 0;
    while (i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST &&
           !is_data_step(&launch->steps[i]))
        i++;
    return i < launch->count && is_data_step(&launch->steps[i]);
}

static CUresult submit_host_node(const struct graph_launch *launch, size_t at) {
    struct host_node_call *call = host_node_call_new(launch, at);
    CUresult result = call != NULL ? work_call_host_function(launch->context, launch->stream, run_host_node_call, call)
                                   : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        free(call);
    return result;
}

/* Submits the segment that begins with this step, after its dependencies. On failure the lock has been released. */
static CUresult submit_segment(struct graph_launch *launch, size_t at) {
    struct step *step = &launch->steps[at];
    unsigned lane = choose_lane(launch, step, at);
    uint64_t after = lane != IN_STREAM && launch->latest[lane] == NONE ? launch->start : 0;
    for (size_t i = 0; i < step->edge_count; i++) {
        const struct step *before = &launch->steps[launch->steps[launch->edges[step->first_edge + i]].head];
        if (before->lane == lane || before->number == 0)
            continue;
        if (after != 0 && after != launch->start) { /* empty work waits for each dependency except the last */
            CUresult result = ensure_queue_space(launch, 1);
            if (result != CUDA_SUCCESS)
                return result;
            (void)submit(launch, lane, (struct gpu_work){.after = {after}});
        }
        after = before->number;
    }
    CUresult result = ensure_queue_space(launch, 4);
    if (result != CUDA_SUCCESS)
        return result;
    step->lane = lane;
    launch->latest[lane] = at;
    step->work.after[0] = after;
    if (!is_stream_step(step) || after != 0)
        step->number = submit(launch, lane, step->work);
    if (step->params.type == CU_GRAPH_NODE_TYPE_HOST) {
        result = submit_host_node(launch, at);
    } else if (step->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        if (object_find(KIND_EVENT, step->params.eventWait.event) != NULL)
            result = work_wait_event(launch->context, launch->stream, step->params.eventWait.event);
    } else if (step->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        if (object_find(KIND_EVENT, step->params.eventRecord.event) != NULL) {
            capture_forget_event(step->params.eventRecord.event);
            work_record_event(launch->context, launch->stream, step->params.eventRecord.event);
        }
    }
    if (is_stream_step(step)) /* later work in other queues depends on this */
        step->number = work_submit(launch->context, launch->stream, (struct gpu_work){0}, NULL);
    return result == CUDA_SUCCESS ? result : leave(result);
}

/*
 * Submits all segments. Work before them waits for the previous launch of the graph, and work after them ends the
 * launch.
 */
static CUresult submit_segments(struct graph_launch *launch, uint64_t before, bool data_deferred, uint64_t *last) {
    CUresult result = ensure_queue_space(launch, 4);
    if (result != CUDA_SUCCESS)
        return result;
    launch->start = submit(launch, IN_STREAM, (struct gpu_work){.after = {before}});
    if (data_deferred) {
        result = submit_host_node(launch, NONE);
        if (result != CUDA_SUCCESS)
            return leave(result);
        launch->start = submit(launch, IN_STREAM, (struct gpu_work){0});
    }
    for (unsigned lane = 0; lane <= BRANCHES; lane++)
        launch->latest[lane] = NONE;
    for (size_t i = 0; i < launch->count; i++) {
        if (launch->steps[i].head != i)
            continue;
        result = submit_segment(launch, i);
        if (result != CUDA_SUCCESS)
            return result;
    }
    *last = launch->start;
    for (unsigned lane = 1; lane <= BRANCHES; lane++) {
        if (launch->latest[lane] == NONE)
            continue;
        result = ensure_queue_space(launch, 1);
        if (result != CUDA_SUCCESS)
            return result;
        *last = submit(launch, IN_STREAM, (struct gpu_work){.after = {launch->steps[launch->latest[lane]].number}});
    }
    if (launch->latest[IN_STREAM] != NONE && *last == launch->start)
        *last = launch->steps[launch->latest[IN_STREAM]].number;
    return CUDA_SUCCESS;
}

static CUresult launch_exec(struct graph_launch *launch, CUgraphExec exec) {
    bool auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    gpu_file *gpu = stream_context(launch->context, launch->stream)->device->gpu;
    if (!add_graph_steps(launch, exec->graph, NONE))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    merge_steps(launch); /* while the data that the node parameters point to still exists */
    CUresult result = run_memory_nodes(launch, auto_free);
    if (result != CUDA_SUCCESS)
        return leave(result);
    bool data_deferred = work_has_host_functions() && has_data_before_host_node(launch);
    leave(result);
    for (size_t i = 0; !data_deferred && i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST;
         i++)
        run_data_step(&launch->steps[i]);
    struct capture_member *capturing;
    result = enter_with_queue_space(&launch->context, launch->stream, 1, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    bool exec_alive = object_find(KIND_GRAPH_EXEC, exec) != NULL;
    uint64_t before = exec_alive && exec->gpu == gpu ? exec->last_work : 0, last = 0;
    result = submit_segments(launch, before, data_deferred, &last);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH_EXEC, exec) != NULL) {
        exec->gpu = gpu;
        exec->last_work = last;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    struct graph_launch launch = {.stream = hStream};
    struct capture_member *capturing;
    CUresult result = enter_with_queue_space(&launch.context, hStream, 1, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH_EXEC, hGraphExec) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = hGraphExec->graph}};
        return leave(capture_add_node(capturing, &params));
    }
    result = launch_exec(&launch, hGraphExec);
    free(launch.steps);
    free(launch.edges);
    return result;
}
