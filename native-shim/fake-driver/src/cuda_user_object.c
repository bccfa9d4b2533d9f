/* User objects: what a program wants to live as long as the graphs that use it. */
#include "cuda_graph.h"

#include <limits.h>
#include <stdlib.h>

struct CUuserObject_st {
    struct object object;
    unsigned long references;
    CUhostFn destroy;
    void *pointer;
};

struct user_reference {
    CUuserObject object;
    unsigned long count;
    struct user_reference *next;
};

/* Objects whose last reference has gone, until leave_graphs can call their destructors without the lock. */
static struct CUuserObject_st *dead;

static void release(CUuserObject object, unsigned long count) {
    object->references -= count < object->references ? count : object->references;
    if (object->references != 0)
        return;
    CUuserObject copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy = *object;
        copy->object.next = (struct object *)dead;
        dead = copy;
    }
    object_delete(object);
}

CUresult leave_graphs(CUresult result) {
    CUuserObject gone = dead;
    dead = NULL;
    leave(result);
    while (gone != NULL) {
        CUuserObject next = (CUuserObject)gone->object.next;
        gone->destroy(gone->pointer);
        free(gone);
        gone = next;
    }
    return result;
}

static bool hold(struct user_reference **references, CUuserObject object, unsigned long count) {
    struct user_reference *reference = *references;
    while (reference != NULL && reference->object != object)
        reference = reference->next;
    if (reference == NULL) {
        reference = calloc(1, sizeof *reference);
        if (reference == NULL)
            return false;
        reference->object = object;
        reference->next = *references;
        *references = reference;
    }
    reference->count += count;
    return true;
}

bool references_copy(const struct user_reference *from, struct user_reference **to) {
    for (; from != NULL; from = from->next) {
        if (!hold(to, from->object, from->count))
            return false;
        from->object->references += from->count;
    }
    return true;
}

void references_release(struct user_reference **references) {
    while (*references != NULL) {
        struct user_reference *first = *references;
        *references = first->next;
        release(first->object, first->count);
        free(first);
    }
}

API CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                                unsigned int flags) {
    if (object_out == NULL || destroy == NULL || initialRefcount == 0 || initialRefcount > INT_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    CUuserObject object = object_new(KIND_USER_OBJECT, sizeof *object, NULL);
    if (object == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    object->references = initialRefcount;
    object->destroy = destroy;
    object->pointer = ptr;
    *object_out = object;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_user_object(CUuserObject object, unsigned int count) {
    if (count == 0 || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return enter_with(KIND_USER_OBJECT, object, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    CUresult result = enter_user_object(object, count);
    if (result != CUDA_SUCCESS)
        return result;
    object->references += count;
    return leave(CUDA_SUCCESS);
}

API CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    CUresult result = enter_user_object(object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (count > object->references)
        return leave(CUDA_ERROR_INVALID_VALUE);
    release(object, count);
    return leave_graphs(CUDA_SUCCESS);
}

API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    if (flags > CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_user_object(object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH, graph) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!hold(&graph->references, object, count))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->references += count;
    return leave(CUDA_SUCCESS);
}

API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    CUresult result = enter_user_object(object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH, graph) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct user_reference **at = &graph->references;
    while (*at != NULL && (*at)->object != object)
        at = &(*at)->next;
    struct user_reference *reference = *at;
    if (reference == NULL || reference->count < count)
        return leave(CUDA_ERROR_INVALID_VALUE);
    reference->count -= count;
    if (reference->count == 0) {
        *at = reference->next;
        free(reference);
    }
    release(object, count);
    return leave_graphs(CUDA_SUCCESS);
}
