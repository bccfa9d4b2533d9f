/* The nodes of graphs. A graph belongs to the process, not to a context. */
#define _GNU_SOURCE
#include "cuda_graph.h"
#include "cuda_function.h"
#include "cuda_graph_memory.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>

/* ---- edges ---- */

bool edges_add(struct edges *edges, CUgraphNode node) {
    for (size_t i = 0; i < edges->count; i++) {
        if (edges->nodes[i] == node) {
            return true;
        }
    }
    if (edges->count == edges->capacity) {
        size_t capacity = edges->capacity == 0 ? 4 : 2 * edges->capacity;
        CUgraphNode *nodes = realloc(edges->nodes, capacity * sizeof *nodes);
        if (nodes == NULL) {
            return false;
        }
        edges->nodes = nodes;
        CUgraphEdgeData *data = calloc(capacity, sizeof *data);
        if (data == NULL) {
            return false;
        }
        free(edges->data);
        edges->data = data;
        edges->capacity = capacity;
    }
    edges->nodes[edges->count++] = node;
    return true;
}

bool edges_add_all(struct edges *edges, const struct edges *more) {
    for (size_t i = 0; i < more->count; i++) {
        if (!edges_add(edges, more->nodes[i])) {
            return false;
        }
    }
    return true;
}

void edges_free(struct edges *edges) {
    free(edges->nodes);
    free(edges->data);
    *edges = (struct edges){0};
}

/* ---- nodes ---- */

/*
 * Copies the arguments of a kernel, because the node outlives the caller's copy. The block starts with the pointers
 * that params refers to afterwards. The values follow, each at a multiple of 16 bytes.
 */
static CUresult copy_kernel_params(CUDA_KERNEL_NODE_PARAMS_v3 *kernel, void **copied) {
    *copied = NULL;
    if (kernel->extra != NULL) {
        const void *buffer = NULL;
        size_t bytes = 0;
        for (void **extra = kernel->extra; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
                buffer = extra[1];
            } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
                bytes = *(const size_t *)extra[1];
            } else {
                return CUDA_ERROR_INVALID_VALUE;
            }
        }
        if (buffer == NULL || bytes > 32764) { /* the limit for kernel arguments: CUDA C++ Programming Guide 13 */
            return CUDA_ERROR_INVALID_VALUE;
        }
        struct {
            void *extra[6];
            size_t bytes;
            unsigned char buffer[];
        } *block = malloc(sizeof *block + bytes);
        if (block == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
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
    const struct image_kernel *image = is_function(kernel->func) ? function_image(kernel->func) : NULL;
    size_t count = image != NULL ? image->parameter_count : 0, total = 0;
    for (size_t i = 0; i < count; i++) {
        total += (image->parameters[i].size + 15) & ~(size_t)15;
    }
    if (count == 0) {
        kernel->kernelParams = NULL;
        return CUDA_SUCCESS;
    }
    if (kernel->kernelParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pointers = (count * sizeof(void *) + 15) & ~(size_t)15;
    void **block = malloc(pointers + total);
    if (block == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
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
static CUresult create_node_allocation(CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc = &node->params.alloc;
    struct node_allocation *allocation = calloc(1, sizeof *allocation);
    if (allocation == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        graph_memory_new(device_from_ordinal(alloc->poolProps.location.id), alloc->bytesize, &allocation->memory);
    if (result != CUDA_SUCCESS) {
        free(allocation);
        return result;
    }
    allocation->node_count = 1;
    node->allocation = allocation;
    alloc->dptr = graph_memory_address(allocation->memory);
    return CUDA_SUCCESS;
}

static void release_node_allocation(struct node_allocation *allocation) {
    if (allocation == NULL || --allocation->node_count != 0) {
        return;
    }
    graph_memory_delete(allocation->memory);
    free(allocation);
}

static void node_free(CUgraphNode node) {
    if (node->child != NULL) {
        graph_delete(node->child);
    }
    release_node_allocation(node->allocation);
    edges_free(&node->dependencies);
    free(node->arguments);
    object_delete(node);
}

/* Copies or creates what the parameters of a new node refer to. */
static CUresult take_params(CUgraphNode node) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
        return copy_kernel_params(&node->params.kernel, &node->arguments);
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->params.alloc.dptr == 0) {
        return create_node_allocation(node);
    }
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        node->child = node->params.graph.graph = graph_clone(node->params.graph.graph);
        if (node->child == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        node->child->parent_node = node;
    }
    return CUDA_SUCCESS;
}

static CUresult node_create(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params,
                            CUgraphNode *made) {
    CUgraphNode node = object_new(KIND_GRAPH_NODE, sizeof *node, NULL);
    if (node == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->params = *params;
    CUresult result = take_params(node);
    if (result == CUDA_SUCCESS && !edges_add_all(&node->dependencies, dependencies)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        node_free(node);
        return result;
    }
    if (graph->last != NULL) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    graph->node_count++;
    *made = node;
    return CUDA_SUCCESS;
}

CUresult graph_node_add(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params,
                        CUgraphNode *made) {
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH && graph_has_memory(params->graph.graph)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return node_create(graph, dependencies, params, made);
}

/* ---- whole graphs ---- */

CUgraph graph_new(void) {
    static unsigned long long last_id;
    CUgraph graph = object_new(KIND_GRAPH, sizeof *graph, NULL);
    if (graph != NULL) {
        graph->id = ++last_id;
    }
    return graph;
}

void graph_delete(CUgraph graph) {
    for (CUgraphNode node = graph->first, next; node != NULL; node = next) {
        next = node->next;
        node_free(node);
    }
    object_delete(graph);
}

CUgraph graph_clone(CUgraph graph) {
    static const struct edges none;
    CUgraph clone = graph_new();
    for (CUgraphNode node = graph->first; node != NULL && clone != NULL; node = node->next) {
        CUgraphNode copy;
        if (node_create(clone, &none, &node->params, &copy) != CUDA_SUCCESS) {
            graph_delete(clone);
            return NULL;
        }
        copy->allocation = node->allocation;
        if (node->allocation != NULL) {
            node->allocation->node_count++;
        }
    }
    return clone;
}

bool graph_has_memory(CUgraph graph) {
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
            (node->child != NULL && graph_has_memory(node->child))) {
            return true;
        }
    }
    return false;
}

/* ---- API functions ---- */

static CUresult enter_graph(CUgraph graph) {
    return enter_with_handle(KIND_GRAPH, graph, CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_node(CUgraphNode node) {
    return enter_with_handle(KIND_GRAPH_NODE, node, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    if (phGraph == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUgraph graph = graph_new();
    if (graph == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *phGraph = graph;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphDestroy(CUgraph hGraph) {
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (hGraph->parent_node != NULL || hGraph->capturing) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    graph_delete(hGraph);
    return leave(CUDA_SUCCESS);
}

static CUresult enter_node_of_type(CUgraphNode node, CUgraphNodeType type) {
    CUresult result = enter_node(node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return node->params.type == type ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
    if (params_out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_node_of_type(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(params_out, &hNode->params.alloc, sizeof *params_out); /* the versions of the structure are the same */
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
    if (phGraph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_node_of_type(hNode, CU_GRAPH_NODE_TYPE_GRAPH);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *phGraph = hNode->child;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    if (type == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_node(hNode);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *type = hNode->params.type;
    return leave(CUDA_SUCCESS);
}

/*
 * Without an array, returns the number of nodes. With an array, fills it, sets unused entries to NULL and returns the
 * number of nodes written.
 */
API CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    if (numNodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_graph(hGraph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUgraphNode node = hGraph->first;
    for (size_t i = 0; nodes != NULL && i < *numNodes; i++) {
        nodes[i] = node;
        node = node != NULL ? node->next : NULL;
    }
    if (nodes == NULL || *numNodes > hGraph->node_count) {
        *numNodes = hGraph->node_count;
    }
    return leave(CUDA_SUCCESS);
}
