/*
 * Launching graphs. A launch is a list of steps in an order that the graph allows, copied from its nodes, since the
 * graph may change while it runs.
 *
 * Data: copies and fills are done in that order, as everywhere in this driver when the call is made; but from the first
 * host function on in the driver's thread that calls it, after it has returned, and all of them there, in the stream's
 * order, while other host functions are yet to be called. Memory is taken and given back when the call is made.
 *
 * Time: steps that follow each other and nothing else, and that fill multiprocessors, are one piece of the GPU's work,
 * as long as all of them and as wide as they are on average. What the launch begins with is in the stream's queue;
 * where the graph branches, one branch goes on in the queue of what it comes after, the others go into queues of their
 * own. In the end the stream waits for all of them. Host functions and events are always in the stream's queue.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_pool.h"
#include "cuda_work.h"

#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX

enum { IN_STREAM = 0, BRANCHES = GPU_QUEUES - GPU_BARRIER_QUEUES };

struct step {
    CUgraphNodeParams params; /* of type EMPTY for the beginning and the end of a graph within the graph */
    bool disabled;
    size_t first, count; /* the steps that come before it: so many of edges, from first on */
    size_t dependents;
    size_t lead;          /* the first step of its piece of work */
    struct gpu_work work; /* of a lead: of the whole piece */
    uint64_t number;      /* of a lead: of its work, once that has been put; 0: not yet, or it needs none */
    unsigned lane;        /* of a lead: IN_STREAM, or 1 + the branch */
};

struct launch {
    struct step *steps;
    size_t count, room;
    size_t *edges;
    size_t edge_count, edge_room;
    /* Of each lane, the lead that was put there last. */
    size_t latest[1 + BRANCHES];
    unsigned branches;
    uint64_t start; /* the mark in the stream that everything comes after */
    struct CUctx_st *context;
    CUstream stream;
};

static bool grow(void **list, size_t *room, size_t count, size_t size) {
    if (count < *room)
        return true;
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *grown = realloc(*list, more * size);
    if (grown == NULL)
        return false;
    *list = grown;
    *room = more;
    return true;
}

static bool add_edge(struct launch *launch, size_t from) {
    struct step *step = &launch->steps[launch->count - 1];
    if (!grow((void **)&launch->edges, &launch->edge_room, launch->edge_count, sizeof launch->edges[0]))
        return false;
    launch->edges[launch->edge_count++] = from;
    launch->steps[from].dependents++;
    step->count++;
    return true;
}

static bool add_step(struct launch *launch, const CUgraphNodeParams *params, bool disabled) {
    if (!grow((void **)&launch->steps, &launch->room, launch->count, sizeof launch->steps[0]))
        return false;
    launch->steps[launch->count] =
        (struct step){.params = *params, .disabled = disabled, .first = launch->edge_count, .lead = launch->count};
    launch->count++;
    return true;
}

/* Adds the graph's steps after the step entry (NONE: after nothing). Each node's mark is then the step that ends it. */
static bool plan(struct launch *launch, CUgraph graph, size_t entry) {
    static const CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUgraphNode culprit;
    CUgraphNode *order = graph_order(graph, &culprit);
    bool planned = order != NULL;
    for (size_t i = 0; planned && i < graph->nodes; i++) {
        CUgraphNode node = order[i];
        planned = add_step(launch, node->child != NULL ? &empty : &node->params, node->disabled);
        for (size_t n = 0; planned && n < node->dependencies.count; n++)
            planned = add_edge(launch, node->dependencies.nodes[n]->mark);
        if (planned && node->dependencies.count == 0 && entry != NONE)
            planned = add_edge(launch, entry);
        if (planned && node->child != NULL) {
            size_t within = launch->count - 1;
            planned = plan(launch, node->child, within) && add_step(launch, &empty, false) && add_edge(launch, within);
            for (CUgraphNode inner = node->child->first; planned && inner != NULL; inner = inner->next)
                if (inner->dependents.count == 0)
                    planned = add_edge(launch, inner->mark);
        }
        node->mark = launch->count - 1;
    }
    free(order);
    return planned;
}

/* ---- data ---- */

static void move_data(const struct step *step) {
    if (step->disabled)
        return;
    if (step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY)
        do_copy(&step->params.memcpy.copyParams);
    else if (step->params.type == CU_GRAPH_NODE_TYPE_MEMSET)
        do_fill(&step->params.memset);
}

static void do_nothing(void *unused) {
    (void)unused;
}

/* A host function, and what is to be done with data after it and before the next one. */
struct call {
    CUDA_HOST_NODE_PARAMS_v2 host;
    size_t count;
    struct step steps[];
};

static void make_call(void *data) {
    struct call *call = data;
    call->host.fn(call->host.userData);
    for (size_t i = 0; i < call->count; i++)
        move_data(&call->steps[i]);
    free(call);
}

static bool moves_data(const struct step *step) {
    return step->params.type == CU_GRAPH_NODE_TYPE_MEMCPY || step->params.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

/* For the host function at that step; NONE: for what comes before the first of them. */
static struct call *call_new(const struct launch *launch, size_t at) {
    size_t next = at == NONE ? 0 : at + 1;
    struct call *call = malloc(sizeof *call + (launch->count - next) * sizeof call->steps[0]);
    if (call == NULL)
        return NULL;
    call->host = at == NONE ? (CUDA_HOST_NODE_PARAMS_v2){.fn = do_nothing} : launch->steps[at].params.host;
    call->count = 0;
    for (size_t i = next; i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST; i++)
        if (moves_data(&launch->steps[i]))
            call->steps[call->count++] = launch->steps[i];
    return call;
}

/* ---- memory ---- */

/* Takes and gives back in order; where that fails, what was taken goes back. With the lock held. */
static CUresult take_memory(const struct launch *launch, bool free_first) {
    CUresult result = CUDA_SUCCESS;
    size_t at = 0;
    for (size_t i = 0; free_first && i < launch->count; i++)
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_give_back(graph_memory_find(launch->steps[i].params.alloc.dptr));
    for (; at < launch->count && result == CUDA_SUCCESS; at++) {
        const CUgraphNodeParams *params = &launch->steps[at].params;
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            result = graph_memory_take(graph_memory_find(params->alloc.dptr));
        if (params->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
            continue;
        struct graph_memory *freed = graph_memory_find(params->free.dptr);
        if (freed == NULL || !graph_memory_is_taken(freed))
            result = CUDA_ERROR_INVALID_VALUE;
        else
            graph_memory_give_back(freed);
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i + 1 < at; i++)
        if (launch->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_give_back(graph_memory_find(launch->steps[i].params.alloc.dptr));
    return result;
}

/* ---- time ---- */

static struct gpu_work work_of(const struct launch *launch, const struct step *step) {
    const struct device *device = work_context(launch->context, launch->stream)->device;
    const CUgraphNodeParams *params = &step->params;
    if (step->disabled)
        return (struct gpu_work){0};
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
        CUfunction function = kernel->func != NULL ? kernel->func : (CUfunction)(void *)kernel->kern;
        uint64_t blocks = (uint64_t)kernel->gridDimX * kernel->gridDimY * kernel->gridDimZ;
        unsigned threads = kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;
        return kernel_work(device, is_function(function) ? function_name(function) : "", blocks, threads,
                           kernel->kernelParams, kernel->extra);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const CUDA_MEMCPY3D *copied = &params->memcpy.copyParams;
        enum way way = copies_from_host(copied) ? WAY_IN : copies_to_host(copied) ? WAY_OUT : WAY_WITHIN;
        return copy_work(way, copied->WidthInBytes * copied->Height * copied->Depth);
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return fill_work(device, params->memset.width * params->memset.elementSize * params->memset.height);
    return (struct gpu_work){0};
}

static bool stays_in_stream(const struct step *step) {
    return step->params.type == CU_GRAPH_NODE_TYPE_HOST || step->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
           step->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

/* Makes pieces of work of the steps. */
static void join_steps(struct launch *launch) {
    for (size_t i = 0; i < launch->count; i++) {
        struct step *step = &launch->steps[i];
        step->work = work_of(launch, step);
        if (step->count != 1 || stays_in_stream(step) || (step->work.flags != 0 && step->work.ns != 0))
            continue;
        const struct step *before = &launch->steps[launch->edges[step->first]];
        struct step *lead = &launch->steps[before->lead];
        if (before->dependents != 1 || stays_in_stream(lead) || lead->work.flags != 0)
            continue;
        uint64_t ns = lead->work.ns + step->work.ns;
        if (ns != 0)
            lead->work.sms = (uint32_t)(((double)lead->work.sms * (double)lead->work.ns +
                                         (double)step->work.sms * (double)step->work.ns) /
                                            (double)ns +
                                        0.5);
        lead->work.ns = ns < GPU_MAX_WORK_NS ? ns : GPU_MAX_WORK_NS;
        step->lead = before->lead;
    }
}

/*
 * Room for pieces of work, as enter_with_room, but with the lock held already, and again afterwards, unless it fails:
 * then it isn't.
 */
static CUresult make_room(struct launch *launch, unsigned pieces) {
    struct capturing *capturing;
    if (gpu_has_queue_space(work_context(launch->context, launch->stream)->device->gpu, pieces))
        return CUDA_SUCCESS;
    leave(CUDA_SUCCESS);
    CUresult result = enter_with_room(&launch->context, launch->stream, pieces, &capturing);
    if (result == CUDA_SUCCESS && capturing != NULL) /* another thread began one meanwhile */
        result = leave(CUDA_ERROR_ILLEGAL_STATE);
    return result;
}

static uint64_t put(struct launch *launch, unsigned lane, struct gpu_work work) {
    return lane == IN_STREAM ? work_put(launch->context, launch->stream, work, NULL)
                             : work_put_beside(launch->context, launch->stream, lane - 1, work);
}

static unsigned lane_for(struct launch *launch, const struct step *step, size_t at) {
    if (stays_in_stream(step))
        return IN_STREAM;
    for (size_t i = 0; i < step->count; i++) {
        size_t before = launch->steps[launch->edges[step->first + i]].lead;
        if (launch->latest[launch->steps[before].lane] == before)
            return launch->steps[before].lane;
    }
    if (at == 0)
        return IN_STREAM;
    return 1 + launch->branches++ % BRANCHES;
}

/* Whether there are data to be moved before any host function. */
static bool begins_with_data(const struct launch *launch) {
    size_t i = 0;
    while (i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST &&
           !moves_data(&launch->steps[i]))
        i++;
    return i < launch->count && moves_data(&launch->steps[i]);
}

static CUresult put_call(const struct launch *launch, size_t at) {
    struct call *call = call_new(launch, at);
    CUresult result =
        call != NULL ? work_call(launch->context, launch->stream, make_call, call) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        free(call);
    return result;
}

/* Puts the piece that begins with this step behind those that it comes after. Without the lock if it fails. */
static CUresult put_piece(struct launch *launch, size_t at) {
    struct step *step = &launch->steps[at];
    unsigned lane = lane_for(launch, step, at);
    uint64_t after = lane != IN_STREAM && launch->latest[lane] == NONE ? launch->start : 0;
    for (size_t i = 0; i < step->count; i++) {
        const struct step *before = &launch->steps[launch->steps[launch->edges[step->first + i]].lead];
        if (before->lane == lane || before->number == 0)
            continue;
        if (after != 0 && after != launch->start) { /* a mark for all but the last of them */
            CUresult result = make_room(launch, 1);
            if (result != CUDA_SUCCESS)
                return result;
            (void)put(launch, lane, (struct gpu_work){.after = {after}});
        }
        after = before->number;
    }
    CUresult result = make_room(launch, 4);
    if (result != CUDA_SUCCESS)
        return result;
    step->lane = lane;
    launch->latest[lane] = at;
    step->work.after[0] = after;
    if (!stays_in_stream(step) || after != 0)
        step->number = put(launch, lane, step->work);
    if (step->params.type == CU_GRAPH_NODE_TYPE_HOST) {
        result = put_call(launch, at);
    } else if (step->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        if (object_find(KIND_EVENT, step->params.eventWait.event) != NULL)
            result = work_wait_for(launch->context, launch->stream, step->params.eventWait.event);
    } else if (step->params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        if (object_find(KIND_EVENT, step->params.eventRecord.event) != NULL) {
            capture_forget_event(step->params.eventRecord.event);
            work_record(launch->context, launch->stream, step->params.eventRecord.event);
        }
    }
    if (stays_in_stream(step)) /* what comes after it in other queues comes after this */
        step->number = work_put(launch->context, launch->stream, (struct gpu_work){0}, NULL);
    return result == CUDA_SUCCESS ? result : leave(result);
}

/* Puts all of it, between a mark that comes after the graph's launch before this one and one that ends it. */
static CUresult put_all(struct launch *launch, uint64_t before, bool data_is_late, uint64_t *last) {
    CUresult result = make_room(launch, 4);
    if (result != CUDA_SUCCESS)
        return result;
    launch->start = put(launch, IN_STREAM, (struct gpu_work){.after = {before}});
    if (data_is_late) {
        result = put_call(launch, NONE);
        if (result != CUDA_SUCCESS)
            return leave(result);
        launch->start = put(launch, IN_STREAM, (struct gpu_work){0});
    }
    for (unsigned lane = 0; lane <= BRANCHES; lane++)
        launch->latest[lane] = NONE;
    for (size_t i = 0; i < launch->count; i++) {
        if (launch->steps[i].lead != i)
            continue;
        result = put_piece(launch, i);
        if (result != CUDA_SUCCESS)
            return result;
    }
    *last = launch->start;
    for (unsigned lane = 1; lane <= BRANCHES; lane++) {
        if (launch->latest[lane] == NONE)
            continue;
        result = make_room(launch, 1);
        if (result != CUDA_SUCCESS)
            return result;
        *last = put(launch, IN_STREAM, (struct gpu_work){.after = {launch->steps[launch->latest[lane]].number}});
    }
    if (launch->latest[IN_STREAM] != NONE && *last == launch->start)
        *last = launch->steps[launch->latest[IN_STREAM]].number;
    return CUDA_SUCCESS;
}

static CUresult launch_all(struct launch *launch, CUgraphExec exec) {
    bool auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    gpu_file *gpu = work_context(launch->context, launch->stream)->device->gpu;
    if (!plan(launch, exec->graph, NONE))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    join_steps(launch); /* while what nodes' parameters point to is there */
    CUresult result = take_memory(launch, auto_free);
    if (result != CUDA_SUCCESS)
        return leave(result);
    bool data_is_late = work_has_calls() && begins_with_data(launch);
    leave(result);
    for (size_t i = 0; !data_is_late && i < launch->count && launch->steps[i].params.type != CU_GRAPH_NODE_TYPE_HOST;
         i++)
        move_data(&launch->steps[i]);
    struct capturing *capturing;
    result = enter_with_room(&launch->context, launch->stream, 1, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    bool lives = object_find(KIND_GRAPH_EXEC, exec) != NULL;
    uint64_t before = lives && exec->gpu == gpu ? exec->last : 0, last = 0;
    result = put_all(launch, before, data_is_late, &last);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH_EXEC, exec) != NULL) {
        exec->gpu = gpu;
        exec->last = last;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    struct launch launch = {.stream = hStream};
    struct capturing *capturing;
    CUresult result = enter_with_room(&launch.context, hStream, 1, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH_EXEC, hGraphExec) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = hGraphExec->graph}};
        return leave(capture_node(capturing, &params));
    }
    result = launch_all(&launch, hGraphExec);
    free(launch.steps);
    free(launch.edges);
    return result;
}
