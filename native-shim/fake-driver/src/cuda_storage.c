#include "cuda_storage.h"
#include "cuda_driver.h"

#include <stdlib.h>

static struct storage_entry {
    CUcontext context;
    void *key, *value;
    storage_destructor destructor;
    struct storage_entry *next;
} * stored_entries, *detached_entries;

/* NULL stands for the current context. */
static CUresult enter_storage_context(CUcontext *context) {
    if (*context == NULL) {
        return enter_context(context);
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(*context);
    return result == CUDA_SUCCESS ? result : leave(result);
}

static struct storage_entry **find_storage_entry(const struct CUctx_st *context, const void *key) {
    struct storage_entry **link = &stored_entries;
    while (*link != NULL && ((*link)->context != context || (key != NULL && (*link)->key != key))) {
        link = &(*link)->next;
    }
    return link;
}

CUresult context_storage_put(CUcontext context, void *key, void *value, storage_destructor destructor) {
    if (key == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_storage_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct storage_entry **link = find_storage_entry(context, key), *entry = *link;
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            return leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
        *link = entry;
    }
    entry->context = context;
    entry->key = key;
    entry->value = value;
    entry->destructor = destructor;
    return leave(CUDA_SUCCESS);
}

CUresult context_storage_delete(CUcontext context, void *key) {
    CUresult result = key != NULL ? enter_storage_context(&context) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct storage_entry **link = find_storage_entry(context, key), *entry = *link;
    if (entry == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    *link = entry->next;
    free(entry);
    return leave(CUDA_SUCCESS);
}

CUresult context_storage_get(void **value, CUcontext context, void *key) {
    CUresult result = value != NULL && key != NULL ? enter_storage_context(&context) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct storage_entry *entry = *find_storage_entry(context, key);
    if (entry == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    *value = entry->value;
    return leave(CUDA_SUCCESS);
}

void context_storage_detach(const struct CUctx_st *context) {
    struct storage_entry **link;
    while (*(link = find_storage_entry(context, NULL)) != NULL) {
        struct storage_entry *entry = *link;
        *link = entry->next;
        entry->next = detached_entries;
        detached_entries = entry;
    }
}

CUresult context_storage_run_destructors(CUresult result) {
    if (enter_driver() != CUDA_SUCCESS) {
        return result;
    }
    struct storage_entry *next, *entry = detached_entries;
    detached_entries = NULL;
    leave(CUDA_SUCCESS);
    for (; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->destructor != NULL) {
            entry->destructor(entry->context, entry->key, entry->value);
        }
        free(entry);
    }
    return result;
}
