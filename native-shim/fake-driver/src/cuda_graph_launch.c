/*
 * Launching graphs. A launch is a list of steps, copied from the graph's nodes because the graph may be destroyed while
 * it runs. The steps run in the stream, one after another in the order of capture, also where the captured streams
 * forked.
 *
 * Data: copies and fills run in that order during the call, as everywhere in this driver. Those after a host function
 * run on the driver's thread that calls it, after it has returned. If other host functions are outstanding at the
 * launch, all copies and fills run on that thread, in stream order. Graph memory is allocated and freed during the
 * call.
 *
 * Time: consecutive kernels and fills are one piece of GPU work. Its duration is the sum of theirs, and its number of
 * multiprocessors is their average over time.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_copy.h"
#include "cuda_function.h"
#include "cuda_graph.h"
#include "cuda_graph_memory.h"
#include "cuda_pool.h"

#include <stdlib.h>

#define NONE SIZE_MAX

struct step {
    CUgraphNodeParams params; /* of any type but GRAPH */
    struct gpu_work work;     /* of a kernel, a copy or a fill */
};

struct graph_launch {
    struct step *steps;
    size_t count;
    struct CUctx_st *context;
    CUstream stream;
    uint64_t last; /* the number of the work that was submitted last */
};

/* ---- data ---- */

static bool is_data_step(const struct step *step) {
    return step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY || step->params.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

static void run_data_step(const struct step *step) {
    if (step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        run_memcpy(&step->params.memcpy.copyParams);
    } else if (step->params.type == CU_GRAPH_NODE_TYPE_MEMSET) {
        run_memset(&step->params.memset);
    }
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
    for (size_t i = 0; i < call->count; i++) {
        run_data_step(&call->steps[i]);
    }
    free(call);
}

/* Creates the call for the host function at that step; NONE: for the data steps before the first host function. */
static struct host_node_call *host_node_call_new(const struct graph_launch *launch, size_t at) {
    size_t next = at == NONE ? 0 : at + 1;
    struct host_node_call *call = malloc(sizeof *call + (launch->count - next) * sizeof call->steps[0]);
    if (call == NULL) {
        return NULL;
    }
    call->host = at == NONE ? (CUDA_HOST_NODE_PARAMS_v2){.fn = no_host_function} : launch->steps[at].params.host;
    call->count = 0;
    for (size_t i = next; i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST; i++) {
        if (is_data_step(&launch->steps[i])) {
            call->steps[call->count++] = launch->steps[i];
        }
    }
    return call;
}

/* ---- memory ---- */

/* Runs the memory nodes in order. If one fails, frees the memory that was allocated. Called with the lock held. */
static CUresult run_memory_nodes(const struct graph_launch *launch, bool free_first) {
    CUresult result = CUDA_SUCCESS;
    size_t at = 0;
    for (size_t i = 0; free_first && i < launch->count; i++) {
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            graph_memory_free(graph_memory_find(launch->steps[i].params.alloc.dptr));
        }
    }
    for (; at < launch->count && result == CUDA_SUCCESS; at++) {
        const CUgraphNodeParams *params = &launch->steps[at].params;
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            struct graph_memory *memory = graph_memory_find(params->alloc.dptr);
            do {
                result = graph_memory_allocate(memory);
            } while (result == CUDA_ERROR_OUT_OF_MEMORY && pools_release_unused(graph_memory_device(memory)));
        }
        if (params->type != CU_GRAPH_NODE_TYPE_MEM_FREE) {
            continue;
        }
        struct graph_memory *freed = graph_memory_find(params->free.dptr);
        if (freed == NULL || !graph_memory_is_allocated(freed)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            graph_memory_free(freed);
        }
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i + 1 < at; i++) {
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            graph_memory_free(graph_memory_find(launch->steps[i].params.alloc.dptr));
        }
    }
    return result;
}

/* ---- steps ---- */

static struct gpu_work node_work(const struct graph_launch *launch, const CUgraphNodeParams *params) {
    const struct device *device = stream_context(launch->context, launch->stream)->device;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
        uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
        unsigned threads = kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
        return kernel_work(device, is_function(kernel->func) ? function_name(kernel->func) : "", blocks, threads,
                           kernel->kernelParams, kernel->extra);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const CUDA_MEMCPY3D *copy = &params->memcpy.copyParams;
        enum copy_direction direction = memcpy_reads_host(copy)    ? COPY_HOST_TO_DEVICE
                                        : memcpy_writes_host(copy) ? COPY_DEVICE_TO_HOST
                                                                   : COPY_WITHIN_DEVICE;
        return memcpy_work(direction, copy->WidthInBytes * copy->Height * copy->Depth);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        return memset_work(device, params->memset.width * params->memset.elementSize * params->memset.height);
    }
    return (struct gpu_work){0};
}

static size_t count_steps(CUgraph graph) {
    size_t count = 0;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        count += node->child != NULL ? count_steps(node->child) : 1;
    }
    return count;
}

static void add_steps(struct graph_launch *launch, CUgraph graph) {
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        if (node->child != NULL) {
            add_steps(launch, node->child);
        } else {
            launch->steps[launch->count++] = (struct step){node->params, node_work(launch, &node->params)};
        }
    }
}

/*
 * Submits work once the GPU's queue has space for it and for what depends on it. Called with the lock held; on failure
 * the lock has been released.
 */
static CUresult submit(struct graph_launch *launch, struct gpu_work work) {
    enum { PIECES = 4 };
    struct capture_member *capturing = NULL;
    if (!gpu_has_queue_space(stream_context(launch->context, launch->stream)->device->gpu, PIECES)) {
        leave(CUDA_SUCCESS);
        CUresult result = enter_with_queue_space(&launch->context, launch->stream, PIECES, &capturing);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (capturing != NULL) { /* another thread began a capture meanwhile */
            return leave(CUDA_ERROR_ILLEGAL_STATE);
        }
    }
    launch->last = work_submit(launch->context, launch->stream, work, NULL);
    return CUDA_SUCCESS;
}

/* Adds a kernel's or fill's work to that of its predecessors. A collective in a graph does not wait for its peers. */
static void add_work(struct gpu_work *sum, const struct gpu_work *work) {
    uint64_t ns = sum->ns + work->ns;
    if (ns != 0) {
        sum->sms =
            (uint32_t)(((double)sum->sms * (double)sum->ns + (double)work->sms * (double)work->ns) / (double)ns + 0.5);
    }
    sum->ns = ns < GPU_MAX_WORK_NS ? ns : GPU_MAX_WORK_NS;
}

static CUresult submit_host_node(const struct graph_launch *launch, size_t at) {
    struct host_node_call *call = host_node_call_new(launch, at);
    CUresult result = call != NULL ? work_call_host_function(launch->context, launch->stream, run_host_node_call, call)
                                   : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(call);
    }
    return result;
}

static CUresult submit_stream_step(const struct graph_launch *launch, size_t at) {
    const CUgraphNodeParams *params = &launch->steps[at].params;
    if (params->type == CU_GRAPH_NODE_TYPE_HOST) {
        return submit_host_node(launch, at);
    }
    CUevent event = params->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? params->eventWait.event : params->eventRecord.event;
    if (object_find(KIND_EVENT, event) == NULL) {
        return CUDA_SUCCESS;
    }
    if (params->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        return work_wait_event(launch->context, launch->stream, event);
    }
    capture_forget_event(event);
    work_record_event(launch->context, launch->stream, event);
    return CUDA_SUCCESS;
}

/* Submits the steps, after the work `before`. On failure the lock has been released. */
static CUresult submit_steps(struct graph_launch *launch, uint64_t before, bool data_deferred) {
    struct gpu_work work = {0};
    CUresult result = submit(launch, (struct gpu_work){.after = {before}});
    if (result == CUDA_SUCCESS && data_deferred) {
        result = submit_host_node(launch, NONE);
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
    }
    for (size_t i = 0; i < launch->count && result == CUDA_SUCCESS; i++) {
        const struct step *step = &launch->steps[i];
        switch ((int)step->params.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMSET:
            add_work(&work, &step->work);
            break;
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            result = submit(launch, work);
            work = (struct gpu_work){0};
            if (result == CUDA_SUCCESS) {
                result = submit(launch, step->work);
            }
            break;
        case CU_GRAPH_NODE_TYPE_HOST:
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            result = submit(launch, work);
            work = (struct gpu_work){0};
            if (result == CUDA_SUCCESS && (result = submit_stream_step(launch, i)) != CUDA_SUCCESS) {
                return leave(result);
            }
            break;
        default: /* memory */
            break;
        }
    }
    return result == CUDA_SUCCESS ? submit(launch, work) : result;
}

/* Whether there are data steps before the first host function. */
static bool has_data_before_host_node(const struct graph_launch *launch) {
    size_t i = 0;
    while (i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST &&
           !is_data_step(&launch->steps[i])) {
        i++;
    }
    return i < launch->count && is_data_step(&launch->steps[i]);
}

static CUresult launch_exec(struct graph_launch *launch, CUgraphExec exec) {
    bool auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    gpu_file *gpu = stream_context(launch->context, launch->stream)->device->gpu;
    launch->steps = malloc((count_steps(exec->graph) + 1) * sizeof launch->steps[0]);
    if (launch->steps == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    add_steps(launch, exec->graph);
    CUresult result = run_memory_nodes(launch, auto_free);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    bool data_deferred = work_has_host_functions() && has_data_before_host_node(launch);
    leave(result);
    for (size_t i = 0; !data_deferred && i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST;
         i++) {
        run_data_step(&launch->steps[i]);
    }
    struct capture_member *capturing;
    result = enter_with_queue_space(&launch->context, launch->stream, 1, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool exec_alive = object_find(KIND_GRAPH_EXEC, exec) != NULL;
    result = submit_steps(launch, exec_alive && exec->gpu == gpu ? exec->last_work : 0, data_deferred);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_GRAPH_EXEC, exec) != NULL) {
        exec->gpu = gpu;
        exec->last_work = launch->last;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    struct graph_launch launch = {.stream = hStream};
    struct capture_member *capturing;
    CUresult result = enter_with_queue_space(&launch.context, hStream, 1, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_GRAPH_EXEC, hGraphExec) == NULL) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = hGraphExec->graph}};
        return leave(capture_add_node(capturing, CUDA_SUCCESS, &params));
    }
    result = launch_exec(&launch, hGraphExec);
    free(launch.steps);
    return result;
}
