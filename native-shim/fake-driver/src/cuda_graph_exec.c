/*
 * Instantiating and updating executable graphs. An executable graph is a clone of its source graph with the parameters
 * that were set since. Programs refer to its nodes by the handles of the source graph's nodes.
 */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_graph.h"
#include "cuda_stream.h"
#include "cuda_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        return leave_and_run_destructors(CUDA_ERROR_OUT_OF_MEMORY);
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
    return leave_and_run_destructors(CUDA_SUCCESS);
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

/* ---- updates, by the rules of cuda.h, cuGraphExecUpdate ---- */

static const CUlaunchAttributeValue *kernel_node_attribute(const struct CUgraphNode_st *node, CUlaunchAttributeID id) {
    static const CUlaunchAttributeValue zero;
    return node->attributes != NULL ? &node->attributes[id] : &zero;
}

static const struct CUctx_st *kernel_context(const CUDA_KERNEL_NODE_PARAMS_v3 *kernel) {
    const struct object *function = kernel->func != NULL ? (const void *)kernel->func : (const void *)kernel->kern;
    return function->context;
}

/* Checks whether a node can change to these parameters of its type. */
static CUgraphExecUpdateResult check_params_update(const CUgraphNodeParams *current, const CUgraphNodeParams *updated) {
    if (current->type != updated->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (updated->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || updated->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    CUgraphNodeParams checked = *updated;
    if (checked.type != CU_GRAPH_NODE_TYPE_GRAPH && graph_node_check_params(&checked) != CUDA_SUCCESS)
        return CU_GRAPH_EXEC_UPDATE_ERROR;
    if (updated->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const struct CUctx_st *before = kernel_context(&current->kernel), *after = kernel_context(&updated->kernel);
        if (before != after && before != NULL && after != NULL)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    } else if (updated->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        const CUDA_MEMCPY3D *before = &current->memcpy.copyParams, *after = &updated->memcpy.copyParams;
        bool flat = before->Height <= 1 && before->Depth <= 1 && after->Height <= 1 && after->Depth <= 1;
        if (before->srcMemoryType != after->srcMemoryType || before->dstMemoryType != after->dstMemoryType ||
            (!flat && (before->WidthInBytes != after->WidthInBytes || before->Height != after->Height ||
                       before->Depth != after->Depth)))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    } else if (updated->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const CUDA_MEMSET_NODE_PARAMS_v2 *before = &current->memset, *after = &updated->memset;
        bool flat = before->height <= 1 && after->height <= 1;
        if (!flat && (before->width != after->width || before->height != after->height ||
                      before->pitch != after->pitch || before->elementSize != after->elementSize))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/*
 * Pairs the nodes of two graphs in the order in which they were added. Afterwards, the counterpart of each node of
 * graph is its node in exec_graph.
 */
static CUgraphExecUpdateResult pair_nodes(CUgraph exec_graph, CUgraph graph, cuuint64_t flags,
                                          CUgraphExecUpdateResultInfo *info) {
    CUgraphNode exec_node = exec_graph->first;
    if (exec_graph->node_count != graph->node_count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next, exec_node = exec_node->next)
        node->counterpart = exec_node;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        info->errorNode = node;
        exec_node = node->counterpart;
        CUgraphExecUpdateResult result = check_params_update(&exec_node->params, &node->params);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
        if (exec_node->dependencies.count != node->dependencies.count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t i = 0; i < node->dependencies.count; i++) {
            info->errorFromNode = node->dependencies.nodes[i];
            if (node->dependencies.nodes[i]->counterpart != exec_node->dependencies.nodes[i])
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        info->errorFromNode = NULL;
        if ((kernel_node_attribute(exec_node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)->cooperative != 0) !=
            (kernel_node_attribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)->cooperative != 0))
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 &&
            kernel_node_attribute(exec_node, CU_LAUNCH_ATTRIBUTE_PRIORITY)->priority !=
                kernel_node_attribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY)->priority)
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        if (node->child != NULL) {
            result = pair_nodes(exec_node->child, node->child, flags, info);
            if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return result;
        }
    }
    info->errorNode = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Copies the parameters of graph's nodes to the nodes that pair_nodes() found for them. */
static CUresult apply_paired_params(CUgraph graph) {
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        CUresult result = node->child != NULL ? apply_paired_params(node->child)
                                              : graph_node_set_params(node->counterpart, &node->params);
        for (int id = 0; result == CUDA_SUCCESS && node->attributes != NULL && id < LAUNCH_ATTRIBUTES; id++)
            if (!graph_node_set_attribute(node->counterpart, (CUlaunchAttributeID)id, &node->attributes[id]))
                result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo) {
    if (resultInfo == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = enter_exec(hGraphExec);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH, hGraph) == NULL || hGraph->capturing)
        return leave(CUDA_ERROR_INVALID_VALUE);
    resultInfo->result = pair_nodes(hGraphExec->graph, hGraph, hGraphExec->flags, resultInfo);
    if (resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    return leave(apply_paired_params(hGraph));
}

API CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                               CUgraphExecUpdateResult *updateResult_out) {
    CUgraphExecUpdateResultInfo info;
    CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out != NULL)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out != NULL)
        *updateResult_out = info.result;
    return result;
}

/* Returns the executable graph's clone of a node of the source graph. */
static CUresult enter_exec_node(CUgraphExec exec, CUgraphNode node, CUgraphNode *exec_node) {
    CUresult result = enter_exec(exec);
    if (result != CUDA_SUCCESS)
        return result;
    *exec_node = object_find(KIND_GRAPH_NODE, node) != NULL ? graph_find_clone(exec->graph, node->id) : NULL;
    return *exec_node != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    CUgraphNode exec_node;
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_exec_node(hGraphExec, hNode, &exec_node);
    if (result != CUDA_SUCCESS)
        return result;
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH && exec_node->child != NULL) {
        CUgraphExecUpdateResultInfo info;
        CUgraph child = object_find(KIND_GRAPH, nodeParams->graph.graph);
        if (child == NULL ||
            pair_nodes(exec_node->child, child, hGraphExec->flags, &info) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return leave(CUDA_ERROR_INVALID_VALUE);
        return leave(apply_paired_params(child));
    }
    if (check_params_update(&exec_node->params, nodeParams) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(graph_node_set_params(exec_node, nodeParams));
}

static CUresult set_exec_node_params(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *given,
                                     size_t bytes) {
    CUgraphNodeParams params = {.type = type};
    if (given == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.reserved1, given, bytes);
    return cuGraphExecNodeSetParams(exec, node, &params);
}

#define EXEC_SETTER(symbol, Type, type)                                                                                \
    API CUresult symbol(CUgraphExec hGraphExec, CUgraphNode hNode, const Type *nodeParams) {                           \
        return set_exec_node_params(hGraphExec, hNode, type, nodeParams, sizeof *nodeParams);                          \
    }
#define EXEC_VALUE_SETTER(symbol, Type, type)                                                                          \
    API CUresult symbol(CUgraphExec hGraphExec, CUgraphNode hNode, Type value) {                                       \
        return set_exec_node_params(hGraphExec, hNode, type, &value, sizeof value);                                    \
    }

EXEC_SETTER(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL)
EXEC_SETTER(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL)
EXEC_SETTER(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST)
EXEC_VALUE_SETTER(cuGraphExecChildGraphNodeSetParams, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH)
EXEC_VALUE_SETTER(cuGraphExecEventRecordNodeSetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
EXEC_VALUE_SETTER(cuGraphExecEventWaitNodeSetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT)

API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                            CUcontext ctx) {
    if (copyParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY_NODE_PARAMS params = {.copyCtx = ctx, .copyParams = *copyParams};
    return set_exec_node_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &params, sizeof params);
}

API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    (void)ctx;
    return set_exec_node_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, memsetParams, sizeof *memsetParams);
}

static CUresult enter_node_with_enable_flag(CUgraphExec exec, CUgraphNode node, CUgraphNode *exec_node) {
    CUresult result = enter_exec_node(exec, node, exec_node);
    if (result != CUDA_SUCCESS)
        return result;
    return (*exec_node)->params.type <= CU_GRAPH_NODE_TYPE_MEMSET ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
    CUgraphNode exec_node;
    CUresult result = enter_node_with_enable_flag(hGraphExec, hNode, &exec_node);
    if (result != CUDA_SUCCESS)
        return result;
    exec_node->disabled = isEnabled == 0;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled) {
    CUgraphNode exec_node;
    if (isEnabled == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_node_with_enable_flag(hGraphExec, hNode, &exec_node);
    if (result != CUDA_SUCCESS)
        return result;
    *isEnabled = !exec_node->disabled;
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
