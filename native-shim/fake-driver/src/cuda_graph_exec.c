/* Instantiating executable graphs. An executable graph is a clone of its source graph, and cannot be updated. */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_work.h"

static CUresult enter_exec(CUgraphExec exec) {
    return enter_with_handle(KIND_GRAPH_EXEC, exec, CUDA_ERROR_INVALID_VALUE);
}

static CUresult instantiate(CUgraphExec *made, CUgraph graph, cuuint64_t flags) {
    if (made == NULL || flags >= 2 * CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_GRAPH, graph) == NULL || graph->capturing || graph->parent_node != NULL) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (graph->exec_count != 0 &&
        graph_has_memory(graph)) { /* executable graphs share the memory of the source graph */
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    CUgraphExec exec = object_new(KIND_GRAPH_EXEC, sizeof *exec, NULL);
    if (exec == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    exec->graph = graph_clone(graph);
    exec->flags = flags;
    if (exec->graph == NULL) {
        object_delete(exec);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    exec->source = graph;
    exec->source_id = graph->id;
    graph->exec_count++;
    *made = exec;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) { /* this function has no stream to upload in */
        return CUDA_ERROR_INVALID_VALUE;
    }
    return instantiate(phGraphExec, hGraph, flags);
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                   size_t bufferSize) {
    if (phErrorNode != NULL) {
        *phErrorNode = NULL;
    }
    if (logBuffer != NULL && bufferSize != 0) {
        logBuffer[0] = '\0';
    }
    return instantiate(phGraphExec, hGraph, 0);
}

API CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                size_t bufferSize) {
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

API CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    CUresult result = enter_exec(hGraphExec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUgraph source = object_find(KIND_GRAPH, hGraphExec->source);
    if (source != NULL && source->id == hGraphExec->source_id) {
        source->exec_count--;
    }
    graph_delete(hGraphExec->graph);
    object_delete(hGraphExec);
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_GRAPH_EXEC, hGraphExec) == NULL) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS) {
        result = capture_find(stream_context(context, hStream), hStream, &capturing);
    }
    if (result == CUDA_SUCCESS && capturing != NULL) {
        result = capture_reject(capturing);
    }
    return leave(result);
}

API CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    if (instantiateParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result == CUDA_SUCCESS && (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
        result = cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    }
    return result;
}
