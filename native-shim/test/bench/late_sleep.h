/* Where the preloaded late_sleep.c writes: a file of LATE_SLEEP_SIZE bytes. */
enum { LATE_SLEEP_FILE = 200, LATE_SLEEP_SIZE = 4 << 20 };
