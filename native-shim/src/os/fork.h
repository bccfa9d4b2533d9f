/* What a forked child, which holds nothing on a GPU, forgets. */
#ifndef ALIQUOT_FORK_H
#define ALIQUOT_FORK_H

/*
 * Has config.c call the function in a forked child, before anything else runs there. The linker collects the addresses
 * in a section, so that config.c needs to know none of the layers above it, and no code has to run that registers
 * them. Their order is undefined: a reset changes the state of its own file only.
 */
#define ALIQUOT_AFTER_FORK(function)                                                                                   \
    static void (*const aliquot_after_fork_##function)(void) __attribute__((used, section("aliquot_resets"))) = function

#endif
