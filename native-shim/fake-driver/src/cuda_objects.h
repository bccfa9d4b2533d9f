/* The registry of all handles except contexts: streams, events, modules, graphs. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_OBJECTS_H
#define ALIQUOT_FAKE_CUDA_OBJECTS_H

#include <stddef.h>
#include <sys/queue.h>

struct CUctx_st;

enum object_kind {
    KIND_STREAM = 1,
    KIND_EVENT,
    KIND_MODULE,
    KIND_FUNCTION,
    KIND_LIBRARY,
    KIND_KERNEL,
    KIND_PHYSICAL_ALLOCATION,
    KIND_ARRAY,
    KIND_MIPMAPPED_ARRAY,
    KIND_GRAPH,
    KIND_GRAPH_NODE,
    KIND_GRAPH_EXEC,
    KIND_GREEN_CONTEXT,
};

/* The first member of the struct behind every handle. */
struct object {
    enum object_kind kind;
    struct CUctx_st *context;  /* NULL if the object belongs to the process */
    void (*end)(void *object); /* frees what it holds when it is deleted; NULL: it holds nothing */
    LIST_ENTRY(object) list;
};

/* Allocates a zeroed object of that many bytes, which starts with struct object; NULL without host memory. */
void *object_new(enum object_kind kind, size_t bytes, struct CUctx_st *context);

/* Returns handle if it refers to an object of that kind, otherwise NULL. */
void *object_find(enum object_kind kind, const void *handle);
void object_delete(void *object);

/* Deletes the objects of a context that is being destroyed. */
void objects_delete_of_context(const struct CUctx_st *context);

/* Calls visit for every object of a kind; visit may delete the object that it receives. */
void objects_for_each(enum object_kind kind, void (*visit)(void *object, void *data), void *data);

#endif
