/* Instantiating executable graphs. An executable graph is a clone of its source graph, and cannot be updated. */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_stream.h"
#include "cuda_work.h"

#include <stdio.h>
#include <stdlib.h>

static CUresult enter_exec(CUgraphExec exec) {
    return enter_with_handle(KIND_GRAPH_EXEC, exec, CUDA_ERROR_INVALID_VALUE);
}

/* ---- instantiation ---- */

/*
 * Checks that the graph and its child graphs have no cycle. For launches from the device, also checks that all node
 * types are allowed there.
 */
static CUgraphInstantiateResult validate_graph(CUgraph graph, bool from_device, CUgraphNode *error_node) {
    CUgraphNode *order = graph_topological_order(graph, error_node);
    if (order == NULL)
        return *error_node != NULL ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE : CUDA_GRAPH_INSTANTIATE_ERROR;
    free(order);
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        *error_node = node;
        if (node->child != NULL) {
            CUgraphInstantiateResult result = validate_graph(node->child, from_device, error_node);
            if (result != CUDA_GRAPH_INSTANTIATE_SUCCESS)
                return result;
        } else if (from_device && node->params.type > CU_GRAPH_NODE_TYPE_MEMSET)
            return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    }
    *error_node = NULL;
    return from_device && graph->node_count == 0 ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
}

static CUresult instantiate(CUgraphExec *made, CUgraph graph, cuuint64_t flags, CUgraphNode *error_node,
                            CUgraphInstantiateResult *outcome) {
    const cuuint64_t both = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    *error_node = NULL;
    *outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (made == NULL || flags >= 2 * CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY || (flags & both) == both)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH, graph) == NULL || graph->capturing || graph->parent_node != NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *outcome = validate_graph(graph, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0, error_node);
    if (*outcome != CUDA_GRAPH_INSTANTIATE_SUCCESS)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (graph->exec_count != 0 &&
        graph_has_memory(graph)) { /* executable graphs share the memory of the source graph */
        *outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    CUgraphExec exec = object_new(KIND_GRAPH_EXEC, sizeof *exec, NULL);
    if (exec == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    exec->graph = graph_clone(graph);
    exec->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    if (exec->graph == NULL) {
        *outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
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
    CUgraphNode error_node;
    CUgraphInstantiateResult outcome;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) /* this function has no stream to upload in */
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(phGraphExec, hGraph, flags, &error_node, &outcome);
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                   size_t bufferSize) {
    CUgraphNode error_node;
    CUgraphInstantiateResult outcome;
    CUresult result = instantiate(phGraphExec, hGraph, 0, &error_node, &outcome);
    if (phErrorNode != NULL)
        *phErrorNode = error_node;
    if (logBuffer != NULL && bufferSize != 0)
        snprintf(logBuffer, bufferSize, "%s",
                 outcome == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE ? "the graph has a cycle" : "");
    return result;
}

API CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                size_t bufferSize) {
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

API CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    CUresult result = enter_exec(hGraphExec);
    if (result != CUDA_SUCCESS)
        return result;
    CUgraph source = object_find(KIND_GRAPH, hGraphExec->source);
    if (source != NULL && source->id == hGraphExec->source_id)
        source->exec_count--;
    graph_delete(hGraphExec->graph);
    object_delete(hGraphExec);
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_exec(hGraphExec);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = hGraphExec->flags;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH_EXEC, hGraphExec) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS)
        result = capture_find(stream_context(context, hStream), hStream, &capturing);
    if (result == CUDA_SUCCESS && capturing != NULL)
        result = capture_reject(capturing);
    return leave(result);
}

API CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags, &instantiateParams->hErrNode_out,
                                  &instantiateParams->result_out);
    if (result == CUDA_SUCCESS && (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        result = cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    return result;
}
