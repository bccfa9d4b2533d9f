/*
 * Export tables: tables of functions by UUID (cuGetExportTable), an undocumented interface between NVIDIA's libraries
 * and the driver.
 *
 * NVIDIA's runtime library does not start without the tables in this file. They make it possible to test programs that
 * use the runtime; none of their functions computes anything. The source for their contents is ZLUDA
 * (github.com/vosen/ZLUDA, dark_api/src/lib.rs), an open implementation of the driver API. libcudart 11.8 to 13.5 were
 * observed to call no other tables. A slot of unknown meaning logs the call to ALIQUOT_FAKE_LOG and returns
 * CUDA_ERROR_NOT_SUPPORTED.
 */
#define _GNU_SOURCE
#include "cuda_client.h"
#include "cuda_context.h"
#include "cuda_handshake.h"
#include "cuda_storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nearly all slots are functions. In most tables, the first slot is the size of the table in bytes. */
union table_slot {
    size_t bytes;
    void (*function)(void);
};
#define FUNCTION(name)                                                                                                 \
    { .function = (void (*)(void))name }
#define SIZE_OF(table)                                                                                                 \
    { .bytes = sizeof table }

/* ---- slots of unknown meaning ---- */

enum { UNKNOWN_SLOTS = 128 };
static struct {
    const char *table;
    size_t slot;
} unknown_slots[UNKNOWN_SLOTS];

static CUresult log_unknown_call(unsigned n, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d) {
    log_line("cuGetExportTable: unknown slot %zu of table %s was called (%#lx, %#lx, %#lx, %#lx)",
             unknown_slots[n].slot, unknown_slots[n].table, a, b, c, d);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define UNKNOWN(n)                                                                                                     \
    static CUresult unknown_##n(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d) {                                  \
        return log_unknown_call(n, a, b, c, d);                                                                        \
    }
#define EIGHT(EACH, n0, n1, n2, n3, n4, n5, n6, n7)                                                                    \
    EACH(n0) EACH(n1) EACH(n2) EACH(n3) EACH(n4) EACH(n5) EACH(n6) EACH(n7)
#define ALL(EACH)                                                                                                      \
    EIGHT(EACH, 0, 1, 2, 3, 4, 5, 6, 7)                                                                                \
    EIGHT(EACH, 8, 9, 10, 11, 12, 13, 14, 15)                                                                          \
    EIGHT(EACH, 16, 17, 18, 19, 20, 21, 22, 23)                                                                        \
    EIGHT(EACH, 24, 25, 26, 27, 28, 29, 30, 31)                                                                        \
    EIGHT(EACH, 32, 33, 34, 35, 36, 37, 38, 39)                                                                        \
    EIGHT(EACH, 40, 41, 42, 43, 44, 45, 46, 47)                                                                        \
    EIGHT(EACH, 48, 49, 50, 51, 52, 53, 54, 55)                                                                        \
    EIGHT(EACH, 56, 57, 58, 59, 60, 61, 62, 63)                                                                        \
    EIGHT(EACH, 64, 65, 66, 67, 68, 69, 70, 71)                                                                        \
    EIGHT(EACH, 72, 73, 74, 75, 76, 77, 78, 79)                                                                        \
    EIGHT(EACH, 80, 81, 82, 83, 84, 85, 86, 87)                                                                        \
    EIGHT(EACH, 88, 89, 90, 91, 92, 93, 94, 95)                                                                        \
    EIGHT(EACH, 96, 97, 98, 99, 100, 101, 102, 103)                                                                    \
    EIGHT(EACH, 104, 105, 106, 107, 108, 109, 110, 111)                                                                \
    EIGHT(EACH, 112, 113, 114, 115, 116, 117, 118, 119)                                                                \
    EIGHT(EACH, 120, 121, 122, 123, 124, 125, 126, 127)
ALL(UNKNOWN)
#define ADDRESS(n) FUNCTION(unknown_##n),
static const union table_slot unknown_functions[UNKNOWN_SLOTS] = {ALL(ADDRESS)};

/* ---- the runtime's interface ---- */

static CUresult load_wrapper(CUmodule *module, const void *wrapper) {
    return cuModuleLoadData(module, wrapper);
}

static CUresult load_wrapper_with(CUmodule *module, const void *wrapper, void *reserved, void *reserved2,
                                  unsigned int reserved3) {
    (void)reserved, (void)reserved2, (void)reserved3;
    return cuModuleLoadData(module, wrapper);
}

static CUresult load_fatbin(const void *fatbin, CUmodule *module, void *reserved, void *reserved2,
                            unsigned int reserved3) {
    (void)reserved, (void)reserved2, (void)reserved3;
    return cuModuleLoadData(module, fatbin);
}

/* The runtime asks the driver to load its compilers. Called by libcudart 13.4 and later. */
static CUresult load_compilers(void) {
    return CUDA_SUCCESS;
}

static union table_slot runtime_interface[13] = {
    SIZE_OF(runtime_interface),        FUNCTION(load_wrapper),      FUNCTION(primary_context_handle),
    [6] = FUNCTION(load_wrapper_with), [8] = FUNCTION(load_fatbin), [12] = FUNCTION(load_compilers),
};

/* libcudart 13.4 and later request this table without calling its functions. cuBLAS finds the kernels that it has
   loaded by the ID of the context. */
static union table_slot runtime_services[95] = {SIZE_OF(runtime_services), [4] = FUNCTION(cuCtxGetId)};

/* ---- tools: none is ever attached ---- */

/* One flag for each function of the runtime; a tool that wants a callback for a function sets its flag. */
static void get_callback_flags(void **flags_out, size_t *count) {
    static uint32_t flags[1024];
    *flags_out = flags;
    *count = sizeof flags / sizeof flags[0];
}

static void get_domain_flags(void **flags_out, size_t *count) {
    static uint32_t flags[16];
    *flags_out = flags;
    *count = sizeof flags / sizeof flags[0];
}

static union table_slot tool_callbacks[7] = {
    SIZE_OF(tool_callbacks), [2] = FUNCTION(get_callback_flags), [6] = FUNCTION(get_domain_flags)};

/* cuBLAS asks for the current context here. */
static union table_slot tool_threads[4] = {SIZE_OF(tool_threads), [2] = FUNCTION(cuCtxGetCurrent)};

/* Reports whether a tool or a debugger blocks the context. */
static CUresult context_forbidden(CUcontext context, uint32_t *forbidden, const void **reserved) {
    (void)context, (void)reserved;
    if (forbidden == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *forbidden = 0;
    return CUDA_SUCCESS;
}

static uint32_t process_forbidden(void) {
    return 0;
}

static union table_slot tool_checks[4] = {SIZE_OF(tool_checks), [2] = FUNCTION(context_forbidden),
                                          FUNCTION(process_forbidden)};

static union table_slot context_storage[4] = {FUNCTION(context_storage_put), FUNCTION(context_storage_delete),
                                              FUNCTION(context_storage_get)};

/* ---- the handshake ---- */

static CUresult handshake(uint32_t version, uint64_t seconds, unsigned char answer[16]);

static union table_slot handshakes[3] = {SIZE_OF(handshakes), FUNCTION(handshake)};

static CUresult handshake(uint32_t version, uint64_t seconds, unsigned char answer[16]) {
    struct handshake_addresses addresses = {runtime_interface, handshakes, handshakes[1].function};
    return answer != NULL ? handshake_answer(version, seconds, &addresses, answer) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the export tables ---- */

static const struct export_table {
    const char *name;
    unsigned char id[16];
    union table_slot *slots;
    size_t count;
} export_tables[] = {
#define TABLE(name, ...)                                                                                               \
    { #name, {__VA_ARGS__ }, name, sizeof name / sizeof name[0] }
    /* 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9 */
    TABLE(runtime_interface, 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
          0xf9),
    /* 21318c60-9714-3248-8ca6-41ff7324c8f2 */
    TABLE(runtime_services, 0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
          0xf2),
    /* a094798c-2e74-2e74-93f2-0800200c0a66 */
    TABLE(tool_callbacks, 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
          0x66),
    /* 42d85a81-23f6-cb47-8298-f6e78a3aecdc */
    TABLE(tool_threads, 0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc),
    /* 263e8860-7cd2-6143-92f6-bbd5006dfa7e */
    TABLE(tool_checks, 0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e),
    /* c693336e-1121-df11-a8c3-68f355d89593 */
    TABLE(context_storage, 0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
          0x93),
    /* d4082055-bde6-704b-8d34-ba123c66e1f2 */
    TABLE(handshakes, 0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2),
};
enum { EXPORT_TABLES = sizeof export_tables / sizeof export_tables[0] };

static void fill_unknown_slots(void) {
    static unsigned n;
    for (size_t i = 0; i < EXPORT_TABLES; i++) {
        for (size_t slot = 0; slot < export_tables[i].count; slot++) {
            if (export_tables[i].slots[slot].bytes != 0 || n == UNKNOWN_SLOTS) {
                continue;
            }
            unknown_slots[n].table = export_tables[i].name;
            unknown_slots[n].slot = slot;
            export_tables[i].slots[slot] = unknown_functions[n++];
        }
    }
}

API CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
    static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;
    if (ppExportTable == NULL || pExportTableId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&filling);
    fill_unknown_slots();
    pthread_mutex_unlock(&filling);
    for (size_t i = 0; i < EXPORT_TABLES; i++) {
        if (memcmp(export_tables[i].id, pExportTableId->bytes, sizeof export_tables[i].id) == 0) {
            *ppExportTable = export_tables[i].slots;
            return CUDA_SUCCESS;
        }
    }
    char id[33];
    for (int i = 0; i < 16; i++) {
        snprintf(id + 2 * i, 3, "%02x", (unsigned char)pExportTableId->bytes[i]);
    }
    log_line("cuGetExportTable: no table %s", id);
    *ppExportTable = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
