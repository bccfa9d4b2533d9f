/* A library with two versions of one function, like glibc. */
int first(void);
int second(void);

int first(void) {
    return 1;
}

int second(void) {
    return 2;
}

__asm__(".symver first, versioned@VERSION_1\n.symver second, versioned@@VERSION_2");
