/*
 * Stream capture: instead of being done, what is put into a capturing stream becomes nodes of a graph. A stream takes
 * part in a capture from cuStreamBeginCapture on it, or from the moment at which it waits for an event of a stream that
 * takes part. Of each of these streams is known what its next node depends on. The rules are those of cuda.h 13.0 and
 * of the CUDA C++ Programming Guide 13, "Creating a Graph Using Stream Capture"; what isn't allowed makes a capture
 * invalid, and then nothing is but to end it.
 *
 * Captures are few and short, so all of this is lists.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_work.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct capture {
    unsigned long long id;
    CUgraph graph; /* NULL once it has become invalid and the graph was the capture's own */
    bool own_graph;
    bool invalid;
    CUstreamCaptureMode mode;
    unsigned long long thread; /* that began it */
    struct capturing *streams; /* the origin is the last of them */
    struct capture *next;
};

struct capturing {
    struct capture *capture;
    struct CUctx_st *context;
    CUstream stream;
    unsigned long long thread; /* whose default stream it is, if it is a thread's */
    bool blocking;             /* it and the legacy stream wait for each other */
    bool origin;
    struct edges dependencies;
    struct capturing *next;
};

/* An event that was last recorded in a capture, also when that has ended. */
struct captured_event {
    CUevent event;
    unsigned long long capture;
    struct edges dependencies;
};

static struct capture *captures;
static void *events; /* tree of captured events, by the event's address */
static unsigned long long last_id;

static _Thread_local CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static unsigned long long this_thread(void) {
    static unsigned long long last_thread;
    static _Thread_local unsigned long long own;
    if (own == 0)
        own = ++last_thread;
    return own;
}

/* ---- captures and their streams ---- */

static struct capturing *find(struct CUctx_st *context, CUstream stream) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        for (struct capturing *part = capture->streams; part != NULL; part = part->next)
            if (part->stream == stream &&
                (stream != PER_THREAD_STREAM || (part->context == context && part->thread == this_thread())))
                return part;
    return NULL;
}

static struct capturing *join(struct capture *capture, struct CUctx_st *context, CUstream stream) {
    struct capturing *part = calloc(1, sizeof *part);
    if (part == NULL)
        return NULL;
    *part = (struct capturing){.capture = capture,
                               .context = context,
                               .stream = stream,
                               .thread = this_thread(),
                               .blocking = is_blocking(stream),
                               .origin = capture->streams == NULL,
                               .next = capture->streams};
    capture->streams = part;
    return part;
}

/* The graph goes at once: its nodes may have been half made. */
static CUresult invalidate(struct capture *capture, CUresult result) {
    capture->invalid = true;
    capture->graph->capturing = false;
    if (capture->own_graph) {
        for (struct capturing *part = capture->streams; part != NULL; part = part->next)
            edges_free(&part->dependencies);
        graph_delete(capture->graph);
    }
    return result;
}

static CUresult invalidate_once(struct capture *capture, CUresult result) {
    return capture->invalid ? result : invalidate(capture, result);
}

static void end(struct capture *capture) {
    struct capture **at = &captures;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    while (capture->streams != NULL) {
        struct capturing *part = capture->streams;
        capture->streams = part->next;
        edges_free(&part->dependencies);
        free(part);
    }
    free(capture);
}

static bool is_legacy(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM;
}

/* The capture of a stream that waits for the legacy stream, and that the legacy stream so cannot be used beside. */
static struct capture *blocking_capture(struct CUctx_st *context) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        for (struct capturing *part = capture->streams; part != NULL; part = part->next)
            if (part->blocking && part->context == context)
                return capture;
    return NULL;
}

CUresult capture_of(struct CUctx_st *context, CUstream stream, struct capturing **capturing) {
    *capturing = NULL;
    if (captures == NULL)
        return CUDA_SUCCESS;
    if (is_legacy(stream)) {
        struct capture *capture = blocking_capture(context);
        return capture != NULL ? invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
    }
    struct capturing *part = find(context, stream);
    if (part != NULL && part->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *capturing = part;
    return CUDA_SUCCESS;
}

CUresult capture_kernel(struct capturing *part, const CUgraphNodeParams *params, const CUlaunchAttribute *attributes,
                        unsigned count) {
    static const CUgraphEdgeData plain;
    CUgraphNode node;
    CUresult result = node_add(part->capture->graph, &part->dependencies, params, &node);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        if ((unsigned)attributes[i].id < ATTRIBUTES &&
            !node_set_attribute(node, attributes[i].id, &attributes[i].value))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return invalidate(part->capture, result);
    part->dependencies.count = 0;
    return edges_add(&part->dependencies, node, &plain) ? CUDA_SUCCESS
                                                        : invalidate(part->capture, CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult capture_node(struct capturing *part, const CUgraphNodeParams *params) {
    return capture_kernel(part, params, NULL, 0);
}

CUresult capture_allocation(struct capturing *part, CUdevice device, size_t bytes, CUdeviceptr *address) {
    const CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
                  .bytesize = bytes}};
    CUresult result = capture_node(part, &params);
    if (result == CUDA_SUCCESS)
        *address = part->dependencies.nodes[0]->params.alloc.dptr;
    return result;
}

CUresult capture_refuse(struct capturing *part) {
    return invalidate(part->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* ---- what must not be done beside a capture ---- */

CUresult capture_forbids(void) {
    CUresult result = CUDA_SUCCESS;
    if (captures == NULL || own_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        bool forbids = capture->thread == this_thread() ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                                        : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                              own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids)
            result = invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

CUresult capture_forbids_stream(struct CUctx_st *context, CUstream stream) {
    struct capturing *part;
    CUresult result = capture_of(context, stream, &part);
    if (result != CUDA_SUCCESS)
        return result;
    return part != NULL ? capture_refuse(part) : capture_forbids();
}

CUresult capture_forbids_context(struct CUctx_st *context) {
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        for (struct capturing *part = capture->streams; part != NULL; part = part->next)
            if (part->context == context)
                result = invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result == CUDA_SUCCESS ? capture_forbids() : result;
}

/* ---- events ---- */

static int by_event(const void *a, const void *b) {
    const struct captured_event *left = a, *right = b;
    return left->event < right->event ? -1 : left->event > right->event;
}

static struct captured_event *find_event(CUevent event) {
    struct captured_event wanted = {.event = event};
    struct captured_event *const *found = events != NULL ? tfind(&wanted, &events, by_event) : NULL;
    return found != NULL ? *found : NULL;
}

bool capture_is_captured(CUevent event) {
    return find_event(event) != NULL;
}

void capture_forget_event(CUevent event) {
    struct captured_event *captured = find_event(event);
    if (captured == NULL)
        return;
    tdelete(captured, &events, by_event);
    edges_free(&captured->dependencies);
    free(captured);
}

static struct capture *capture_by_id(unsigned long long id) {
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

CUresult capture_forbids_event(CUevent event) {
    const struct captured_event *captured = find_event(event);
    if (captured == NULL)
        return capture_forbids();
    struct capture *capture = capture_by_id(captured->capture);
    return capture != NULL ? invalidate_once(capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_record(struct capturing *part, CUevent event, unsigned flags) {
    if (flags == CU_EVENT_RECORD_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
        return capture_node(part, &params);
    }
    struct captured_event *captured = find_event(event);
    if (captured == NULL) {
        captured = calloc(1, sizeof *captured);
        if (captured == NULL)
            return invalidate(part->capture, CUDA_ERROR_OUT_OF_MEMORY);
        captured->event = event;
        if (tsearch(captured, &events, by_event) == NULL) {
            free(captured);
            return invalidate(part->capture, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    captured->capture = part->capture->id;
    captured->dependencies.count = 0;
    return edges_add_all(&captured->dependencies, &part->dependencies)
               ? CUDA_SUCCESS
               : invalidate(part->capture, CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult capture_wait(struct CUctx_st *context, CUstream stream, struct capturing *part, CUevent event,
                      unsigned flags) {
    const struct captured_event *captured = find_event(event);
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
        return part != NULL ? capture_node(part, &params) : CUDA_ERROR_INVALID_VALUE;
    }
    if (captured == NULL)
        return invalidate(part->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    struct capture *capture = capture_by_id(captured->capture);
    if (capture == NULL)
        return part != NULL ? invalidate(part->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                            : CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (part != NULL && part->capture != capture) {
        invalidate(part->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (part == NULL && is_legacy(stream)) /* can take no part in a capture */
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (part == NULL)
        part = join(capture, context, stream);
    if (part == NULL || !edges_add_all(&part->dependencies, &captured->dependencies))
        return invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

void capture_forget_stream(CUstream stream) {
    struct capturing *part = find(NULL, stream);
    if (part == NULL)
        return;
    struct capture *capture = part->capture;
    invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (part->origin) { /* nobody can end it any more */
        end(capture);
        return;
    }
    struct capturing **at = &capture->streams;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    edges_free(&part->dependencies);
    free(part);
}

void capture_forget_context(const struct CUctx_st *context) {
    for (struct capture *capture = captures, *next; capture != NULL; capture = next) {
        bool concerned = false;
        next = capture->next;
        for (const struct capturing *part = capture->streams; part != NULL; part = part->next)
            concerned |= part->context == context;
        if (!concerned)
            continue;
        invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        end(capture);
    }
}

/* ---- the API ---- */

static CUresult take_dependencies(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
                                  struct edges *edges) {
    if (count != 0 && nodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (object_find(KIND_GRAPH_NODE, nodes[i]) == NULL || nodes[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        if (!edges_add(edges, nodes[i], data != NULL ? &data[i] : NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Into a graph of its own if graph is NULL. */
static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                      size_t count, CUstreamCaptureMode mode) {
    struct CUctx_st *context;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_context_of(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_legacy(stream))
        return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (find(context, stream) != NULL || (graph != NULL && graph->capturing))
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    struct edges edges = {0};
    struct capture *capture = calloc(1, sizeof *capture);
    struct capturing *part = capture != NULL ? join(capture, context, stream) : NULL;
    bool own_graph = graph == NULL;
    if (own_graph && part != NULL)
        graph = graph_new();
    result =
        part == NULL || graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : take_dependencies(graph, nodes, data, count, &edges);
    if (result != CUDA_SUCCESS) {
        edges_free(&edges);
        if (own_graph && graph != NULL)
            graph_delete(graph);
        free(part);
        free(capture);
        return leave(result);
    }
    graph->capturing = true;
    part->dependencies = edges;
    capture->id = ++last_id;
    capture->graph = graph;
    capture->own_graph = own_graph;
    capture->mode = mode;
    capture->thread = this_thread();
    capture->next = captures;
    captures = capture;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return begin(hStream, NULL, NULL, NULL, 0, mode);
}

API CUresult cuStreamBeginCapture(CUstream hStream) {
    return begin(hStream, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

API CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                         const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                         CUstreamCaptureMode mode) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (leave(object_find(KIND_GRAPH, hGraph) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return begin(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

/* Whether all that the capture's other streams have captured comes before what the origin's next node would. */
static bool is_joined(const struct capture *capture, const struct capturing *origin) {
    for (CUgraphNode node = capture->graph->first; node != NULL; node = node->next)
        node->mark = 0;
    CUgraphNode *reached = malloc((capture->graph->nodes + 1) * sizeof *reached);
    size_t count = 0;
    if (reached == NULL)
        return false;
    const struct edges *edges = &origin->dependencies;
    for (size_t next = 0;; edges = &reached[next++]->dependencies) {
        for (size_t i = 0; i < edges->count; i++)
            if (edges->nodes[i]->mark++ == 0)
                reached[count++] = edges->nodes[i];
        if (next == count)
            break;
    }
    free(reached);
    for (const struct capturing *part = capture->streams; part != NULL; part = part->next)
        for (size_t i = 0; i < part->dependencies.count; i++)
            if (part->dependencies.nodes[i]->mark == 0)
                return false;
    return true;
}

API CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    struct CUctx_st *context;
    if (phGraph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = NULL;
    CUresult result = enter_context_of(hStream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    struct capturing *part = is_legacy(hStream) ? NULL : find(context, hStream);
    if (part == NULL)
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = part->capture;
    if (!part->origin)
        return leave_graphs(invalidate_once(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread())
        return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture, part))
        result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    else {
        capture->graph->capturing = false;
        *phGraph = capture->graph;
    }
    end(capture);
    return leave_graphs(result);
}

/* The stream's part, with its status; asking makes nothing invalid. */
static CUresult get_part(CUstream stream, CUstreamCaptureStatus *status, struct capturing **part) {
    struct CUctx_st *context;
    CUresult result = enter_context_of(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    *part = NULL;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (is_legacy(stream))
        return blocking_capture(context) == NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *part = find(context, stream);
    if (*part != NULL)
        *status = (*part)->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    struct capturing *part;
    if (captureStatus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get_part(hStream, captureStatus, &part);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

static CUresult get_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                         const CUgraphNode **dependencies, const CUgraphEdgeData **data, size_t *count) {
    static const CUgraphEdgeData plain;
    struct capturing *part;
    if (status == NULL || (data != NULL && dependencies == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get_part(stream, status, &part);
    if (result != CUDA_SUCCESS)
        return result;
    if (part == NULL || part->capture->invalid)
        return leave(CUDA_SUCCESS);
    const struct edges *edges = &part->dependencies;
    for (size_t i = 0; dependencies != NULL && data == NULL && i < edges->count; i++)
        if (memcmp(&edges->data[i], &plain, sizeof plain) != 0)
            return leave(CUDA_ERROR_LOSSY_QUERY);
    if (id != NULL)
        *id = part->capture->id;
    if (graph != NULL)
        *graph = part->capture->graph;
    if (dependencies != NULL)
        *dependencies = edges->nodes;
    if (data != NULL)
        *data = edges->data;
    if (count != NULL)
        *count = edges->count;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                       CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                       const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out) {
    return get_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out);
}

API CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                       CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                       size_t *numDependencies_out) {
    return get_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL, numDependencies_out);
}

API CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out) {
    return get_info(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                  const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                  unsigned int flags) {
    CUstreamCaptureStatus status;
    struct capturing *part;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get_part(hStream, &status, &part);
    if (result != CUDA_SUCCESS)
        return result;
    if (part == NULL)
        return leave(CUDA_ERROR_ILLEGAL_STATE);
    if (part->capture->invalid)
        return leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    struct edges edges = {0};
    if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && !edges_add_all(&edges, &part->dependencies))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = take_dependencies(part->capture->graph, dependencies, dependencyData, numDependencies, &edges);
    if (result == CUDA_SUCCESS) {
        struct edges before = part->dependencies;
        part->dependencies = edges;
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
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = own_mode;
    own_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
