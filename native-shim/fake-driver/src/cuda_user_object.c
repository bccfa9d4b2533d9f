/* User objects: resources of the program that live at least as long as the graphs that refer to them. */
#include "cuda_user_object.h"
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

/*
 * Copies of objects that lost their last reference. leave_and_run_destructors() calls their destructors without the
 * lock.
 */
static struct CUuserObject_st *destroyed_objects;

static void release_references(CUuserObject object, unsigned long count) {
    object->references -= count < object->references ? count : object->references;
    if (object->references != 0)
        return;
    CUuserObject copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy = *object;
        copy->object.next = (struct object *)destroyed_objects;
        destroyed_objects = copy;
    }
    object_delete(object);
}

CUresult leave_and_run_destructors(CUresult result) {
    CUuserObject destroyed = destroyed_objects;
    destroyed_objects = NULL;
    leave(result);
    while (destroyed != NULL) {
        CUuserObject next = (CUuserObject)destroyed->object.next;
        destroyed->destroy(destroyed->pointer);
        free(destroyed);
        destroyed = next;
    }
    return result;
}

static bool add_reference(struct user_reference **references, CUuserObject object, unsigned long count) {
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

bool user_references_copy(const struct user_reference *from, struct user_reference **to) {
    for (; from != NULL; from = from->next) {
        if (!add_reference(to, from->object, from->count))
            return false;
        from->object->references += from->count;
    }
    return true;
}

void user_references_release(struct user_reference **references) {
    while (*references != NULL) {
        struct user_reference *first = *references;
        *references = first->next;
        release_references(first->object, first->count);
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
    return enter_with_handle(KIND_USER_OBJECT, object, CUDA_ERROR_INVALID_VALUE);
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
    release_references(object, count);
    return leave_and_run_destructors(CUDA_SUCCESS);
}

API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    if (flags > CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_user_object(object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_GRAPH, graph) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!add_reference(&graph->references, object, count))
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
    struct user_reference **link = &graph->references;
    while (*link != NULL && (*link)->object != object)
        link = &(*link)->next;
    struct user_reference *reference = *link;
    if (reference == NULL || reference->count < count)
        return leave(CUDA_ERROR_INVALID_VALUE);
    reference->count -= count;
    if (reference->count == 0) {
        *link = reference->next;
        free(reference);
    }
    release_references(object, count);
    return leave_and_run_destructors(CUDA_SUCCESS);
}
