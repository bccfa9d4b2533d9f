/*
 * Graphs: what building them (cuda_graph.c), capturing into them (cuda_capture.c) and running them (cuda_graph_exec.c,
 * cuda_graph_launch.c) share. Called with the driver lock held.
 */
#ifndef ALIQUOT_FAKE_CUDA_GRAPH_H
#define ALIQUOT_FAKE_CUDA_GRAPH_H

#include "cuda_driver.h"

/* The edges to or from one node, or the dependencies of the next node of a capturing stream. */
struct edges {
    CUgraphNode *nodes;
    CUgraphEdgeData *data;
    size_t count, capacity;
};

/* Add edges that are not there yet. Without host memory, edges_add() returns false and changes nothing. */
bool edges_add(struct edges *edges, CUgraphNode node, const CUgraphEdgeData *data);
bool edges_add_all(struct edges *edges, const struct edges *more);
void edges_free(struct edges *edges);

struct CUgraph_st {
    struct object object;
    CUgraphNode first, last; /* in the order in which they were added */
    size_t node_count;
    unsigned long long id, cloned_from; /* the id of the graph that this one is a clone of; 0: none */
    CUgraphNode parent_node;            /* the node whose child graph this is, or NULL */
    size_t exec_count;                  /* live executable graphs instantiated from it */
    bool capturing;                     /* between cuStreamBeginCapture and cuStreamEndCapture */
};

struct CUgraphNode_st {
    struct object object;
    CUgraph graph;
    CUgraphNode previous, next;
    struct edges dependencies, dependents;
    CUgraphNodeParams params; /* the pointers in params.kernel point into `arguments` */
    void *arguments;
    CUlaunchAttributeValue *attributes; /* of a kernel node, indexed by id; NULL: all zero */
    CUgraph child;
    struct node_allocation *allocation; /* of a memory allocation node */
    unsigned long long id, cloned_from; /* the id of the node that this one is a clone of; 0: none */
    /* Temporary values of one traversal of the graph; undefined afterwards. */
    CUgraphNode counterpart;
    size_t scratch;
};

/* The memory that an allocation node and its clones share. It has the same address at every launch. */
struct node_allocation {
    struct graph_memory *memory;
    size_t node_count;
};

/* An executable graph: a clone of the graph that it was instantiated from. */
struct CUgraphExec_st {
    struct object object;
    CUgraph graph;
    CUgraph source; /* may have been destroyed */
    unsigned long long source_id;
    cuuint64_t flags;
    gpu_file *gpu;      /* the GPU of the latest launch */
    uint64_t last_work; /* the number of the latest launch's last work on that GPU */
};

CUgraph graph_new(void);
/* Clones of allocation nodes share the memory of the originals. */
CUgraph graph_clone(CUgraph graph);
/* Whether the graph or a child graph has memory allocation or free nodes. */
bool graph_has_memory(CUgraph graph);
/* Deletes the graph with its nodes. */
void graph_delete(CUgraph graph);
/* Finds the clone of the node with that id in the graph and its child graphs. */
CUgraphNode graph_find_clone(CUgraph graph, unsigned long long original);

/*
 * Returns the nodes in an order in which every dependency comes before its dependents. The caller frees the array,
 * which is not NULL for an empty graph either. Returns NULL without host memory, or with a node of the cycle in
 * cycle_node if there is one.
 */
CUgraphNode *graph_topological_order(CUgraph graph, CUgraphNode *cycle_node);

/* Checks params, copies the data that they point to and adds a node with those dependencies (may be NULL). */
CUresult graph_node_add(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params,
                        CUgraphNode *made);
/* Returns CUDA_SUCCESS if params are valid for a node. */
CUresult graph_node_check_params(const CUgraphNodeParams *params);
bool graph_node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

enum { LAUNCH_ATTRIBUTES = 17 }; /* CU_LAUNCH_ATTRIBUTE_MAX of cuda.h 13.0 */

#endif
