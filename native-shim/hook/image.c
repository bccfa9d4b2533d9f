#include "image.h"
#include "root.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __aarch64__
#define MACHINE EM_AARCH64
#define GLIBC_LOADER "/lib/ld-linux-aarch64.so.1"
#define MUSL_LOADER "/lib/ld-musl-aarch64.so.1"
#else
#define MACHINE EM_X86_64
#define GLIBC_LOADER "/lib64/ld-linux-x86-64.so.2"
#define MUSL_LOADER "/lib/ld-musl-x86_64.so.1"
#endif

#define PRELOAD "/etc/ld.so.preload"
#define NIX_STORE "/nix/store"

enum {
    SCRIPTS_MAX = 5,      /* as many #! lines as the kernel follows: fs/exec.c, exec_binprm */
    SCRIPT_LINE = 256,    /* bytes of such a line that it reads: BINPRM_BUF_SIZE */
    HEADERS_BYTES = 65536 /* largest table of program headers: fs/binfmt_elf.c, load_elf_phdrs */
};
#define LOADER_BYTES (4 << 20) /* glibc's has 0.2 MiB, with debugging information 1.5 */

enum loader { LOADER_ABSENT, LOADER_PRELOADS, LOADER_IGNORES, LOADER_UNREADABLE };

/* Reads as much as there is, up to size. */
static size_t read_at(int fd, void *buffer, size_t size, off_t at) {
    size_t length = 0;
    for (ssize_t got = 1; length < size && got > 0; length += got > 0 ? (size_t)got : 0) {
        got = pread(fd, (char *)buffer + length, size - length, at + (off_t)length);
    }
    return length;
}

static enum loader examine_loader(int root, const char *path) {
    static char bytes[65536];
    int fd = root_open_file(root, path);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR ? LOADER_ABSENT : LOADER_UNREADABLE;
    }
    enum loader loader = LOADER_IGNORES;
    size_t length = sizeof bytes;
    /* A name that the end of a part cuts is whole in the next. */
    for (off_t at = 0; loader == LOADER_IGNORES && at < LOADER_BYTES && length == sizeof bytes;
         at += (off_t)(sizeof bytes - sizeof PRELOAD)) {
        length = read_at(fd, bytes, sizeof bytes, at);
        loader = memmem(bytes, length, PRELOAD, sizeof PRELOAD) != NULL ? LOADER_PRELOADS : LOADER_IGNORES;
    }
    close(fd);
    return loader;
}

/* ---- the container's program ---- */

/* Opens a program as the kernel does, relative to the container's working folder. */
static int open_program(int root, const char *cwd, const char *name) {
    char path[3 * PATH_MAX + 2]; /* openat2 refuses one that is too long */
    snprintf(path, sizeof path, "%s/%s", name[0] == '/' ? "" : cwd, name);
    return root_open_file(root, path);
}

/* Opens the program that the runtime executes: of those in the folders of PATH, the first that is executable. */
static int search_program(int root, const struct image_program *program) {
    char name[2 * PATH_MAX];
    struct stat status;
    if (strchr(program->name, '/') != NULL) {
        return open_program(root, program->cwd, program->name);
    }
    for (const char *folder = program->path; program->name[0] != 0; folder++) {
        int length = (int)strcspn(folder, ":");
        snprintf(name, sizeof name, "%.*s/%s", length == 0 ? 1 : length, length == 0 ? "." : folder, program->name);
        int fd = open_program(root, program->cwd, name);
        if (fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & 0111) != 0) {
            return fd;
        }
        if (fd >= 0) {
            close(fd);
        }
        folder += length;
        if (*folder == 0) {
            break;
        }
    }
    return -1;
}

/* Reads the path of the loader from a program of this machine's kind. False: it is linked statically, or no such
 * program. */
static bool read_loader(int fd, char path[PATH_MAX]) {
    Elf64_Ehdr file;
    if (read_at(fd, &file, sizeof file, 0) != sizeof file || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_ident[EI_DATA] != ELFDATA2LSB || file.e_machine != MACHINE ||
        file.e_phentsize != sizeof(Elf64_Phdr) || file.e_phnum * sizeof(Elf64_Phdr) > HEADERS_BYTES) {
        return false;
    }
    for (size_t i = 0; i < file.e_phnum; i++) {
        Elf64_Phdr part;
        off_t at = (off_t)(file.e_phoff + i * sizeof part); /* pread refuses a negative one */
        if (read_at(fd, &part, sizeof part, at) != sizeof part) {
            return false;
        }
        if (part.p_type == PT_INTERP) {
            return part.p_filesz > 1 && part.p_filesz <= PATH_MAX &&
                   read_at(fd, path, part.p_filesz, (off_t)part.p_offset) == part.p_filesz &&
                   path[part.p_filesz - 1] == 0;
        }
    }
    return false;
}

/* Reads the program of a script's first line, which ends the string. NULL: the file is no script. */
static const char *read_script(int fd, char line[SCRIPT_LINE]) {
    line[read_at(fd, line, SCRIPT_LINE - 1, 0)] = 0;
    if (line[0] != '#' || line[1] != '!') {
        return NULL;
    }
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t\n")] = 0;
    return name;
}

/* Finds the loader of the container's program. False: there is none, or it is not known. */
static bool find_loader(int root, const struct image_program *program, char path[PATH_MAX]) {
    char line[SCRIPT_LINE];
    int fd = search_program(root, program);
    for (int i = 0; fd >= 0 && i <= SCRIPTS_MAX; i++) {
        const char *script = read_script(fd, line);
        bool found = script == NULL && read_loader(fd, path);
        close(fd);
        if (script == NULL) {
            return found;
        }
        fd = open_program(root, program->cwd, script);
    }
    if (fd >= 0) {
        close(fd);
    }
    return false;
}

/* ---- the image ---- */

/* Finds a loader in Nix's store, of which each version of glibc has one. */
static enum loader find_nix_loader(int root, char path[PATH_MAX]) {
    enum loader loader = LOADER_ABSENT;
    int fd = root_open(root, NIX_STORE, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    DIR *store = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; store != NULL && loader == LOADER_ABSENT && (entry = readdir(store)) != NULL;) {
        if (strstr(entry->d_name, "glibc") != NULL) {
            snprintf(path, PATH_MAX, NIX_STORE "/%s/lib%s", entry->d_name, strrchr(GLIBC_LOADER, '/'));
            loader = examine_loader(root, path);
        }
    }
    if (store != NULL) {
        closedir(store);
    }
    return loader;
}

static enum loader find_usual_loader(int root, char path[PATH_MAX]) {
    static const char *const paths[] = {GLIBC_LOADER, MUSL_LOADER};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        enum loader loader = examine_loader(root, strcpy(path, paths[i]));
        if (loader != LOADER_ABSENT) {
            return loader;
        }
    }
    return find_nix_loader(root, path);
}

bool image_check(int root, const struct image_program *program, bool *has_loader, char sentence[SENTENCE_MAX]) {
    static char path[PATH_MAX];
    enum loader loader = find_loader(root, program, path) ? examine_loader(root, path) : LOADER_ABSENT;
    if (loader == LOADER_ABSENT) {
        loader = find_usual_loader(root, path);
    }
    *has_loader = loader != LOADER_ABSENT;
    switch (loader) {
    case LOADER_PRELOADS:
    case LOADER_ABSENT:
        return true;
    case LOADER_UNREADABLE:
        return REFUSE(sentence, "expected the image's dynamic loader at %.200s to be a file that can be read", path);
    case LOADER_IGNORES:
        break;
    }
    return REFUSE(sentence,
                  "the image's programs cannot be limited, because its dynamic loader %.200s does not read " PRELOAD
                  "; use an image with glibc (Debian, Ubuntu, UBI; not Alpine, not Nix) or request a whole GPU",
                  path);
}
