/*
 * The programs' entry point, in place of the C library's crt1.o. Debian 12's crt1.o needs __libc_start_main of glibc
 * 2.34, so the programs would not start in older containers; glibc still exports the older version of that function,
 * which this file uses. The programs have no constructors, so none are run.
 */
#if !defined(__x86_64__)
#error "only for x86-64; other architectures use the C library's entry point"
#endif

__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
        ".text\n"
        ".globl _start\n"
        ".type _start, %function\n"
        "_start:\n"
        "    xorl %ebp, %ebp\n"
        "    movq %rdx, %r9\n"  /* the dynamic linker's exit handler */
        "    popq %rsi\n"       /* argc */
        "    movq %rsp, %rdx\n" /* argv */
        "    andq $-16, %rsp\n"
        "    pushq %rax\n"
        "    pushq %rsp\n"
        "    xorl %r8d, %r8d\n" /* no fini */
        "    xorl %ecx, %ecx\n" /* no init */
        "    movq main@GOTPCREL(%rip), %rdi\n"
        "    call *__libc_start_main@GOTPCREL(%rip)\n"
        "    hlt\n"
        ".size _start, .-_start\n"
        ".section .note.GNU-stack,\"\",%progbits\n"
        ".text\n");
