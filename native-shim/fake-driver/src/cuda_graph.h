/*
 * Graphs: what capturing into them (cuda_capture.c), their nodes (cuda_graph.c) and running them (cuda_graph_exec.c,
 * cuda_graph_launch.c) share. Called with the driver lock held.
 *
 * Nodes come from captures only, so that each one was added after its dependencies.
 */
#ifndef ALIQUOT_FAKE_CUDA_GRAPH_H
#define ALIQUOT_FAKE_CUDA_GRAPH_H

#include "cuda_driver.h"

/* The dependencies of a node, or of the next node of a capturing stream. */
struct edges {
    CUgraphNode *nodes;
    CUgraphEdgeData *data; /* all zero: no other edges are supported */
    size_t count, capacity;
};

/* Add edges that are not there yet. Without host memory, edges_add() returns false and changes nothing. */
bool edges_add(struct edges *edges, CUgraphNode node);
bool edges_add_all(struct edges *edges, const struct edges *more);
void edges_free(struct edges *edges);

struct CUgraph_st {
    struct object object;
    CUgraphNode first, last; /* in the order in which they were added */
    size_t node_count;
    unsigned long long id;
    CUgraphNode parent_node; /* the node whose child graph this is, or NULL */
    size_t exec_count;       /* live executable graphs instantiated from it */
    bool capturing;          /* between cuStreamBeginCapture and cuStreamEndCapture */
};

struct CUgraphNode_st {
    struct object object;
    CUgraph graph;
    CUgraphNode next;
    struct edges dependencies; /* none in an executable graph, where nodes run in the order of the list */
    CUgraphNodeParams params;  /* the pointers in params.kernel point into `arguments` */
    void *arguments;
    CUgraph child;
    struct node_allocation *allocation; /* of a memory allocation node */
    size_t scratch;                     /* temporary value of one traversal of the graph */
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

/* Adds a node with those dependencies, and copies what its parameters point to. The caller has checked these. */
CUresult graph_node_add(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params,
                        CUgraphNode *made);

#endif
