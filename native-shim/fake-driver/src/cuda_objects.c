/* The registry of object handles. */
#define _GNU_SOURCE
#include "cuda_objects.h"

#include <search.h>
#include <stdlib.h>

static void *object_tree; /* tree of all objects, by address */
static LIST_HEAD(, object) objects;

static int compare_addresses(const void *a, const void *b) {
    return a < b ? -1 : a > b;
}

void *object_new(enum object_kind kind, size_t bytes, struct CUctx_st *context) {
    struct object *object = calloc(1, bytes);
    if (object == NULL) {
        return NULL;
    }
    if (tsearch(object, &object_tree, compare_addresses) == NULL) {
        free(object);
        return NULL;
    }
    object->kind = kind;
    object->context = context;
    LIST_INSERT_HEAD(&objects, object, list);
    return object;
}

void *object_find(enum object_kind kind, const void *handle) {
    struct object *const *node = handle != NULL ? tfind(handle, &object_tree, compare_addresses) : NULL;
    return node != NULL && (*node)->kind == kind ? *node : NULL;
}

void object_delete(void *handle) {
    struct object *object = handle;
    tdelete(object, &object_tree, compare_addresses);
    LIST_REMOVE(object, list);
    if (object->end != NULL) {
        object->end(object);
    }
    free(object);
}

void objects_delete_of_context(const struct CUctx_st *context) {
    struct object *next;
    for (struct object *object = LIST_FIRST(&objects); object != NULL; object = next) {
        next = LIST_NEXT(object, list);
        if (object->context == context) {
            object_delete(object);
        }
    }
}

void objects_for_each(enum object_kind kind, void (*visit)(void *object, void *data), void *data) {
    struct object *next;
    for (struct object *object = LIST_FIRST(&objects); object != NULL; object = next) {
        next = LIST_NEXT(object, list);
        if (object->kind == kind) {
            visit(object, data);
        }
    }
}
