/*
 * The programs' entry point, instead of the C library's crt1.o: that of Debian 12 asks for __libc_start_main of glibc
 * 2.34 and so would keep the programs out of older containers. The older form of the same function is still there.
 * Nothing here has constructors, so none need be run.
 */
#if !defined(__x86_64__)
#error "only for x86-64; elsewhere the C library's own entry point is used"
#endif

__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
        ".text\n"
        ".globl _start\n"
        ".type _start, %function\n"
        "_start:\n"
        "    xorl %ebp, %ebp\n"
        "    movq %rdx, %r9\n"  /* what to do at exit for the dynamic linker */
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
