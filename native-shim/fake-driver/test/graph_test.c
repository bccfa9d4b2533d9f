/* Tests of stream capture and graphs through the driver API. */
#include "testing.h"

#include <pthread.h>

enum { GPU_MIB = 1000 };

static const char test_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n"
    ".visible .entry aliquot_busy(.param .u64 ns)\n{\n\tret;\n}\n";

static CUfunction kernel(const char *name) {
    static CUmodule module;
    CUfunction function;
    if (module == NULL) {
        EQUAL(CUDA_SUCCESS, cuModuleLoadData(&module, test_ptx));
    }
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch_empty_kernel(CUstream stream) {
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(kernel("nothing"), 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static CUstream new_stream(unsigned flags) {
    CUstream stream;
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;
    EQUAL(CUDA_SUCCESS, cuEventCreate(&event, 0));
    return event;
}

/* Makes stream wait for the current work of other, through an event. */
static void make_wait(CUstream stream, CUstream other, CUevent event) {
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, other));
    EQUAL(CUDA_SUCCESS, cuStreamWaitEvent(stream, event, 0));
}

static CUstream begin_capture(CUstreamCaptureMode mode) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    kernel("nothing"); /* loaded now, because module loading is unsafe during a capture */
    EQUAL(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, mode));
    return stream;
}

static CUgraph end_capture(CUstream stream) {
    CUgraph graph = NULL;
    EQUAL(CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
    CHECK(graph != NULL);
    return graph;
}

static CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus answer;
    EQUAL(CUDA_SUCCESS, cuStreamIsCapturing(stream, &answer));
    return answer;
}

/* The capture is invalidated: ending it fails, returns no graph, and makes the stream usable again. */
static void expect_invalidated(CUstream stream, CUresult how) {
    CUgraph graph = (CUgraph)&graph;
    if (how == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        EQUAL(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(stream));
    }
    EQUAL(how, cuStreamEndCapture(stream, &graph));
    CHECK(graph == NULL);
    EQUAL(CU_STREAM_CAPTURE_STATUS_NONE, status(stream));
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

static CUgraphExec instantiate_graph(CUgraph graph) {
    CUgraphExec exec;
    EQUAL(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void run(CUgraphExec exec) {
    CUstream stream = new_stream(0);
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(stream));
}

static CUgraphNodeType node_type(CUgraphNode node) {
    CUgraphNodeType type;
    EQUAL(CUDA_SUCCESS, cuGraphNodeGetType(node, &type));
    return type;
}

static size_t count_nodes(CUgraph graph) {
    size_t count;
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static void append_text(void *text) {
    static int next;
    ((char *)text)[next] = (char)('a' + next);
    next++;
}

static void increment(void *number) {
    ++*(int *)number;
}

/* ---- captured graphs ---- */

static void captured_work_runs_at_each_launch_and_not_before(void) {
    CUdeviceptr pointer, other;
    int in = 41, out = 0, calls = 0;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&other, 64));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, increment, &calls));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2(pointer, &in, sizeof in, stream));
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuMemcpyAsync(other, pointer, sizeof in, stream));
    EQUAL(CUDA_SUCCESS, cuMemsetD8Async(pointer, 7, 1, stream));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(&out, other, sizeof out, stream));
    CUgraph graph = end_capture(stream);
    EQUAL(CU_STREAM_CAPTURE_STATUS_NONE, status(stream));
    EQUAL(0, calls);
    EQUAL(0, out);
    EQUAL(6, count_nodes(graph));
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_HOST,   CU_GRAPH_NODE_TYPE_MEMCPY,
                                            CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                            CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY};
    CUgraphNode nodes[6];
    size_t count = 6;
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, nodes, &count));
    for (int i = 0; i < 6; i++) {
        EQUAL(types[i], node_type(nodes[i]));
    }
    CUgraphExec exec = instantiate_graph(graph);
    EQUAL(CUDA_SUCCESS, cuGraphDestroy(graph));
    for (int i = 1; i <= 3; i++) {
        in = 1000 + i;
        run(exec);
        EQUAL(i, calls);
        EQUAL(1000 + i, out);
    }
    EQUAL(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
}

static void streams_fork_and_join_through_events(void) {
    char order[8] = "";
    start_context(0);
    CUevent forked = new_event(), joined = new_event();
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, append_text, order));
    EQUAL(CUDA_SUCCESS, cuEventRecord(forked, stream));
    EQUAL(CU_STREAM_CAPTURE_STATUS_NONE, status(side));
    EQUAL(CUDA_SUCCESS, cuStreamWaitEvent(side, forked, 0));
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(side));
    launch_empty_kernel(side);
    launch_empty_kernel(side);
    launch_empty_kernel(stream);
    make_wait(stream, side, joined);
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, append_text, order));
    CUgraph graph = end_capture(stream);
    EQUAL(CU_STREAM_CAPTURE_STATUS_NONE, status(side));
    EQUAL(5, count_nodes(graph));
    CUgraphNode nodes[6];
    size_t count = 6;
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, nodes, &count));
    EQUAL(5, count);
    EQUAL(CU_GRAPH_NODE_TYPE_HOST, node_type(nodes[4]));
    CHECK(nodes[5] == NULL);
    run(instantiate_graph(graph));
    EQUAL(0, strcmp(order, "ab"));
}

static void an_unjoined_fork_makes_the_capture_fail(void) {
    start_context(0);
    CUevent forked = new_event(), joined = new_event();
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_empty_kernel(stream);
    make_wait(side, stream, forked);
    launch_empty_kernel(side);
    EQUAL(CUDA_SUCCESS, cuEventRecord(joined, side));
    launch_empty_kernel(side); /* after the event that joins it */
    EQUAL(CUDA_SUCCESS, cuStreamWaitEvent(stream, joined, 0));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    launch_empty_kernel(side);
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(side));
}

static void a_capture_ends_only_in_the_stream_in_which_it_began(void) {
    CUgraph graph;
    start_context(0);
    CUevent forked = new_event();
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(side, &graph));
    EQUAL(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    make_wait(side, stream, forked);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void a_capture_can_extend_an_existing_graph(void) {
    int calls = 0;
    CUgraph graph, ended;
    CUgraphNode first;
    size_t count = 1;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuGraphCreate(&graph, 0));
    CUstream stream = new_stream(0);
    EQUAL(CUDA_SUCCESS, cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, increment, &calls));
    CUgraphExec exec;
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    EQUAL(CUDA_SUCCESS, cuStreamEndCapture(stream, &ended));
    CHECK(ended == graph);
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, &first, &count));
    EQUAL(CUDA_SUCCESS,
          cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, increment, &calls));
    CHECK(end_capture(stream) == graph);
    EQUAL(2, count_nodes(graph));
    run(instantiate_graph(graph));
    EQUAL(2, calls);
}

static void a_program_can_change_what_a_capture_depends_on(void) {
    CUstreamCaptureStatus now;
    cuuint64_t id, other_id;
    CUgraph graph;
    const CUgraphNode *dependencies;
    size_t count;
    start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuStreamGetCaptureInfo_v2(stream, &now, &id, &graph, &dependencies, &count));
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, now);
    EQUAL(1, count);
    CUgraphNode first = dependencies[0];
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuStreamUpdateCaptureDependencies(stream, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    EQUAL(CUDA_SUCCESS, cuStreamGetCaptureInfo_v2(stream, &now, NULL, NULL, &dependencies, &count));
    EQUAL(2, count);
    EQUAL(CUDA_SUCCESS, cuStreamUpdateCaptureDependencies(stream, &first, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EQUAL(CUDA_SUCCESS, cuStreamGetCaptureInfo_v2(stream, &now, NULL, NULL, &dependencies, &count));
    EQUAL(1, count);
    CHECK(dependencies[0] == first);
    CHECK(end_capture(stream) == graph);
    EQUAL(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(stream, &first, 1, 0));
    EQUAL(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuStreamGetCaptureInfo_v2(stream, &now, &other_id, NULL, NULL, NULL));
    CHECK(id != other_id);
    end_capture(stream);
}

static void external_events_become_nodes(void) {
    CUgraphNode nodes[2];
    size_t count = 2;
    float time;
    start_context(0);
    CUevent event = new_event(), other = new_event();
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, NULL, CU_EVENT_RECORD_EXTERNAL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(NULL, event, CU_EVENT_WAIT_EXTERNAL));
    EQUAL(CUDA_SUCCESS, cuEventRecord(other, NULL));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuStreamWaitEvent(stream, other, CU_EVENT_WAIT_EXTERNAL));
    EQUAL(CUDA_SUCCESS, cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = end_capture(stream);
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, nodes, &count));
    EQUAL(2, count);
    EQUAL(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node_type(nodes[0]));
    EQUAL(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node_type(nodes[1]));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&time, other, event)); /* not recorded yet */
    run(instantiate_graph(graph));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&time, other, event));
}

static void a_graph_launched_in_a_capture_becomes_a_child_graph(void) {
    int calls = 0;
    CUgraphNode node;
    CUgraph child;
    size_t count = 1;
    start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, increment, &calls));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, increment, &calls));
    CUgraphExec inner = instantiate_graph(end_capture(stream));
    EQUAL(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(inner, stream));
    CUgraph graph = end_capture(stream);
    EQUAL(0, calls);
    EQUAL(CUDA_SUCCESS, cuGraphExecDestroy(inner));
    EQUAL(CUDA_SUCCESS, cuGraphGetNodes(graph, &node, &count));
    EQUAL(CU_GRAPH_NODE_TYPE_GRAPH, node_type(node));
    EQUAL(CUDA_SUCCESS, cuGraphChildGraphNodeGetGraph(node, &child));
    EQUAL(2, count_nodes(child));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(child)); /* its node owns it */
    run(instantiate_graph(graph));
    EQUAL(2, calls);
}

/* ---- invalid captures ---- */

static void waiting_for_a_capturing_stream_invalidates_the_capture(void) {
    CUcontext context = start_context(0);
    (void)context;
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED); /* forbidden in all modes */
    launch_empty_kernel(stream);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          cuLaunchKernel(kernel("nothing"), 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamSynchronize(stream));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void never_called(CUstream stream, CUresult result, void *data) {
    (void)stream, (void)result, (void)data;
    CHECK(false);
}

static void an_uncapturable_call_invalidates_the_capture(void) {
    start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(stream, never_called, NULL, 0));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(0x1000, &stream, 8, stream));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void captured_events_cannot_be_synchronized_or_queried(void) {
    float time;
    start_context(0);
    CUevent event = new_event(), plain = new_event();
    EQUAL(CUDA_SUCCESS, cuEventRecord(plain, NULL));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, stream));
    EQUAL(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&time, plain, event));
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream));
    EQUAL(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EQUAL(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(event)); /* nor after the capture */
    EQUAL(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(stream, event, 0));
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, stream)); /* until it is recorded again */
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(event));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&time, plain, event));
}

static void a_capture_cannot_depend_on_uncaptured_work(void) {
    start_context(0);
    CUevent event = new_event();
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, NULL));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, event, 0));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUstream one = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED), other = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, one));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(other, event, 0));
    expect_invalidated(one, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_invalidated(other, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void the_legacy_stream_is_unusable_while_a_blocking_stream_captures(void) {
    CUdeviceptr pointer;
    CUstreamCaptureStatus now;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstream stream = new_stream(0);
    EQUAL(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &now));
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream)); /* the query does not invalidate the capture */
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8_v2(pointer, 1, 64));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED); /* a non-blocking stream */
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 1, 64));
    launch_empty_kernel(NULL);
    end_capture(stream);
}

static void a_capture_ends_with_its_stream_or_its_context(void) {
    CUdeviceptr pointer;
    CUcontext context = start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(stream));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64)); /* the capture no longer forbids it */
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_empty_kernel(stream);
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&context, 0, 0));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
}

/* ---- modes ---- */

static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
    EQUAL(CUDA_SUCCESS, cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

/* Whether this thread may make calls that are unsafe during a capture. All such calls must agree. */
static bool unsafe_calls_allowed(void) {
    CUdeviceptr pointer = 0;
    CUresult result = cuMemAlloc_v2(&pointer, 64);
    if (result == CUDA_SUCCESS) {
        EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer));
    } else {
        EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, result);
    }
    return result == CUDA_SUCCESS;
}

static void in_another_thread(void *(*body)(void *), void *data) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, data) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

struct attempt {
    CUcontext context;
    CUstreamCaptureMode mode;
    bool allowed;
};

static void *attempt(void *data) {
    struct attempt *attempt = data;
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(attempt->context));
    EQUAL(CU_STREAM_CAPTURE_MODE_GLOBAL, exchange_mode(attempt->mode)); /* the initial mode of a thread */
    attempt->allowed = unsafe_calls_allowed();
    return NULL;
}

static bool unsafe_calls_allowed_in_thread(CUcontext context, CUstreamCaptureMode mode) {
    struct attempt data = {context, mode, false};
    in_another_thread(attempt, &data);
    return data.allowed;
}

static void unsafe_calls_depend_on_the_modes_of_capture_and_thread(void) {
    /* The rules of cuThreadExchangeStreamCaptureMode, in cuda.h. */
    static const struct {
        CUstreamCaptureMode capture, thread;
        bool own, other;
    } cases[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, true, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED, true, true},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, true, true},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, true},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, true, true},
    };
    CUcontext context = start_context(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CUstream stream = begin_capture(cases[i].capture);
        exchange_mode(cases[i].thread);
        bool own = unsafe_calls_allowed();
        exchange_mode(CU_STREAM_CAPTURE_MODE_GLOBAL);
        EQUAL(cases[i].own, own);
        if (own) {
            end_capture(stream);
        } else {
            expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        stream = begin_capture(cases[i].capture);
        bool other = unsafe_calls_allowed_in_thread(context, cases[i].thread);
        EQUAL(cases[i].other, other);
        if (other) {
            end_capture(stream);
        } else {
            expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
    }
}

static void calls_that_allocate_or_wait_are_unsafe(void) {
    CUdeviceptr pointer, made;
    void *pinned, *other;
    CUmodule module;
    CUmemoryPool pool;
    cuuint64_t value = 0;
    char text[64] = "";
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&pool, 0));
    CUevent event = new_event();
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    EQUAL(CUDA_SUCCESS, cuMemHostAlloc(&pinned, 64, 0));
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, side));
#define UNSAFE(call)                                                                                                   \
    do {                                                                                                               \
        CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);                                                \
        EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call);                                                            \
        expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);                                             \
    } while (0)
    UNSAFE(cuMemAlloc_v2(&made, 64));
    UNSAFE(cuMemAllocManaged(&made, 64, CU_MEM_ATTACH_GLOBAL));
    UNSAFE(cuMemFree_v2(pointer));
    UNSAFE(cuMemHostAlloc(&other, 64, 0));
    UNSAFE(cuMemFreeHost(pinned));
    UNSAFE(cuMemcpyHtoD_v2(pointer, text, 64));
    UNSAFE(cuMemsetD8_v2(pointer, 0, 64));
    UNSAFE(cuModuleLoadData(&module, test_ptx));
    UNSAFE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    UNSAFE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    UNSAFE(cuMemPoolTrimTo(pool, 0));
    UNSAFE(cuEventQuery(event));
    UNSAFE(cuEventSynchronize(event));
    UNSAFE(cuStreamQuery(side));
    UNSAFE(cuStreamSynchronize(side));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    size_t free_bytes, total; /* the calls below are safe */
    EQUAL(CUDA_SUCCESS, cuMemGetInfo_v2(&free_bytes, &total));
    EQUAL(CUDA_SUCCESS, cuEventDestroy_v2(new_event()));
    EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(new_stream(0)));
    launch_empty_kernel(side);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, side));
    end_capture(stream);
}

struct ending {
    CUcontext context;
    CUstream stream;
    CUresult result;
    CUgraph graph;
};

static void *end_capture_thread(void *data) {
    struct ending *ending = data;
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(ending->context));
    ending->result = cuStreamEndCapture(ending->stream, &ending->graph);
    return NULL;
}

static CUresult end_in_another_thread(CUcontext context, CUstream stream) {
    struct ending ending = {context, stream, CUDA_ERROR_UNKNOWN, NULL};
    in_another_thread(end_capture_thread, &ending);
    return ending.result;
}

static void only_a_relaxed_capture_can_be_ended_by_another_thread(void) {
    CUcontext context = start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_in_another_thread(context, stream));
    EQUAL(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream));
    end_capture(stream);
    stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(CUDA_SUCCESS, end_in_another_thread(context, stream));
}

/* ---- memory ---- */

static uint64_t graph_memory(CUgraphMem_attribute attribute) {
    cuuint64_t value;
    EQUAL(CUDA_SUCCESS, cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void captured_allocations_exist_while_their_graph_runs(void) {
    CUdeviceptr pointer;
    unsigned char out = 0;
    start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointer, 3 * MIB, stream));
    EQUAL(CUDA_SUCCESS, cuMemsetD8Async(pointer + MIB, 9, MIB, stream));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(&out, pointer + MIB + 5, 1, stream));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream));
    CUgraph graph = end_capture(stream);
    EQUAL(4, count_nodes(graph));
    EQUAL(0, graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&out, pointer, 1)); /* the address is reserved but not mapped */
    CUgraphExec exec = instantiate_graph(graph);
    for (int i = 0; i < 3; i++) {
        out = 0;
        run(exec);
        EQUAL(9, out);
        EQUAL(0, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
        EQUAL(4 * MIB, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
        EQUAL(4 * MIB, graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    }
    EQUAL(CUDA_SUCCESS, cuDeviceGraphMemTrim(0));
    EQUAL(0, graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
}

/* A graph that only allocates. */
static CUgraph allocating_graph(const size_t *bytes, CUdeviceptr *pointers, int count) {
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < count; i++) {
        EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointers[i], bytes[i], stream));
    }
    return end_capture(stream);
}

static void memory_left_allocated_by_a_graph_is_freed_before_its_next_launch(void) {
    CUdeviceptr pointer;
    start_context(0);
    CUgraph graph = allocating_graph(&(size_t){2 * MIB}, &pointer, 1);
    CUgraphExec exec = instantiate_graph(graph);
    run(exec);
    EQUAL(2 * MIB, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 1, 2 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, NULL));
    run(exec);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream));
    CUgraphExec freeing = instantiate_graph(end_capture(stream));
    run(freeing);
    EQUAL(0, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(freeing, NULL)); /* the memory is already free */
    EQUAL(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    EQUAL(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    run(exec);
    run(exec);
    EQUAL(2 * MIB, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    EQUAL(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    EQUAL(CUDA_SUCCESS, cuGraphDestroy(graph));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 1, 2 * MIB)); /* memory outlives its graph */
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
}

static void graphs_with_memory_nodes_cannot_be_duplicated(void) {
    CUdeviceptr pointer;
    start_context(0);
    CUgraph graph = allocating_graph(&(size_t){1}, &pointer, 1);
    CUgraphExec exec = instantiate_graph(graph);
    EQUAL(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(exec, stream));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EQUAL(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    run(instantiate_graph(graph));
}

static void a_launch_without_free_memory_fails_and_allocates_nothing(void) {
    CUdeviceptr plain, pointers[2];
    start_context(0);
    gpu_file *gpu = open_gpu(0);
    CUgraphExec exec = instantiate_graph(allocating_graph((size_t[]){2 * MIB, 900 * MIB}, pointers, 2));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 200 * MIB));
    uint64_t before = gpu_used(gpu);
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, NULL));
    EQUAL(0, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    EQUAL(CUDA_SUCCESS, cuDeviceGraphMemTrim(0));
    EQUAL(before, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(plain));
    run(exec);
    EQUAL(902 * MIB, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
}

static void capturing_a_free_of_other_memory_frees_nothing(void) {
    CUdeviceptr pointer;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointer, MIB, NULL));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(pointer, stream));
    expect_invalidated(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream));
}

/* ---- time: without jitter; a host function blocks the stream until all measured work is submitted ---- */

static void launch_busy_kernel(CUstream stream, uint64_t us, unsigned blocks) {
    uint64_t ns = us * 1000;
    void *parameters[] = {&ns};
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(kernel("aliquot_busy"), blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

enum { ALL = 108 /* multiprocessors */ };

static void start_timed(void) {
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    start_context(0);
    kernel("aliquot_busy");
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(void *unused) {
    (void)unused;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void close_gate(CUstream stream) {
    pthread_mutex_lock(&gate);
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

static long time_launches(CUgraphExec exec, int launches) {
    float milliseconds;
    CUevent from = new_event(), to = new_event();
    CUstream stream = new_stream(0);
    close_gate(stream);
    EQUAL(CUDA_SUCCESS, cuEventRecord(from, stream));
    for (int i = 0; i < launches; i++) {
        EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    }
    EQUAL(CUDA_SUCCESS, cuEventRecord(to, stream));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    pthread_mutex_unlock(&gate);
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, from, to));
    return (long)(milliseconds * 1000 + 0.5f);
}

static void serial_nodes_take_the_sum_of_their_times(void) {
    start_timed();
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_busy_kernel(stream, 500, ALL);
    launch_busy_kernel(stream, 300, 1);
    launch_busy_kernel(stream, 200, ALL);
    CUgraphExec exec = instantiate_graph(end_capture(stream));
    EQUAL(1000, time_launches(exec, 1));
    EQUAL(7000, time_launches(exec, 7));
}

static void forked_branches_run_one_after_another(void) {
    start_timed();
    CUevent forked = new_event(), joined = new_event();
    CUstream side = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_busy_kernel(stream, 1000, 1);
    make_wait(side, stream, forked);
    launch_busy_kernel(stream, 1000, 1);
    launch_busy_kernel(side, 1000, 1);
    make_wait(stream, side, joined);
    launch_busy_kernel(stream, 1000, 1);
    EQUAL(4000, time_launches(instantiate_graph(end_capture(stream)), 1));
}

static void launches_of_one_executable_graph_are_serialized_across_streams(void) {
    float milliseconds;
    start_timed();
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_busy_kernel(stream, 1000, 1);
    CUgraph graph = end_capture(stream);
    CUgraphExec exec = instantiate_graph(graph), other = instantiate_graph(graph);
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), two = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent start = new_event(), middle = new_event(), finish = new_event();
    close_gate(one);
    make_wait(two, one, start);
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, one));
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(other, two));
    EQUAL(CUDA_SUCCESS, cuEventRecord(middle, two));
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, two));
    EQUAL(CUDA_SUCCESS, cuEventRecord(finish, two));
    pthread_mutex_unlock(&gate);
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(finish));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, start, middle));
    EQUAL(1000, (long)(milliseconds * 1000 + 0.5f)); /* parallel to the first launch */
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, start, finish));
    EQUAL(2000, (long)(milliseconds * 1000 + 0.5f)); /* after the first launch */
}

struct exchange {
    unsigned char sent, received;
    int calls;
};

static void send_next(void *data) {
    struct exchange *exchange = data;
    exchange->sent = (unsigned char)(10 + exchange->received);
    exchange->calls++;
}

static void host_functions_and_copies_see_the_results_of_earlier_nodes(void) {
    CUdeviceptr pointer;
    static struct exchange exchange;
    start_timed();
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuMemsetD8Async(pointer, 1, 1, stream));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(&exchange.received, pointer, 1, stream));
    launch_busy_kernel(stream, 20000, ALL);
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, send_next, &exchange));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2(pointer, &exchange.sent, 1, stream));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(&exchange.received, pointer, 1, stream));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, send_next, &exchange));
    CUgraphExec exec = instantiate_graph(end_capture(stream));
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    EQUAL(0, exchange.calls); /* the kernel still runs */
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(2, exchange.calls);
    EQUAL(11, exchange.received);
    EQUAL(21, exchange.sent);
}

static void a_launch_after_host_functions_sees_their_results(void) {
    CUdeviceptr pointer;
    static struct exchange exchange;
    start_timed();
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 0, 64));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2(&exchange.received, pointer, 1, stream));
    EQUAL(CUDA_SUCCESS, cuLaunchHostFunc(stream, send_next, &exchange));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2(pointer, &exchange.sent, 1, stream));
    CUgraphExec exec = instantiate_graph(end_capture(stream));
    close_gate(stream);
    for (int i = 0; i < 5; i++) {
        EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, stream));
    }
    EQUAL(0, exchange.calls);
    pthread_mutex_unlock(&gate);
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(5, exchange.calls);
    EQUAL(50, exchange.sent); /* each launch adds ten to the value that the previous one sent */
}

static void a_graph_larger_than_the_gpu_queue_runs(void) {
    enum { KERNELS = 1500 };
    CUdeviceptr pointer;
    float milliseconds;
    start_timed();
    CUevent from = new_event(), to = new_event();
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 64));
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < KERNELS; i++) {
        launch_busy_kernel(stream, 1, ALL);
        EQUAL(CUDA_SUCCESS, cuMemcpyAsync(pointer, pointer + 32, 32, stream)); /* keeps kernels apart */
    }
    CUgraphExec exec = instantiate_graph(end_capture(stream));
    EQUAL(CUDA_SUCCESS, cuEventRecord(from, NULL));
    EQUAL(CUDA_SUCCESS, cuGraphLaunch(exec, NULL)); /* waits for queue space during the submission */
    EQUAL(CUDA_SUCCESS, cuEventRecord(to, NULL));
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(to));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, from, to));
    CHECK(milliseconds >= KERNELS * 0.003f); /* a kernel takes 1 us, a copy 2 us */
}

static void instantiation_flags_are_checked(void) {
    CUgraphExec exec;
    start_context(0);
    CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    launch_empty_kernel(stream);
    CUgraph graph = end_capture(stream);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 16));
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)); /* no stream for it */
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
    EQUAL(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithParams(&exec, graph, &params));
    EQUAL(CUDA_GRAPH_INSTANTIATE_ERROR, params.result_out);
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    EQUAL(CUDA_SUCCESS, cuGraphInstantiateWithParams(&exec, graph, &params));
    EQUAL(CUDA_GRAPH_INSTANTIATE_SUCCESS, params.result_out);
    run(exec);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(captured_work_runs_at_each_launch_and_not_before),
        TEST(streams_fork_and_join_through_events),
        TEST(an_unjoined_fork_makes_the_capture_fail),
        TEST(a_capture_ends_only_in_the_stream_in_which_it_began),
        TEST(a_capture_can_extend_an_existing_graph),
        TEST(a_program_can_change_what_a_capture_depends_on),
        TEST(external_events_become_nodes),
        TEST(a_graph_launched_in_a_capture_becomes_a_child_graph),
        TEST(waiting_for_a_capturing_stream_invalidates_the_capture),
        TEST(an_uncapturable_call_invalidates_the_capture),
        TEST(captured_events_cannot_be_synchronized_or_queried),
        TEST(a_capture_cannot_depend_on_uncaptured_work),
        TEST(the_legacy_stream_is_unusable_while_a_blocking_stream_captures),
        TEST(a_capture_ends_with_its_stream_or_its_context),
        TEST(unsafe_calls_depend_on_the_modes_of_capture_and_thread),
        TEST(calls_that_allocate_or_wait_are_unsafe),
        TEST(only_a_relaxed_capture_can_be_ended_by_another_thread),
        TEST(captured_allocations_exist_while_their_graph_runs),
        TEST(memory_left_allocated_by_a_graph_is_freed_before_its_next_launch),
        TEST(graphs_with_memory_nodes_cannot_be_duplicated),
        TEST(a_launch_without_free_memory_fails_and_allocates_nothing),
        TEST(capturing_a_free_of_other_memory_frees_nothing),
        TEST(serial_nodes_take_the_sum_of_their_times),
        TEST(forked_branches_run_one_after_another),
        TEST(launches_of_one_executable_graph_are_serialized_across_streams),
        TEST(host_functions_and_copies_see_the_results_of_earlier_nodes),
        TEST(a_launch_after_host_functions_sees_their_results),
        TEST(a_graph_larger_than_the_gpu_queue_runs),
        TEST(instantiation_flags_are_checked),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
