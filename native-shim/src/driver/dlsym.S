/*
 * void *dlsym(void *handle, const char *name)
 *
 * Exported dlsym. Calls aliquot_route_dlsym, which returns { result, jump } in two registers. If jump is not NULL,
 * jumps to the real dlsym with the caller's registers and return address: RTLD_NEXT means "after the calling library".
 */
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
#if defined(__x86_64__)
    .cfi_startproc
    endbr64
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call aliquot_route_dlsym
    add $8, %rsp
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    test %rdx, %rdx
    jnz 1f
    ret
1:  jmp *%rdx
    .cfi_endproc
#elif defined(__aarch64__)
    .cfi_startproc
    stp x29, x30, [sp, -32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    stp x0, x1, [sp, 16]
    bl aliquot_route_dlsym
    cbnz x1, 1f
    ldp x29, x30, [sp], 32
    ret
1:  mov x16, x1
    ldp x0, x1, [sp, 16]
    ldp x29, x30, [sp], 32
    br x16
    .cfi_endproc
#else
#error "dlsym is written for x86-64 and arm64"
#endif
    .size dlsym, . - dlsym
    .hidden aliquot_route_dlsym
    .section .note.GNU-stack, "", %progbits
