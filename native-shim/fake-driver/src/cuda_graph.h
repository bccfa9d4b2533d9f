/*
 * Graphs: what building them (cuda_graph.c), capturing into them (cuda_capture.c) and running them (cuda_graph_exec.c)
 * share. All of it with the driver's lock held.
 */
#ifndef ALIQUOT_FAKE_CUDA_GRAPH_H
#define ALIQUOT_FAKE_CUDA_GRAPH_H

#include "cuda_driver.h"

/* Edges to or from one node, or what the next node of a capturing stream depends on. */
struct edges {
    CUgraphNode *nodes;
    CUgraphEdgeData *data;
    size_t count, room;
};

/* What exists already is not added again. False without memory: then nothing has changed. */
bool edges_add(struct edges *edges, CUgraphNode node, const CUgraphEdgeData *data);
bool edges_add_all(struct edges *edges, const struct edges *more);
void edges_free(struct edges *edges);

struct CUgraph_st {
    struct object object;
    CUgraphNode first, last; /* in the order in which they were added */
    size_t nodes;
    unsigned long long id, original; /* of the graph that it is a clone of */
    CUgraphNode owner;               /* the node whose child graph it is */
    size_t executables;              /* made from it and alive */
    bool capturing;                  /* between cuStreamBeginCapture and cuStreamEndCapture */
    struct user_reference *references;
};

struct CUgraphNode_st {
    struct object object;
    CUgraph graph;
    CUgraphNode previous, next;
    struct edges dependencies, dependents;
    CUgraphNodeParams params; /* params.kernel's pointers lead into arguments */
    void *arguments;
    CUlaunchAttributeValue *attributes; /* of a kernel, by id; NULL: all zero */
    CUgraph child;
    struct node_memory *memory;      /* of an allocation node */
    unsigned long long id, original; /* of the node that it is a clone of */
    bool disabled;
    /* For whoever walks over the graph, and worth nothing afterwards. */
    CUgraphNode twin;
    size_t mark;
};

/* What an allocation node and its clones allocate: each launch the same addresses. */
struct node_memory {
    struct graph_memory *memory;
    size_t nodes;
};

/* A clone of the graph that it was made from, with the parameters that it was given since. */
struct CUgraphExec_st {
    struct object object;
    CUgraph graph;
    CUgraph source; /* which may be gone */
    unsigned long long source_id;
    cuuint64_t flags;
    gpu_file *gpu; /* that it was last launched on, and the number of its last work there */
    uint64_t last;
};

CUgraph graph_new(void);
/* Its memory nodes' clones stand for the same memory. */
CUgraph graph_clone(CUgraph graph);
/* Whether there are nodes in it, or in the graphs within it, that allocate or free. */
bool graph_has_memory(CUgraph graph);
/* With its nodes; lets its user objects go. */
void graph_delete(CUgraph graph);
/* The node, in the graph or the graphs within it, that is a clone of the node with that id. */
CUgraphNode graph_find_clone(CUgraph graph, unsigned long long original);

/*
 * The graph's nodes in an order in which all dependencies come before their dependents, to be freed by the caller; NULL
 * with one of the nodes of a cycle in culprit, or without memory. An empty graph has an order too.
 */
CUgraphNode *graph_order(CUgraph graph, CUgraphNode *culprit);

/* Checks params, copies what they point to and makes a node that comes after the dependencies (may be NULL). */
CUresult node_add(CUgraph graph, const struct edges *dependencies, const CUgraphNodeParams *params, CUgraphNode *made);
/* Gives the node other parameters of its type. */
CUresult node_set(CUgraphNode node, const CUgraphNodeParams *params);
/* Whether params make a node, and CUDA_SUCCESS if so. */
CUresult node_check(const CUgraphNodeParams *params);
bool node_set_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

enum { ATTRIBUTES = 17 }; /* CU_LAUNCH_ATTRIBUTE_MAX of cuda.h 13.0 */

/*
 * Lets the lock go, and then calls the destructors of the user objects whose last references went since it was taken.
 * Ends every entry point that may delete a graph.
 */
CUresult leave_graphs(CUresult result);

/* A second owner for each of the user objects of a graph. False without memory. */
bool references_copy(const struct user_reference *from, struct user_reference **to);
void references_release(struct user_reference **references);

#endif
