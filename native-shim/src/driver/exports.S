/*
 * The exported hooks: each jumps to the address in its entry of aliquot_entries, at first the hook. In a container with
 * whole cards lookup.c replaces it by the driver's address, so that a program linked to the driver pays one jump.
 * hooks.h names the hook of cuInit aliquot_hook_cuInit.
 */
#define ALIQUOT_HOOKS_ONLY
#include "driver/hooks.h"

#if defined(__x86_64__)
#define JUMP_TO(entry) endbr64; jmp *entry(%rip);
#elif defined(__aarch64__)
#define JUMP_TO(entry) adrp x16, entry; ldr x16, [x16, :lo12:entry]; br x16;
#else
#error "exports.S is written for x86-64 and arm64"
#endif

#define EXPORT(library, result, symbol, name, version, flags, parameters) \
    .globl symbol; .type symbol, %function; .balign 16; \
    symbol: .cfi_startproc; JUMP_TO(aliquot_entry_##symbol) .cfi_endproc; .size symbol, . - symbol;

#define ENTRY(library, result, symbol, name, version, flags, parameters) \
    .hidden aliquot_hook_##symbol; aliquot_entry_##symbol: .quad aliquot_hook_##symbol;

    .text
    ALIQUOT_HOOKS(EXPORT)

    .data
    .balign 8
    .globl aliquot_entries
    .hidden aliquot_entries
    .type aliquot_entries, %object
aliquot_entries:
    ALIQUOT_HOOKS(ENTRY)
    .size aliquot_entries, . - aliquot_entries

    .section .note.GNU-stack, "", %progbits
