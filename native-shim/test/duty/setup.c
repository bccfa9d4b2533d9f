#include "setup.h"

#include "aliquot/agent.h"
#include "limits/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 64, ARBITER_PRIORITY = 100 };

static char **given; /* the options of the command line */

_Noreturn void setup_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    _exit(2);
}

static __attribute__((format(printf, 2, 3))) void set(const char *variable, const char *format, ...) {
    char text[3 * PATH_LENGTH];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    setenv(variable, text, 1);
}

/* The build folder: that of BUILD/test/duty/PROGRAM. */
static const char *build(void) {
    static char folder[PATH_LENGTH];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 3 && strrchr(folder, '/') != NULL; up++) {
        *strrchr(folder, '/') = 0;
    }
    return folder;
}

double setup_number(const char *text, double min, double max) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= min && value <= max)) {
        setup_fail("expected a number from %g to %g, found '%s'", min, max, text);
    }
    return value;
}

void setup_parse(const struct setup_option *options, const char *help, char **arguments) {
    given = arguments;
    for (; *arguments != NULL; arguments++) {
        const struct setup_option *option = options;
        while (option->name != NULL &&
               (strncmp(*arguments, "--", 2) != 0 || strcmp(*arguments + 2, option->name) != 0)) {
            option++;
        }
        if (option->flag != NULL) {
            *option->flag = true;
            continue;
        }
        bool asks = strcmp(*arguments, "--help") == 0;
        if (option->name == NULL || *++arguments == NULL) {
            fputs(help, asks ? stdout : stderr);
            exit(asks ? EXIT_SUCCESS : 2);
        }
        if (option->text != NULL) {
            *option->text = *arguments;
        } else if (option->integer != NULL) {
            *option->integer = (int)setup_number(*arguments, option->min, option->max);
        } else {
            *option->number = setup_number(*arguments, option->min, option->max);
        }
    }
}

const char *setup_uuid(int gpu) {
    static char uuid[48];
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-00000000da%02x", gpu);
    return uuid;
}

void setup_create(char folder[PATH_LENGTH], int gpus, int participants, int seed) {
    static const char *const folders[] = {"gpus", "regions", "agents"};
    const char *temporary = getenv("TMPDIR");
    char path[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    snprintf(folder, PATH_LENGTH, "%.400s/aliquot-duty-XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(folder) == NULL) {
        setup_fail("%s: %s", folder, strerror(errno));
    }
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%.450s/%s", folder, folders[i]);
        mkdir(path, 0777);
    }
    set("LD_LIBRARY_PATH", "%s/fake-driver", build());
    set("ALIQUOT_FAKE_GPUS", "%s/gpus", folder);
    set("ALIQUOT_FAKE_SEED", "%d", seed);
    set("ALIQUOT_VIRTUAL_TIME", "%s/clock", folder);
    set("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", "%d", participants);
    for (int i = 0; i < gpus; i++) {
        struct gpu_identity identity = {.name = "NVIDIA A100-SXM4-80GB",
                                        .serial = "1",
                                        .memory_bytes = UINT64_C(80) << 30,
                                        .multiprocessors = 108,
                                        .compute_major = 8,
                                        .index = (uint32_t)i};
        snprintf(identity.uuid, sizeof identity.uuid, "%s", setup_uuid(i));
        if (gpu_create(gpu_directory(), &identity, error) != GPU_CREATED) {
            setup_fail("%s", error);
        }
    }
}

void setup_remove(const char *folder) {
    char command[PATH_LENGTH + 16];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (system(command) != 0) {
        setup_fail("cannot remove %s", folder);
    }
}

void *setup_share(const char *folder, size_t size) {
    char path[PATH_LENGTH];
    snprintf(path, sizeof path, "%.450s/shared", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *shared = file < 0 || ftruncate(file, (off_t)size) != 0
                       ? MAP_FAILED
                       : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) {
        setup_fail("%s: %s", path, strerror(errno));
    }
    close(file);
    return shared;
}

static void write_file(const char *folder, const char *name, const void *content, size_t length) {
    char path[PATH_LENGTH];
    snprintf(path, sizeof path, "%.400s/%.60s", folder, name);
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(content, 1, length, file) != length || fclose(file) != 0) {
        setup_fail("%s: %s", path, strerror(errno));
    }
}

void setup_container(const char *folder, const char *name, const char *limits) {
    struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
    char file[64];
    int count = 0;
    for (const char *line = limits; *line != 0; line = strchr(line, '\n') + 1) { /* GPU-... */
        aliquot_uuid_parse(line + 4, 36, agent.device[count++].uuid);
    }
    snprintf(file, sizeof file, "vgpu-%.40s", name);
    write_file(folder, file, limits, strlen(limits));
    snprintf(file, sizeof file, "regions/%.40s", name);
    write_file(folder, file, "", 0);
    snprintf(file, sizeof file, "agents/%.40s", name);
    write_file(folder, file, &agent, sizeof agent);
}

/* The virtual clock is preloaded first, so that it also intercepts the calls of the shim and the driver. priority: the
   order in which the processes run at equal times. */
static pid_t start(char **arguments, const char *folder, const char *container, int priority, int input) {
    pid_t child = fork();
    if (child == 0) {
        set("ALIQUOT_VIRTUAL_TIME_PRIORITY", "%d", priority);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set("LD_PRELOAD", "%s/test/virtual_time.so", build());
        if (container != NULL) {
            set("ALIQUOT_CONFIG", "%s/vgpu-%s", folder, container);
            set("ALIQUOT_REGION", "%s/regions/%s", folder, container);
            set("ALIQUOT_AGENT", "%s/agents/%s", folder, container);
            set("LD_PRELOAD", "%s/test/virtual_time.so:%s/libaliquot.so", build(), build());
        }
        dup2(input, STDIN_FILENO);
        execv(arguments[0], arguments);
        setup_fail("%s: %s", arguments[0], strerror(errno));
    }
    return child;
}

pid_t setup_start(const char *folder, const char *role, const char *container) {
    static int started;
    char *arguments[MAX_ARGUMENTS] = {(char *)"/proc/self/exe", (char *)role, (char *)folder};
    for (int i = 0; given[i] != NULL; i++) {
        if (i + 4 == MAX_ARGUMENTS) {
            setup_fail("too many options");
        }
        arguments[i + 3] = given[i];
    }
    return start(arguments, folder, container, ++started, STDIN_FILENO);
}

pid_t setup_start_arbiter(const char *folder, const char *floor, int input) {
    char program[PATH_LENGTH], regions[PATH_LENGTH], agents[PATH_LENGTH];
    snprintf(program, sizeof program, "%.400s/arbiter/aliquot-arbiter", build());
    snprintf(regions, sizeof regions, "%.450s/regions", folder);
    snprintf(agents, sizeof agents, "%.450s/agents", folder);
    return start((char *[]){program, regions, agents, (char *)floor, NULL}, folder, NULL, ARBITER_PRIORITY, input);
}

int setup_slot_of(gpu_file *gpu, pid_t pid) {
    static struct gpu_process processes[GPU_SLOTS];
    size_t count = gpu_processes(gpu, processes, GPU_SLOTS);
    for (size_t i = 0; i < count && i < GPU_SLOTS; i++) {
        if ((pid_t)processes[i].pid == pid) {
            return processes[i].slot;
        }
    }
    return -1;
}

void setup_stop(pid_t process) {
    if (process > 0) {
        kill(process, SIGKILL);
        waitpid(process, NULL, 0);
    }
}
