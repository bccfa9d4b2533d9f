/*
 * Stream capture: work that is submitted to a capturing stream becomes nodes of a graph. A stream takes part in a
 * capture from cuStreamBeginCapture on, or from the time it waits for an event of a stream that takes part. For each
 * of these streams, the capture stores the dependencies of the next node.
 *
 * The rules are those of cuda.h 13.0 and of the CUDA C++ Programming Guide 13, "Creating a Graph Using Stream
 * Capture". A call that is not allowed invalidates the capture. An invalid capture can only be ended.
 *
 * All collections are lists, because captures are few and short.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct capture {
    unsigned long long id;
    CUgraph graph; /* deleted when the capture becomes invalid, if own_graph */
    bool own_graph;
    bool invalid;
    CUstreamCaptureMode mode;
    unsigned long long thread;      /* the thread that began the capture */
    struct capture_member *members; /* the stream that began the capture is the last in the list */
    struct capture *next;
};

struct capture_member {
    struct capture *capture;
    struct CUctx_st *context;
    CUstream stream;
    unsigned long long thread; /* the owning thread, for a per-thread default stream */
    bool blocking;             /* the stream and the legacy stream wait for each other */
    bool origin;
    struct edges dependencies;
    struct capture_member *next;
};

/*
 * An event whose last record was in a capture. The entry exists until the event is destroyed or recorded outside of a
 * capture, also after the capture has ended.
 */
struct captured_event {
    CUevent event;
    unsigned long long capture;
    struct edges dependencies;
};

static struct capture *captures;
static void *captured_events; /* tree of struct captured_event, by the event's address */
static unsigned long long last_capture_id;

static _Thread_local CUstreamCaptureMode thread_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static unsigned long long thread_number(void) {
    static unsigned long long last_thread;
    static _Thread_local unsigned long long own;
    if (own == 0) {
        own = ++last_thread;
    }
    return own;
}

/* ---- captures and their streams ---- */

static struct capture_member *find_member(struct CUctx_st *context, CUstream stream) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (struct capture_member *member = capture->members; member != NULL; member = member->next) {
            if (member->stream == stream &&
                (stream != PER_THREAD_STREAM || (member->context == context && member->thread == thread_number()))) {
                return member;
            }
        }
    }
    return NULL;
}

static struct capture_member *join_capture(struct capture *capture, struct CUctx_st *context, CUstream stream) {
    struct capture_member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        return NULL;
    }
    *member = (struct capture_member){.capture = capture,
                                      .context = context,
                                      .stream = stream,
                                      .thread = thread_number(),
                                      .blocking = is_blocking_stream(stream),
                                      .origin = capture->members == NULL,
                                      .next = capture->members};
    capture->members = member;
    return member;
}

/* Deletes the capture's own graph immediately, because its nodes may be incomplete. */
static CUresult invalidate(struct capture *capture, CUresult result) {
    capture->invalid = true;
    capture->graph->capturing = false;
    if (capture->own_graph) {
        for (struct capture_member *member = capture->members; member != NULL; member = member->next) {
            edges_free(&member->dependencies);
        }
        graph_delete(capture->graph);
    }
    return result;
}

static CUresult invalidate_once(struct capture *capture, CUresult result) {
    return capture->invalid ? result : invalidate(capture, result);
}

static void end_capture(struct capture *capture) {
    struct capture **link = &captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    while (capture->members != NULL) {
        struct capture_member *member = capture->members;
        capture->members = member->next;
        edges_free(&member->dependencies);
        free(member);
    }
    free(capture);
}

/*
 * Finds a capture that contains a blocking stream of this context. The legacy stream cannot be used until that capture
 * ends, because it would wait for that stream.
 */
static struct capture *blocking_capture(struct CUctx_st *context) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (struct capture_member *member = capture->members; member != NULL; member = member->next) {
            if (member->blocking && member->context == context) {
                return capture;
            }
        }
    }
    return NULL;
}

CUresult capture_find(struct CUctx_st *context, CUstream stream, struct capture_member **capturing) {
    *capturing = NULL;
    if (captures == NULL) {
        return CUDA_SUCCESS;
    }
    if (is_legacy_stream(stream)) {
        struct capture *capture = blocking_capture(context);
        return capture != NULL ? invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
    }
    struct capture_member *member = find_member(context, stream);
    if (member != NULL && member->capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *capturing = member;
    return CUDA_SUCCESS;
}

CUresult enter_with_queue_space(struct CUctx_st **context, CUstream stream, unsigned pieces,
                                struct capture_member **capturing) {
    for (;;) {
        CUresult result = enter_context(context);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        result = check_stream(stream);
        if (result == CUDA_SUCCESS) {
            result = capture_find(stream_context(*context, stream), stream, capturing);
        }
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
        if (*capturing != NULL) {
            return CUDA_SUCCESS;
        }
        gpu_file *gpu = stream_context(*context, stream)->device->gpu;
        if (gpu_has_queue_space(gpu, pieces)) {
            return CUDA_SUCCESS;
        }
        leave(CUDA_SUCCESS);
        gpu_wait_for_queue_space(gpu, pieces);
    }
}

CUresult capture_add_node(struct capture_member *member, CUresult checked, const CUgraphNodeParams *params) {
    CUgraphNode node;
    CUresult result = checked;
    if (result == CUDA_SUCCESS) {
        result = graph_node_add(member->capture->graph, &member->dependencies, params, &node);
    }
    if (result != CUDA_SUCCESS) {
        return invalidate(member->capture, result);
    }
    member->dependencies.count = 0;
    return edges_add(&member->dependencies, node) ? CUDA_SUCCESS
                                                  : invalidate(member->capture, CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult capture_add_allocation(struct capture_member *member, CUdevice device, size_t bytes, CUdeviceptr *address) {
    const CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
                  .bytesize = bytes}};
    CUresult result = capture_add_node(member, CUDA_SUCCESS, &params);
    if (result == CUDA_SUCCESS) {
        *address = member->dependencies.nodes[0]->params.alloc.dptr;
    }
    return result;
}

CUresult capture_reject(struct capture_member *member) {
    return invalidate(member->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* ---- calls that are unsafe during a capture ---- */

CUresult capture_check_unsafe_call(void) {
    CUresult result = CUDA_SUCCESS;
    if (captures == NULL || thread_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        bool forbids = capture->thread == thread_number() ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                                          : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                                thread_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) {
            result = invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

CUresult capture_check_stream_wait(struct CUctx_st *context, CUstream stream) {
    struct capture_member *member;
    CUresult result = capture_find(context, stream, &member);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return member != NULL ? capture_reject(member) : capture_check_unsafe_call();
}

CUresult capture_check_context_wait(struct CUctx_st *context) {
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (struct capture_member *member = capture->members; member != NULL; member = member->next) {
            if (member->context == context) {
                result = invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
        }
    }
    return result == CUDA_SUCCESS ? capture_check_unsafe_call() : result;
}

/* ---- events ---- */

static int compare_captured_events(const void *a, const void *b) {
    const struct captured_event *left = a, *right = b;
    return left->event < right->event ? -1 : left->event > right->event;
}

static struct captured_event *find_captured_event(CUevent event) {
    struct captured_event wanted = {.event = event};
    struct captured_event *const *found =
        captured_events != NULL ? tfind(&wanted, &captured_events, compare_captured_events) : NULL;
    return found != NULL ? *found : NULL;
}

bool capture_has_event(CUevent event) {
    return find_captured_event(event) != NULL;
}

void capture_forget_event(CUevent event) {
    struct captured_event *captured = find_captured_event(event);
    if (captured == NULL) {
        return;
    }
    tdelete(captured, &captured_events, compare_captured_events);
    edges_free(&captured->dependencies);
    free(captured);
}

static struct capture *find_capture(unsigned long long id) {
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

CUresult capture_check_event_wait(CUevent event) {
    const struct captured_event *captured = find_captured_event(event);
    if (captured == NULL) {
        return capture_check_unsafe_call();
    }
    struct capture *capture = find_capture(captured->capture);
    return capture != NULL ? invalidate_once(capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_event_record(struct capture_member *member, CUevent event, unsigned flags) {
    if (flags == CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
        return capture_add_node(member, CUDA_SUCCESS, &params);
    }
    struct captured_event *captured = find_captured_event(event);
    if (captured == NULL) {
        captured = calloc(1, sizeof *captured);
        if (captured == NULL) {
            return invalidate(member->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
        captured->event = event;
        if (tsearch(captured, &captured_events, compare_captured_events) == NULL) {
            free(captured);
            return invalidate(member->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    captured->capture = member->capture->id;
    captured->dependencies.count = 0;
    return edges_add_all(&captured->dependencies, &member->dependencies)
               ? CUDA_SUCCESS
               : invalidate(member->capture, CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult capture_event_wait(struct CUctx_st *context, CUstream stream, struct capture_member *member, CUevent event,
                            unsigned flags) {
    const struct captured_event *captured = find_captured_event(event);
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
        return member != NULL ? capture_add_node(member, CUDA_SUCCESS, &params) : CUDA_ERROR_INVALID_VALUE;
    }
    if (captured == NULL) {
        return invalidate(member->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    struct capture *capture = find_capture(captured->capture);
    if (capture == NULL) {
        return member != NULL ? invalidate(member->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                              : CUDA_ERROR_CAPTURED_EVENT;
    }
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (member != NULL && member->capture != capture) {
        invalidate(member->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (member == NULL && is_legacy_stream(stream)) { /* the legacy stream cannot take part in a capture */
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (member == NULL) {
        member = join_capture(capture, context, stream);
    }
    if (member == NULL || !edges_add_all(&member->dependencies, &captured->dependencies)) {
        return invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

void capture_forget_stream(CUstream stream) {
    struct capture_member *member = find_member(NULL, stream);
    if (member == NULL) {
        return;
    }
    struct capture *capture = member->capture;
    invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (member->origin) { /* the capture cannot be ended without its first stream */
        end_capture(capture);
        return;
    }
    struct capture_member **link = &capture->members;
    while (*link != member) {
        link = &(*link)->next;
    }
    *link = member->next;
    edges_free(&member->dependencies);
    free(member);
}

void capture_forget_context(const struct CUctx_st *context) {
    for (struct capture *capture = captures, *next; capture != NULL; capture = next) {
        bool has_member = false;
        next = capture->next;
        for (const struct capture_member *member = capture->members; member != NULL; member = member->next) {
            has_member |= member->context == context;
        }
        if (!has_member) {
            continue;
        }
        invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        end_capture(capture);
    }
}

/* ---- API functions ---- */

static CUresult resolve_dependencies(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
                                     struct edges *edges) {
    static const CUgraphEdgeData default_edge;
    if (count != 0 && nodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (object_find(KIND_GRAPH_NODE, nodes[i]) == NULL || nodes[i]->graph != graph) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (data != NULL && memcmp(&data[i], &default_edge, sizeof default_edge) != 0) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (!edges_add(edges, nodes[i])) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

/* If graph is NULL, the capture creates its own graph. */
static CUresult begin_capture(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                              size_t count, CUstreamCaptureMode mode) {
    struct CUctx_st *context;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_stream_context(stream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_legacy_stream(stream)) {
        return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (find_member(context, stream) != NULL || (graph != NULL && graph->capturing)) {
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    struct edges edges = {0};
    struct capture *capture = calloc(1, sizeof *capture);
    struct capture_member *member = capture != NULL ? join_capture(capture, context, stream) : NULL;
    bool own_graph = graph == NULL;
    if (own_graph && member != NULL) {
        graph = graph_new();
    }
    result = member == NULL || graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                             : resolve_dependencies(graph, nodes, data, count, &edges);
    if (result != CUDA_SUCCESS) {
        edges_free(&edges);
        if (own_graph && graph != NULL) {
            graph_delete(graph);
        }
        free(member);
        free(capture);
        return leave(result);
    }
    graph->capturing = true;
    member->dependencies = edges;
    capture->id = ++last_capture_id;
    capture->graph = graph;
    capture->own_graph = own_graph;
    capture->mode = mode;
    capture->thread = thread_number();
    capture->next = captures;
    captures = capture;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return begin_capture(hStream, NULL, NULL, NULL, 0, mode);
}

API CUresult cuStreamBeginCapture(CUstream hStream) {
    return begin_capture(hStream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

API CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                         const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                         CUstreamCaptureMode mode) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (leave(object_find(KIND_GRAPH, hGraph) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return begin_capture(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

/* Whether the next node of the origin stream would depend on everything that the other streams have captured. */
static bool all_members_joined(const struct capture *capture, const struct capture_member *origin) {
    for (CUgraphNode node = capture->graph->first; node != NULL; node = node->next) {
        node->scratch = 0;
    }
    CUgraphNode *reached = malloc((capture->graph->node_count + 1) * sizeof *reached);
    size_t count = 0;
    if (reached == NULL) {
        return false;
    }
    const struct edges *edges = &origin->dependencies;
    for (size_t next = 0;; edges = &reached[next++]->dependencies) {
        for (size_t i = 0; i < edges->count; i++) {
            if (edges->nodes[i]->scratch++ == 0) {
                reached[count++] = edges->nodes[i];
            }
        }
        if (next == count) {
            break;
        }
    }
    free(reached);
    for (const struct capture_member *member = capture->members; member != NULL; member = member->next) {
        for (size_t i = 0; i < member->dependencies.count; i++) {
            if (member->dependencies.nodes[i]->scratch == 0) {
                return false;
            }
        }
    }
    return true;
}

API CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    struct CUctx_st *context;
    if (phGraph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phGraph = NULL;
    CUresult result = enter_stream_context(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct capture_member *member = is_legacy_stream(hStream) ? NULL : find_member(context, hStream);
    if (member == NULL) {
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    struct capture *capture = member->capture;
    if (!member->origin) {
        return leave(invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number()) {
        return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    if (capture->invalid) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!all_members_joined(capture, member)) {
        result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    } else {
        capture->graph->capturing = false;
        *phGraph = capture->graph;
    }
    end_capture(capture);
    return leave(result);
}

/* Enters the stream's context and returns the stream's capture status. A query invalidates nothing. */
static CUresult enter_capture_status(CUstream stream, CUstreamCaptureStatus *status, struct capture_member **member) {
    struct CUctx_st *context;
    CUresult result = enter_stream_context(stream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *member = NULL;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (is_legacy_stream(stream)) {
        return blocking_capture(context) == NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    *member = find_member(context, stream);
    if (*member != NULL) {
        *status = (*member)->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    struct capture_member *member;
    if (captureStatus == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_capture_status(hStream, captureStatus, &member);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

static CUresult get_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                 const CUgraphNode **dependencies, const CUgraphEdgeData **data, size_t *count) {
    struct capture_member *member;
    if (status == NULL || (data != NULL && dependencies == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_capture_status(stream, status, &member);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (member == NULL || member->capture->invalid) {
        return leave(CUDA_SUCCESS);
    }
    const struct edges *edges = &member->dependencies;
    if (id != NULL) {
        *id = member->capture->id;
    }
    if (graph != NULL) {
        *graph = member->capture->graph;
    }
    if (dependencies != NULL) {
        *dependencies = edges->nodes;
    }
    if (data != NULL) {
        *data = edges->data;
    }
    if (count != NULL) {
        *count = edges->count;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                       CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                       const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out) {
    return get_capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                            numDependencies_out);
}

API CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                       CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                       size_t *numDependencies_out) {
    return get_capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL, numDependencies_out);
}

API CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out) {
    return get_capture_info(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                  const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                  unsigned int flags) {
    CUstreamCaptureStatus status;
    struct capture_member *member;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_capture_status(hStream, &status, &member);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (member == NULL) {
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    if (member->capture->invalid) {
        return leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    struct edges edges = {0};
    if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && !edges_add_all(&edges, &member->dependencies)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = resolve_dependencies(member->capture->graph, dependencies, dependencyData, numDependencies, &edges);
    }
    if (result == CUDA_SUCCESS) {
        struct edges before = member->dependencies;
        member->dependencies = edges;
        edges = before;
    }
    edges_free(&edges);
    return leave(result);
}

API CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
                                               unsigned int flags) {
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = thread_capture_mode;
    thread_capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
