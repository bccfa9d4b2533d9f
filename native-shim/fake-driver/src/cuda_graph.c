/*
 * Building graphs: nodes and the edges between them. A graph belongs to the process, not to a context. A node stores
 * its parameters in the form of cuGraphAddNode, regardless of the function that added it.
 */
#define _GNU_SOURCE
#include "cuda_graph.h"
#include "cuda_launch.h"
#include "cuda_module.h"
#include "cuda_pool.h"
#include "image.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- edges ---- */

static bool is_same_edge_data(const CUgraphEdgeData *a, const CUgraphEdgeData *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static size_t edges_find(const struct edges *edges, CUgraphNode node) {
    size_t i = 0;
    while (i < edges->count && edges->nodes[i] != node)
        i++;
    return i;
}

bool edges_add(struct edges *edges, CUgraphNode node, const CUgraphEdgeData *data) {
    static const CUgraphEdgeData default_edge;
    if (edges_find(edges, node) < edges->count)
        return true;
    if (edges->count == edges->capacity) {
        size_t capacity = edges->capacity == 0 ? 4 : 2 * edges->capacity;
        CUgraphNode *nodes = realloc(edges->nodes, capacity * sizeof *nodes);
        if (nodes == NULL)
            return false;
        edges->nodes = nodes;
        CUgraphEdgeData *edge_data = realloc(edges->data, capacity * sizeof *edge_data);
        if (edge_data == NULL)
            return false;
        edges->data = edge_data;
        edges->capacity = capacity;
    }
    edges->nodes[edges->count] = node;
    edges->data[edges->count++] = data != NULL ? *data : default_edge;
    return true;
}

bool edges_add_all(struct edges *edges, const struct edges *more) {
    for (size_t i = 0; i < more->count; i++)
        if (!edges_add(edges, more->nodes[i], &more->data[i]))
            return false;
    return true;
}

void edges_free(struct edges *edges) {
    free(edges->nodes);
    free(edges->data);
    *edges = (struct edges){0};
}

static void edges_remove(struct edges *edges, CUgraphNode node) {
    size_t i = edges_find(edges, node);
    if (i == edges->count)
        return;
    edges->count--;
    memmove(&edges->nodes[i], &edges->nodes[i + 1], (edges->count - i) * sizeof edges->nodes[0]);
    memmove(&edges->data[i], &edges->data[i + 1], (edges->count - i) * sizeof edges->data[0]);
}

static bool connect_nodes(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data) {
    if (!edges_add(&to->dependencies, from, data))
        return false;
    if (edges_add(&from->dependents, to, data))
        return true;
    edges_remove(&to->dependencies, from);
    return false;
}

static void disconnect_nodes(CUgraphNode from, CUgraphNode to) {
    edges_remove(&to->dependencies, from);
    edges_remove(&from->dependents, to);
}

/* Only kernel nodes have ports other than "the node is complete" (cuda.h, CUgraphEdgeData). */
static bool is_edge_data_valid(CUgraphNode from, const CUgraphEdgeData *data) {
    static const CUgraphEdgeData default_edge;
    if (data == NULL || is_same_edge_data(data, &default_edge))
        return true;
    return from->params.type == CU_GRAPH_NODE_TYPE_KERNEL && data->to_port == 0 &&
           memcmp(data->reserved, default_edge.reserved, sizeof default_edge.reserved) == 0 &&
           data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
           data->type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

/* ---- node parameters ---- */

static bool is_launchable(const CUDA_KERNEL_NODE_PARAMS_v3 *kernel) {
    if (kernel->kernelParams != NULL && kernel->extra != NULL)
        return false;
    if (kernel->func != NULL)
        return object_find(KIND_FUNCTION, kernel->func) != NULL || object_find(KIND_KERNEL, kernel->func) != NULL;
    return object_find(KIND_KERNEL, kernel->kern) != NULL;
}

CUresult graph_node_check_params(const CUgraphNodeParams *params) {
    bool valid = false;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;
        valid = is_launchable(kernel) &&
                check_launch(kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ, kernel->blockDimX, kernel->blockDimY,
                             kernel->blockDimZ, kernel->sharedMemBytes) == CUDA_SUCCESS;
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (params->memcpy.flags != 0 || params->memcpy.reserved != 0)
            return CUDA_ERROR_INVALID_VALUE;
        return check_memcpy(&params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return check_memset(&params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        valid = params->host.fn != NULL;
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUgraph child = object_find(KIND_GRAPH, params->graph.graph);
        valid = child != NULL && !child->capturing && child->parent_node == NULL &&
                (unsigned)params->graph.ownership <= CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
        break;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
        valid = true;
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return object_find(KIND_EVENT, params->eventWait.event) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc = &params->alloc;
        const CUmemPoolProps *pool_props = &alloc->poolProps;
        valid = pool_props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                pool_props->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                pool_props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                device_from_ordinal(pool_props->location.id) != NULL &&
                (alloc->accessDescCount == 0 || alloc->accessDescs != NULL) &&
                alloc->accessDescCount <= device_count() && alloc->bytesize != 0;
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        valid = graph_memory_find(params->free.dptr) != NULL;
        break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    default:
        log_line("graph nodes of type %d are not supported", (int)params->type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Copies the arguments of a kernel, because the node outlives the caller's copy. The block starts with the pointers
 * that params refers to afterwards. The values follow, each at a multiple of 16 bytes.
 */
static CUresult copy_kernel_params(CUDA_KERNEL_NODE_PARAMS_v3 *kernel, void **copied) {
    CUfunction function = kernel->func != NULL ? kernel->func : (CUfunction)(void *)kernel->kern;
    *copied = NULL;
    if (kernel->extra != NULL) {
        const void *buffer = NULL;
        size_t bytes = 0;
        for (void **extra = kernel->extra; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                buffer = extra[1];
            else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
                bytes = *(const size_t *)extra[1];
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (buffer == NULL || bytes > 32764) /* the limit for kernel arguments: CUDA C++ Programming Guide 13 */
            return CUDA_ERROR_INVALID_VALUE;
        struct {
            void *extra[6];
            size_t bytes;
            unsigned char buffer[];
        } *block = malloc(sizeof *block + bytes);
        if (block == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        block->bytes = bytes;
        memcpy(block->buffer, buffer, bytes);
        block->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        block->extra[1] = block->buffer;
        block->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        block->extra[3] = &block->bytes;
        block->extra[4] = block->extra[5] = CU_LAUNCH_PARAM_END;
        kernel->extra = block->extra;
        *copied = block;
        return CUDA_SUCCESS;
    }
    const struct image_kernel *image = is_function(function) ? function_image(function) : NULL;
    size_t count = image != NULL ? image->parameter_count : 0, total = 0;
    for (size_t i = 0; i < count; i++)
        total += (image->parameters[i].size + 15) & ~(size_t)15;
    if (count == 0) {
        kernel->kernelParams = NULL;
        return CUDA_SUCCESS;
    }
    if (kernel->kernelParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pointers = (count * sizeof(void *) + 15) & ~(size_t)15;
    void **block = malloc(pointers + total);
    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *at = (unsigned char *)block + pointers;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = image->parameters[i].size;
        block[i] = at;
        memcpy(at, kernel->kernelParams[i], bytes);
        at += (bytes + 15) & ~(size_t)15;
    }
    kernel->kernelParams = block;
    *copied = block;
    return CUDA_SUCCESS;
}

/* Creates the memory of an allocation node, including its address. */
static CUresult create_node_allocation(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc, void **copied) {
    size_t bytes = alloc->accessDescCount * sizeof alloc->accessDescs[0];
    void *access = malloc(bytes + 1);
    struct node_allocation *allocation = calloc(1, sizeof *allocation);
    CUresult result =
        access == NULL || allocation == NULL
            ? CUDA_ERROR_OUT_OF_MEMORY
            : graph_memory_new(device_from_ordinal(alloc->poolProps.location.id), alloc->bytesize, &allocation->memory);
    if (result != CUDA_SUCCESS) {
        free(access);
        free(allocation);
        return result;
    }
    allocation->node_count = 1;
    node->allocation = allocation;
    if (bytes != 0)
        memcpy(access, alloc->accessDescs, bytes);
    alloc->accessDescs = bytes != 0 ? access : NULL;
    alloc->dptr = graph_memory_address(allocation->memory);
    *copied = access;
    return CUDA_SUCCESS;
}

static void release_node_allocation(struct node_allocation *allocation) {
    if (allocation == NULL || --allocation->node_count != 0)
        return;
    graph_memory_delete(allocation->memory);
    free(allocation);
}

static void node_delete(CUgraphNode node) {
    while (node->dependencies.count != 0)
        disconnect_nodes(node->dependencies.nodes[0], node);
    while (node->dependents.count != 0)
        disconnect_nodes(node, node->dependents.nodes[0]);
    CUgraph graph = node->graph;
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        graph->first = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    else
        graph->last = node->previous;
    graph->node_count--;
    if (node->child != NULL)
        graph_delete(node->child);
    release_node_allocation(node->allocation);
    edges_free(&node->dependencies);
    edges_free(&node->dependents);
    free(node->arguments);
    free(node->attributes);
    object_delete(node);
}

static CUresult assign_params(CUgraphNode node, const CUgraphNodeParams *params) {
    CUgraphNodeParams taken = *params;
    void *arguments = NULL;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUresult result = copy_kernel_params(&taken.kernel, &arguments);
        if (result != CUDA_SUCCESS)
            return result;
    } else if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params->alloc.dptr == 0) {
        CUresult result = create_node_allocation(node, &taken.alloc, &arguments);
        if (result != CUDA_SUCCESS)
            return result;
    } else if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        bool moved = params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
        for (CUgraph ancestor = node->graph; moved && ancestor != NULL;) { /* a graph cannot contain itself */
            if (ancestor == params->graph.graph)
                return CUDA_ERROR_INVALID_VALUE;
            ancestor = ancestor->parent_node != NULL ? ancestor->parent_node->graph : NULL;
        }
        CUgraph child = moved ? params->graph.graph : graph_clone(params->graph.graph);
        if (child == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (node->child != NULL)
            graph_delete(node->child);
        child->parent_node = node;
        node->child = taken.graph.graph = child;
    }
    free(node->arguments);
    node->arguments = arguments;
    node->params = taken;
    return CUDA_SUCCESS;
}

static CUresult node_create(CUgraph graph, const CUgraphNodeParams *params, CUgraphNode *made) {
    static unsigned long long last_id;
    CUgraphNode node = object_new(KIND_GRAPH_NODE, sizeof *node, NULL);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->id = ++last_id;
    node->graph = graph;
    node->previous = graph->last;
    if (graph->last != NULL)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    graph->node_count++;
    CUresult result = assign_params(node, params);
    if (result != CUDA_SUCCESS) {
        node_delete(node);
        return result;
    }
    *made = node;
    return CUDA_SUCCESS;
}

struct free_node_search {
    CUdeviceptr address;
    CUgraph graph;
    bool forbidden;
};

/*
 * Graph memory can be freed by one node in one graph only (cuda.h, cuGraphAddMemAllocNode). Nodes of executable graphs
 * are clones and do not count.
 */
static void match_free_node(void *object, void *data) {
    CUgraphNode node = object;
    struct free_node_search *search = data;
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->params.free.dptr == search->address &&
        node->cloned_from == 0)
        search->forbidden = true;
}

/* Checks that depend on the graph that the node is added to. */
static CUresult check_params_in_graph(CUgraph graph, const CUgraphNodeParams *params) {
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE && graph_has_memory(params->graph.graph)
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_SUCCESS;
    if (params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && params->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_SUCCESS;
    if (graph->parent_node != NULL || graph->exec_count != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct free_node_search search = {params->free.dptr, graph, false};
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        objects_for_each(KIND_GRAPH_NODE, match_free_node, &search);
    return search.forbidden ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult graph_node_add(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params,
                        CUgraphNode *made) {
    CUgraphNodeParams adjusted = *params;
    CUresult result = graph_node_check_params(params);
    if (result == CUDA_SUCCESS)
        result = check_params_in_graph(graph, params);
    if (adjusted.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        adjusted.alloc.dptr = 0; /* dptr is an output */
    if (result == CUDA_SUCCESS)
        result = node_create(graph, &adjusted, made);
    for (size_t i = 0; result == CUDA_SUCCESS && dependencies != NULL && i < dependencies->count; i++) {
        if (!connect_nodes(dependencies->nodes[i], *made, &dependencies->data[i])) {
            node_delete(*made);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return result;
}

bool graph_node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
    if (node->attributes == NULL)
        node->attributes = calloc(LAUNCH_ATTRIBUTES, sizeof node->attributes[0]);
    if (node->attributes == NULL)
        return false;
    node->attributes[id] = *value;
    return true;
}

/* ---- whole graphs ---- */

CUgraph graph_new(void) {
    static unsigned long long last_id;
    CUgraph graph = object_new(KIND_GRAPH, sizeof *graph, NULL);
    if (graph != NULL)
        graph->id = ++last_id;
    return graph;
}

void graph_delete(CUgraph graph) {
    while (graph->last != NULL)
        node_delete(graph->last);
    object_delete(graph);
}

CUgraph graph_clone(CUgraph graph) {
    CUgraph clone = graph_new();
    if (clone == NULL)
        return NULL;
    clone->cloned_from = graph->id;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        CUgraphNodeParams params = node->params;
        if (params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
        if (node_create(clone, &params, &node->counterpart) != CUDA_SUCCESS)
            goto fail;
        node->counterpart->cloned_from = node->id;
        node->counterpart->allocation = node->allocation;
        if (node->allocation != NULL)
            node->allocation->node_count++;
        for (int id = 0; node->attributes != NULL && id < LAUNCH_ATTRIBUTES; id++)
            if (!graph_node_set_attribute(node->counterpart, (CUlaunchAttributeID)id, &node->attributes[id]))
                goto fail;
    }
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        for (size_t i = 0; i < node->dependencies.count; i++)
            if (!connect_nodes(node->dependencies.nodes[i]->counterpart, node->counterpart,
                               &node->dependencies.data[i]))
                goto fail;
    return clone;
fail:
    graph_delete(clone);
    return NULL;
}

bool graph_has_memory(CUgraph graph) {
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
            (node->child != NULL && graph_has_memory(node->child)))
            return true;
    return false;
}

CUgraphNode graph_find_clone(CUgraph graph, unsigned long long original) {
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        if (node->cloned_from == original)
            return node;
        CUgraphNode within = node->child != NULL ? graph_find_clone(node->child, original) : NULL;
        if (within != NULL)
            return within;
    }
    return NULL;
}

CUgraphNode *graph_topological_order(CUgraph graph, CUgraphNode *cycle_node) {
    CUgraphNode *order = malloc((graph->node_count + 1) * sizeof *order);
    size_t count = 0;
    *cycle_node = NULL;
    if (order == NULL)
        return NULL;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        node->scratch = node->dependencies.count;
        if (node->scratch == 0)
            order[count++] = node;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t n = 0; n < order[i]->dependents.count; n++)
            if (--order[i]->dependents.nodes[n]->scratch == 0)
                order[count++] = order[i]->dependents.nodes[n];
    if (count == graph->node_count)
        return order;
    free(order);
    for (CUgraphNode node = graph->first; node != NULL && *cycle_node == NULL; node = node->next)
        if (node->scratch != 0)
            *cycle_node = node;
    return NULL;
}

/* ---- creating and cloning graphs ---- */

static CUresult enter_graph(CUgraph graph) {
    return enter_with_handle(KIND_GRAPH, graph, CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_node(CUgraphNode node) {
    return enter_with_handle(KIND_GRAPH_NODE, node, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    if (phGraph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    CUgraph graph = graph_new();
    if (graph == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *phGraph = graph;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphDestroy(CUgraph hGraph) {
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    if (hGraph->parent_node != NULL || hGraph->capturing)
        return leave(CUDA_ERROR_INVALID_VALUE);
    graph_delete(hGraph);
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    if (phGraphClone == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(originalGraph);
    if (result != CUDA_SUCCESS)
        return result;
    if (graph_has_memory(originalGraph))
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    CUgraph clone = graph_clone(originalGraph);
    if (clone == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *phGraphClone = clone;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
    if (phNode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_node(hOriginalNode);
    if (result != CUDA_SUCCESS)
        return result;
    CUgraphNode found =
        object_find(KIND_GRAPH, hClonedGraph) != NULL ? graph_find_clone(hClonedGraph, hOriginalNode->id) : NULL;
    if (found == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *phNode = found;
    return leave(CUDA_SUCCESS);
}

/* ---- adding nodes ---- */

static CUresult add_node(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                         size_t count, const CUgraphNodeParams *params) {
    if (made == NULL || (count != 0 && dependencies == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(graph);
    if (result != CUDA_SUCCESS)
        return result;
    struct edges edges = {0};
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUgraphNode from = object_find(KIND_GRAPH_NODE, dependencies[i]);
        if (from == NULL || from->graph != graph || edges_find(&edges, from) < edges.count ||
            !is_edge_data_valid(from, data != NULL ? &data[i] : NULL))
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!edges_add(&edges, from, data != NULL ? &data[i] : NULL))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        result = graph_node_add(graph, &edges, params, made);
    edges_free(&edges);
    return leave(result);
}

/*
 * Converts the parameters of an older function. The parameter structs in the union of CUgraphNodeParams start at the
 * same offset, and newer versions of a struct start with the fields of the older ones.
 */
static CUgraphNodeParams params_from(CUgraphNodeType type, const void *given, size_t bytes) {
    CUgraphNodeParams params = {.type = type};
    memcpy(&params.reserved1, given, bytes);
    return params;
}

static CUgraphNodeParams memcpy_params(const CUDA_MEMCPY3D *copy, CUcontext context) {
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = context, .copyParams = *copy}};
}

static CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS *filled, CUcontext context) {
    CUgraphNodeParams params = params_from(CU_GRAPH_NODE_TYPE_MEMSET, filled, sizeof *filled);
    params.memset.ctx = context;
    return params;
}

API CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *dependencyData, size_t numDependencies,
                               CUgraphNodeParams *nodeParams) {
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = add_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
    if (result == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH)
        nodeParams->graph.graph = (*phGraphNode)->child;
    else if (result == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        nodeParams->alloc.dptr = (*phGraphNode)->params.alloc.dptr;
    return result;
}

API CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

#define ADD_ARGUMENTS CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies

API CUresult cuGraphAddKernelNode_v2(ADD_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = params_from(CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof *nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddKernelNode(ADD_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = params_from(CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof *nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddMemcpyNode(ADD_ARGUMENTS, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    if (copyParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = memcpy_params(copyParams, ctx);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddMemsetNode(ADD_ARGUMENTS, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    if (memsetParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = memset_params(memsetParams, ctx);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddHostNode(ADD_ARGUMENTS, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = params_from(CU_GRAPH_NODE_TYPE_HOST, nodeParams, sizeof *nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddChildGraphNode(ADD_ARGUMENTS, CUgraph childGraph) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddEmptyNode(ADD_ARGUMENTS) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddEventRecordNode(ADD_ARGUMENTS, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddEventWaitNode(ADD_ARGUMENTS, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphAddMemAllocNode(ADD_ARGUMENTS, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params = params_from(CU_GRAPH_NODE_TYPE_MEM_ALLOC, nodeParams, sizeof *nodeParams);
    CUresult result = cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, &params);
    if (result == CUDA_SUCCESS)
        nodeParams->dptr = params.alloc.dptr;
    return result;
}

API CUresult cuGraphAddMemFreeNode(ADD_ARGUMENTS, CUdeviceptr dptr) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {dptr}};
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

API CUresult cuGraphDestroyNode(CUgraphNode hNode) {
    CUresult result = enter_node(hNode);
    if (result != CUDA_SUCCESS)
        return result;
    if (hNode->graph->capturing || graph_has_memory(hNode->graph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    node_delete(hNode);
    return leave(CUDA_SUCCESS);
}

/* ---- node parameters ---- */

static CUresult get_params(CUgraphNode node, CUgraphNodeType type, size_t offset, void *params, size_t bytes) {
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_node(node);
    if (result != CUDA_SUCCESS)
        return result;
    if (node->params.type != type)
        return leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(params, (const char *)&node->params + offset, bytes);
    return leave(CUDA_SUCCESS);
}

#define NODE_GETTER(symbol, Type, type, member)                                                                        \
    API CUresult symbol(CUgraphNode hNode, Type *nodeParams) {                                                         \
        return get_params(hNode, type, offsetof(CUgraphNodeParams, member), nodeParams, sizeof *nodeParams);           \
    }

NODE_GETTER(cuGraphKernelNodeGetParams, CUDA_KERNEL_NODE_PARAMS_v1, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
NODE_GETTER(cuGraphKernelNodeGetParams_v2, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL, kernel)
NODE_GETTER(cuGraphMemcpyNodeGetParams, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams)
NODE_GETTER(cuGraphMemsetNodeGetParams, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET, memset)
NODE_GETTER(cuGraphHostNodeGetParams, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST, host)
NODE_GETTER(cuGraphMemAllocNodeGetParams, CUDA_MEM_ALLOC_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEM_ALLOC, alloc)
NODE_GETTER(cuGraphMemFreeNodeGetParams, CUdeviceptr, CU_GRAPH_NODE_TYPE_MEM_FREE, free.dptr)
NODE_GETTER(cuGraphChildGraphNodeGetGraph, CUgraph, CU_GRAPH_NODE_TYPE_GRAPH, graph.graph)
NODE_GETTER(cuGraphEventRecordNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord.event)
NODE_GETTER(cuGraphEventWaitNodeGetEvent, CUevent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait.event)

API CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_node(hNode);
    if (result != CUDA_SUCCESS)
        return result;
    *type = hNode->params.type;
    return leave(CUDA_SUCCESS);
}

/* ---- querying nodes and edges ---- */

/*
 * All queries share one convention: without an array they return the number of entries. With an array they fill it,
 * set unused entries to NULL and return the number of entries written.
 */
static void append_to_list(CUgraphNode node, CUgraphNode *nodes, size_t capacity, size_t *given) {
    if (nodes != NULL && *given < capacity)
        nodes[*given] = node;
    (*given)++;
}

static CUresult finish_list(CUgraphNode *nodes, size_t capacity, size_t total, size_t *count) {
    for (size_t i = total; nodes != NULL && i < capacity; i++)
        nodes[i] = NULL;
    *count = nodes != NULL && capacity < total ? capacity : total;
    return leave(CUDA_SUCCESS);
}

static CUresult get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots) {
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(graph);
    if (result != CUDA_SUCCESS)
        return result;
    size_t total = 0;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if (!roots || node->dependencies.count == 0)
            append_to_list(node, nodes, *count, &total);
    return finish_list(nodes, *count, total, count);
}

API CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    return get_nodes(hGraph, nodes, numNodes, false);
}

API CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    return get_nodes(hGraph, rootNodes, numRootNodes, true);
}

/* Whether a caller that does not ask for edge data would lose information. */
static bool is_lossy(const struct edges *edges) {
    static const CUgraphEdgeData default_edge;
    for (size_t i = 0; i < edges->count; i++)
        if (!is_same_edge_data(&edges->data[i], &default_edge))
            return true;
    return false;
}

API CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                size_t *numEdges) {
    if (numEdges == NULL || (from == NULL) != (to == NULL) || (edgeData != NULL && from == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    size_t total = 0;
    for (CUgraphNode node = hGraph->first; node != NULL; node = node->next) {
        if (edgeData == NULL && from != NULL && is_lossy(&node->dependencies))
            return leave(CUDA_ERROR_LOSSY_QUERY);
        for (size_t i = 0; i < node->dependencies.count; i++) {
            if (from != NULL && total < *numEdges) {
                to[total] = node;
                if (edgeData != NULL)
                    edgeData[total] = node->dependencies.data[i];
            }
            append_to_list(node->dependencies.nodes[i], from, *numEdges, &total);
        }
    }
    for (size_t i = total; to != NULL && i < *numEdges; i++)
        to[i] = NULL;
    return finish_list(from, *numEdges, total, numEdges);
}

API CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

static CUresult get_edges(CUgraphNode node, bool dependents, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count) {
    if (count == NULL || (data != NULL && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_node(node);
    if (result != CUDA_SUCCESS)
        return result;
    const struct edges *edges = dependents ? &node->dependents : &node->dependencies;
    if (data == NULL && nodes != NULL && is_lossy(edges))
        return leave(CUDA_ERROR_LOSSY_QUERY);
    size_t total = 0;
    for (size_t i = 0; i < edges->count; i++) {
        if (data != NULL && total < *count)
            data[total] = edges->data[i];
        append_to_list(edges->nodes[i], nodes, *count, &total);
    }
    return finish_list(nodes, *count, total, count);
}

API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                           size_t *numDependencies) {
    return get_edges(hNode, false, dependencies, edgeData, numDependencies);
}

API CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies) {
    return get_edges(hNode, false, dependencies, NULL, numDependencies);
}

API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
                                             size_t *numDependentNodes) {
    return get_edges(hNode, true, dependentNodes, edgeData, numDependentNodes);
}

API CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes) {
    return get_edges(hNode, true, dependentNodes, NULL, numDependentNodes);
}

/* ---- changing edges: a call changes all the edges that it names, or none ---- */

static bool node_is_in_graph(CUgraph graph, CUgraphNode node) {
    return object_find(KIND_GRAPH_NODE, node) != NULL && node->graph == graph;
}

API CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                       const CUgraphEdgeData *edgeData, size_t numDependencies) {
    if (numDependencies != 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    size_t added = 0;
    for (; added < numDependencies && result == CUDA_SUCCESS; added++) {
        const CUgraphEdgeData *data = edgeData != NULL ? &edgeData[added] : NULL;
        CUgraphNode source = from[added], target = to[added];
        if (!node_is_in_graph(hGraph, source) || !node_is_in_graph(hGraph, target) || source == target ||
            !is_edge_data_valid(source, data) || edges_find(&target->dependencies, source) < target->dependencies.count)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!connect_nodes(source, target, data))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result != CUDA_SUCCESS)
            break;
    }
    while (result != CUDA_SUCCESS && added-- > 0)
        disconnect_nodes(from[added], to[added]);
    return leave(result);
}

API CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t numDependencies) {
    return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

API CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *edgeData, size_t numDependencies) {
    static const CUgraphEdgeData default_edge;
    if (numDependencies != 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS)
        return result;
    if (numDependencies != 0 && graph_has_memory(hGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numDependencies; i++) {
        if (!node_is_in_graph(hGraph, from[i]) || !node_is_in_graph(hGraph, to[i]))
            return leave(CUDA_ERROR_INVALID_VALUE);
        const struct edges *edges = &to[i]->dependencies;
        size_t found = edges_find(edges, from[i]);
        if (found == edges->count ||
            !is_same_edge_data(&edges->data[found], edgeData != NULL ? &edgeData[i] : &default_edge))
            return leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < numDependencies; i++)
        disconnect_nodes(from[i], to[i]);
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                       size_t numDependencies) {
    return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}
