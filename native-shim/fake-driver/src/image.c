/*
 * The layouts of fat binaries and cubins are not documented; they are as in ZLUDA (github.com/vosen/ZLUDA,
 * cuda_types/src/dark_api.rs) and GVirtuS (cudart-internal.h), compared with what nvcc 12.9 and 13.0 write.
 */
#define _GNU_SOURCE
#include "image.h"
#include "decompress.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LARGEST = 1 << 30 };

/* ---- bytes of unknown quality ---- */

struct source {
    const unsigned char *start;
    size_t bytes; /* SIZE_MAX: not known */
};

static bool read_at(const struct source *source, size_t offset, void *to, size_t bytes) {
    if (offset > source->bytes || bytes > source->bytes - offset)
        return false;
    const unsigned char *from = source->start + offset;
    if (source->bytes == SIZE_MAX) {
        /* The kernel looks whether there is anything. A sandbox may forbid that. */
        struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};
        ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (got >= 0 || (errno != EPERM && errno != ENOSYS))
            return got == (ssize_t)bytes;
    }
    memcpy(to, from, bytes);
    return true;
}

/* A copy to be freed, with a zero behind it. */
static unsigned char *copy_at(const struct source *source, size_t offset, size_t bytes) {
    unsigned char *copy = bytes <= LARGEST ? malloc(bytes + 1) : NULL;
    if (copy == NULL || !read_at(source, offset, copy, bytes)) {
        free(copy);
        return NULL;
    }
    copy[bytes] = '\0';
    return copy;
}

/* ---- what was found ---- */

static void *add_one(void **array, size_t *count, size_t bytes) {
    char *larger = realloc(*array, (*count + 1) * bytes);
    if (larger == NULL)
        return NULL;
    *array = larger;
    return memset(larger + (*count)++ * bytes, 0, bytes);
}

static struct image_kernel *add_kernel(struct image *image, const char *name, size_t length) {
    struct image_kernel *kernel = add_one((void **)&image->kernels, &image->kernel_count, sizeof *kernel);
    if (kernel == NULL || (kernel->name = strndup(name, length)) == NULL)
        return NULL;
    kernel->registers = 32;
    kernel->max_threads = 1024;
    return kernel;
}

static bool set_parameter(struct image_kernel *kernel, size_t index, uint32_t offset, uint32_t size) {
    while (kernel->parameter_count <= index)
        if (index > 4096 ||
            add_one((void **)&kernel->parameters, &kernel->parameter_count, sizeof *kernel->parameters) == NULL)
            return false;
    kernel->parameters[index] = (struct image_parameter){offset, size};
    return true;
}

static struct image_global *add_global(struct image *image, const char *name, size_t length, size_t bytes) {
    struct image_global *global = add_one((void **)&image->globals, &image->global_count, sizeof *global);
    if (global == NULL || (global->name = strndup(name, length)) == NULL)
        return NULL;
    global->bytes = bytes;
    return global;
}

void image_clear(struct image *image) {
    for (size_t i = 0; i < image->kernel_count; i++) {
        free(image->kernels[i].name);
        free(image->kernels[i].parameters);
    }
    for (size_t i = 0; i < image->global_count; i++) {
        free(image->globals[i].name);
        free(image->globals[i].initial);
    }
    free(image->kernels);
    free(image->globals);
    memset(image, 0, sizeof *image);
}

const struct image_kernel *image_kernel(const struct image *image, const char *name) {
    for (size_t i = 0; i < image->kernel_count; i++)
        if (strcmp(image->kernels[i].name, name) == 0)
            return &image->kernels[i];
    return NULL;
}

const struct image_global *image_global(const struct image *image, const char *name) {
    for (size_t i = 0; i < image->global_count; i++)
        if (strcmp(image->globals[i].name, name) == 0)
            return &image->globals[i];
    return NULL;
}

/* ---- cubins ---- */

enum {
    ELF_MACHINE_CUDA = 190,    /* EM_CUDA */
    OTHER_ENTRY = 0x10,        /* of st_other: a kernel */
    OTHER_MANAGED = 0x04,      /* of st_other: a __managed__ variable */
    INFO_HAS_SIZE = 0x04,      /* a format of .nv.info: a size and then so many bytes */
    INFO_FRAME_SIZE = 0x11,    /* symbol, bytes */
    INFO_PARAMETER = 0x17,     /* index, ordinal and offset, size << 18 and more */
    INFO_MAX_THREADS = 0x05,   /* x, y, z */
    INFO_REGISTER_COUNT = 0x2f /* symbol, registers */
};

struct cubin {
    const unsigned char *bytes;
    size_t size;
    const Elf64_Shdr *sections;
    size_t section_count;
    const char *section_names;
    size_t section_names_size;
    const Elf64_Sym *symbols;
    size_t symbol_count;
    const char *names;
    size_t names_size;
};

static const void *part(const struct cubin *cubin, uint64_t offset, uint64_t size) {
    return offset <= cubin->size && size <= cubin->size - offset ? cubin->bytes + offset : NULL;
}

static const char *name_in(const char *names, size_t size, size_t offset) {
    return offset < size && memchr(names + offset, '\0', size - offset) != NULL ? names + offset : NULL;
}

static const char *section_name(const struct cubin *cubin, size_t index) {
    return name_in(cubin->section_names, cubin->section_names_size, cubin->sections[index].sh_name);
}

/* The section called prefix followed by name, or NULL. */
static const Elf64_Shdr *section_of(const struct cubin *cubin, const char *prefix, const char *name) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < cubin->section_count; i++) {
        const char *found = section_name(cubin, i);
        if (found != NULL && strncmp(found, prefix, length) == 0 && strcmp(found + length, name) == 0)
            return &cubin->sections[i];
    }
    return NULL;
}

/* Calls visit for each attribute of a section that has a size. */
static bool each_info(const struct cubin *cubin, const Elf64_Shdr *section, struct image *image,
                      bool (*visit)(const struct cubin *cubin, struct image *image, unsigned attribute,
                                    const unsigned char *value, size_t size)) {
    const unsigned char *at = part(cubin, section->sh_offset, section->sh_size);
    if (at == NULL)
        return false;
    const unsigned char *end = at + section->sh_size;
    while (end - at >= 4) {
        unsigned format = at[0], attribute = at[1];
        size_t size = format == INFO_HAS_SIZE ? (size_t)(at[2] | at[3] << 8) : 0;
        at += 4;
        if ((size_t)(end - at) < size || (size != 0 && !visit(cubin, image, attribute, at, size)))
            return false;
        at += size;
    }
    return true;
}

static uint32_t word(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Of the kernel that was added last. */
static bool kernel_info(const struct cubin *cubin, struct image *image, unsigned attribute, const unsigned char *value,
                        size_t size) {
    (void)cubin;
    struct image_kernel *kernel = &image->kernels[image->kernel_count - 1];
    if (attribute == INFO_PARAMETER && size >= 12)
        return set_parameter(kernel, word(value + 4) & 0xffff, word(value + 4) >> 16, word(value + 8) >> 18);
    if (attribute == INFO_MAX_THREADS && size >= 12) {
        uint64_t threads = (uint64_t)word(value) * word(value + 4);
        if (threads != 0 && threads < 1024 && threads * word(value + 8) < 1024)
            kernel->max_threads = (int)(threads * word(value + 8));
    }
    return true;
}

/* Of the whole cubin, about a symbol. */
static bool cubin_info(const struct cubin *cubin, struct image *image, unsigned attribute, const unsigned char *value,
                       size_t size) {
    if ((attribute != INFO_REGISTER_COUNT && attribute != INFO_FRAME_SIZE) || size < 8)
        return true;
    uint32_t symbol = word(value), number = word(value + 4);
    if (symbol >= cubin->symbol_count)
        return false;
    const char *name = name_in(cubin->names, cubin->names_size, cubin->symbols[symbol].st_name);
    struct image_kernel *kernel = (struct image_kernel *)(name != NULL ? image_kernel(image, name) : NULL);
    if (kernel != NULL && attribute == INFO_REGISTER_COUNT && number <= 255)
        kernel->registers = (int)number;
    if (kernel != NULL && attribute == INFO_FRAME_SIZE)
        kernel->local_bytes = number;
    return true;
}

static bool take_kernel(const struct cubin *cubin, struct image *image, const char *name) {
    struct image_kernel *kernel = add_kernel(image, name, strlen(name));
    if (kernel == NULL)
        return false;
    const Elf64_Shdr *shared = section_of(cubin, ".nv.shared.", name), *info = section_of(cubin, ".nv.info.", name),
                     *constants = section_of(cubin, ".nv.constant3", "");
    kernel->shared_bytes = shared != NULL ? shared->sh_size : 0;
    kernel->constant_bytes = constants != NULL ? constants->sh_size : 0;
    return info == NULL || each_info(cubin, info, image, kernel_info);
}

static bool take_global(const struct cubin *cubin, struct image *image, const char *name, const Elf64_Sym *symbol) {
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= cubin->section_count || symbol->st_size == 0)
        return true;
    const Elf64_Shdr *section = &cubin->sections[symbol->st_shndx];
    const char *where = section_name(cubin, symbol->st_shndx);
    if (where == NULL || (strncmp(where, ".nv.global", 10) != 0 && strcmp(where, ".nv.constant3") != 0))
        return true;
    if (symbol->st_size > section->sh_size || symbol->st_value > section->sh_size - symbol->st_size)
        return false;
    struct image_global *global = add_global(image, name, strlen(name), symbol->st_size);
    if (global == NULL)
        return false;
    global->managed = (symbol->st_other & OTHER_MANAGED) != 0;
    if (section->sh_type == SHT_NOBITS)
        return true;
    const unsigned char *data = part(cubin, section->sh_offset, section->sh_size);
    if (data == NULL || (global->initial = malloc(symbol->st_size)) == NULL)
        return false;
    memcpy(global->initial, data + symbol->st_value, symbol->st_size);
    return true;
}

/* From OS ABI version 8 (CUDA 13) on the architecture is in the second byte of the flags, before in the first. */
static unsigned cubin_architecture(const Elf64_Ehdr *header) {
    return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

static bool is_cubin(const Elf64_Ehdr *header) {
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_machine == ELF_MACHINE_CUDA;
}

/* bytes has the alignment of malloc. */
static bool read_cubin(struct image *image, const unsigned char *bytes, size_t size) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)bytes;
    struct cubin cubin = {.bytes = bytes, .size = size};
    if (size < sizeof *header || !is_cubin(header) || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff % sizeof(uint64_t) != 0 || header->e_shstrndx >= header->e_shnum)
        return false;
    cubin.section_count = header->e_shnum;
    cubin.sections = part(&cubin, header->e_shoff, cubin.section_count * sizeof(Elf64_Shdr));
    if (cubin.sections == NULL)
        return false;
    const Elf64_Shdr *names = &cubin.sections[header->e_shstrndx];
    cubin.section_names = part(&cubin, names->sh_offset, names->sh_size);
    cubin.section_names_size = names->sh_size;
    if (cubin.section_names == NULL)
        return false;
    for (size_t i = 0; i < cubin.section_count && cubin.symbols == NULL; i++) {
        const Elf64_Shdr *section = &cubin.sections[i];
        if (section->sh_type != SHT_SYMTAB)
            continue;
        if (section->sh_entsize != sizeof(Elf64_Sym) || section->sh_offset % sizeof(uint64_t) != 0 ||
            section->sh_link >= cubin.section_count)
            return false;
        names = &cubin.sections[section->sh_link];
        cubin.symbols = part(&cubin, section->sh_offset, section->sh_size);
        cubin.symbol_count = section->sh_size / sizeof(Elf64_Sym);
        cubin.names = part(&cubin, names->sh_offset, names->sh_size);
        cubin.names_size = names->sh_size;
        if (cubin.symbols == NULL || cubin.names == NULL)
            return false;
    }
    image->architecture = cubin_architecture(header);
    for (size_t i = 0; i < cubin.symbol_count; i++) {
        const Elf64_Sym *symbol = &cubin.symbols[i];
        const char *name = name_in(cubin.names, cubin.names_size, symbol->st_name);
        if (name == NULL)
            return false;
        unsigned type = ELF64_ST_TYPE(symbol->st_info);
        bool fine = true;
        if (type == STT_FUNC && (symbol->st_other & OTHER_ENTRY) != 0 && symbol->st_shndx != SHN_UNDEF)
            fine = take_kernel(&cubin, image, name);
        else if (type == STT_OBJECT)
            fine = take_global(&cubin, image, name, symbol);
        if (!fine)
            return false;
    }
    const Elf64_Shdr *info = section_of(&cubin, ".nv.info", "");
    return info == NULL || each_info(&cubin, info, image, cubin_info);
}

/* How many bytes a cubin has by its own account; 0: it isn't one. */
static size_t cubin_size(const struct source *source) {
    Elf64_Ehdr header;
    if (!read_at(source, 0, &header, sizeof header) || !is_cubin(&header) || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shoff > LARGEST)
        return 0;
    if (source->bytes != SIZE_MAX)
        return source->bytes;
    size_t end = header.e_shoff + (size_t)header.e_shnum * sizeof(Elf64_Shdr);
    for (size_t i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        if (!read_at(source, header.e_shoff + i * sizeof section, &section, sizeof section) ||
            section.sh_offset > LARGEST || section.sh_size > LARGEST)
            return 0;
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    return end <= LARGEST ? end : 0;
}

/* ---- PTX ---- */

static void blank_comments(char *text) {
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '"') {
            while (*++at != '"')
                if (*at == '\0')
                    return;
        } else if (at[0] == '/' && at[1] == '/') {
            while (*at != '\0' && *at != '\n')
                *at++ = ' ';
            if (*at == '\0')
                return;
        } else if (at[0] == '/' && at[1] == '*') {
            char *end = strstr(at + 2, "*/");
            size_t length = end != NULL ? (size_t)(end - at) + 2 : strlen(at);
            memset(at, ' ', length);
            at += length - 1;
        }
    }
}

static bool is_name_part(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

/* What is left of a statement. */
struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *text) {
    while (text->at < text->end && is_blank(*text->at))
        text->at++;
}

/* The next word, a directive with its dot or a name, or else a single character; empty at the end. */
static struct text next_word(struct text *text) {
    skip_blanks(text);
    struct text found = {text->at, text->at};
    if (text->at == text->end)
        return found;
    text->at++;
    if (*found.at == '.' || *found.at == '%' || is_name_part(*found.at))
        while (text->at < text->end && is_name_part(*text->at))
            text->at++;
    found.end = text->at;
    return found;
}

static bool same(struct text word_, const char *what) {
    size_t length = strlen(what);
    return (size_t)(word_.end - word_.at) == length && memcmp(word_.at, what, length) == 0;
}

static bool is_empty(struct text word_) {
    return word_.at == word_.end;
}

static uint64_t number_of(struct text word_) {
    return is_empty(word_) || *word_.at < '0' || *word_.at > '9' ? 0 : strtoull(word_.at, NULL, 0);
}

/* Bytes of a type like .u32 or .v2; 0: none of them. */
static size_t type_bytes(struct text word_) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{".b8", 1},     {".u8", 1},         {".s8", 1},     {".b16", 2}, {".u16", 2}, {".s16", 2},
                 {".f16", 2},    {".bf16", 2},       {".b32", 4},    {".u32", 4}, {".s32", 4}, {".f32", 4},
                 {".f16x2", 4},  {".b64", 8},        {".u64", 8},    {".s64", 8}, {".f64", 8}, {".b128", 16},
                 {".texref", 8}, {".samplerref", 8}, {".surfref", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (same(word_, types[i].name))
            return types[i].bytes;
    return 0;
}

/* A variable or a parameter: .align, vectors, type, attributes, name, dimensions. */
struct declaration {
    struct text name;
    size_t element, bytes, alignment;
    bool managed;
};

static bool read_declaration(struct text *text, struct declaration *made) {
    size_t vector = 1, count = 1;
    memset(made, 0, sizeof *made);
    for (;;) {
        struct text found = next_word(text);
        if (is_empty(found))
            return false;
        if (same(found, ".align"))
            made->alignment = number_of(next_word(text));
        else if (same(found, ".v2"))
            vector = 2;
        else if (same(found, ".v4"))
            vector = 4;
        else if (same(found, ".managed"))
            made->managed = true;
        else if (type_bytes(found) != 0)
            made->element = type_bytes(found);
        else if (is_name_part(*found.at) && (*found.at < '0' || *found.at > '9')) {
            made->name = found;
            break;
        }
    }
    for (;;) {
        struct text ahead = *text;
        if (!same(next_word(&ahead), "["))
            break;
        struct text dimension = next_word(&ahead);
        uint64_t number = number_of(dimension);
        if (!same(dimension, "]") && !same(next_word(&ahead), "]"))
            return false;
        if (number > LARGEST || count * number > LARGEST)
            return false;
        count *= number;
        *text = ahead;
    }
    made->element *= vector;
    made->bytes = made->element * count;
    if (made->alignment == 0)
        made->alignment = made->element;
    return made->element != 0 && made->bytes <= LARGEST && made->alignment <= 4096 &&
           (made->alignment & (made->alignment - 1)) == 0;
}

static bool read_entry(struct image *image, struct text text) {
    struct text name = next_word(&text), opening = next_word(&text);
    if (is_empty(name) || !is_name_part(*name.at))
        return false;
    struct image_kernel *kernel = add_kernel(image, name.at, (size_t)(name.end - name.at));
    if (kernel == NULL)
        return false;
    if (!same(opening, "("))
        return true;
    const char *closing = memchr(text.at, ')', (size_t)(text.end - text.at));
    if (closing == NULL)
        return false;
    struct text inside = {text.at, closing};
    size_t offset = 0;
    for (size_t i = 0; skip_blanks(&inside), inside.at < inside.end; i++) {
        struct declaration parameter;
        const char *comma = memchr(inside.at, ',', (size_t)(inside.end - inside.at));
        struct text one = {inside.at, comma != NULL ? comma : inside.end};
        inside.at = comma != NULL ? comma + 1 : inside.end;
        if (!read_declaration(&one, &parameter))
            return false;
        offset = (offset + parameter.alignment - 1) & ~(parameter.alignment - 1);
        if (!set_parameter(kernel, i, (uint32_t)offset, (uint32_t)parameter.bytes))
            return false;
        offset += parameter.bytes;
        if (offset > 1 << 20)
            return false;
    }
    return true;
}

/* One value of an initializer: a number, the bits of a float after 0f or 0d, or a name, whose address isn't known. */
static uint64_t value_of(struct text word_) {
    if (word_.end - word_.at > 2 && word_.at[0] == '0' && strchr("fFdD", word_.at[1]) != NULL)
        return strtoull(word_.at + 2, NULL, 16);
    return number_of(word_);
}

static bool read_variable(struct image *image, struct text text) {
    struct declaration variable;
    if (!read_declaration(&text, &variable))
        return false;
    struct image_global *global =
        add_global(image, variable.name.at, (size_t)(variable.name.end - variable.name.at), variable.bytes);
    if (global == NULL)
        return false;
    global->managed = variable.managed;
    if (!same(next_word(&text), "=") || variable.bytes == 0)
        return true;
    global->initial = calloc(1, variable.bytes);
    if (global->initial == NULL)
        return false;
    size_t at = 0;
    bool negative = false;
    for (struct text found; !is_empty(found = next_word(&text));) {
        if (same(found, "-"))
            negative = true;
        if (!is_name_part(*found.at) || at + variable.element > variable.bytes)
            continue;
        uint64_t value = negative ? 0 - value_of(found) : value_of(found);
        memcpy(global->initial + at, &value, variable.element < sizeof value ? variable.element : sizeof value);
        at += variable.element;
        negative = false;
    }
    return true;
}

/* A statement of the outermost level: what it declares is of use if it is a kernel or a variable of a module. */
static bool read_statement(struct image *image, struct text text) {
    for (struct text found; !is_empty(found = next_word(&text));) {
        if (same(found, ".entry"))
            return read_entry(image, text);
        if (same(found, ".extern") || same(found, ".func"))
            return true;
        if (same(found, ".global") || same(found, ".const"))
            return read_variable(image, text);
        if (same(found, ".target")) {
            struct text target = next_word(&text);
            if (target.end - target.at > 3 && memcmp(target.at, "sm_", 3) == 0)
                image->architecture = (unsigned)strtoul(target.at + 3, NULL, 10);
        }
    }
    return true;
}

static bool read_ptx(struct image *image, char *ptx) {
    image->ptx = true;
    blank_comments(ptx);
    char *version = strstr(ptx, ".version");
    if (version == NULL)
        return false;
    /* Directives of a line have no semicolon; what follows one is on the next line. */
    const char *start = version;
    char last = '\0';
    bool value = false;
    for (char *at = version;; at++) {
        if (*at == '\0')
            return is_blank(last) || last == '\0' || read_statement(image, (struct text){start, at});
        bool line = *at == '\n' && strncmp(start + strspn(start, " \t\r\n"), ".version", 8) != 0 &&
                    strncmp(start + strspn(start, " \t\r\n"), ".target", 7) != 0 &&
                    strncmp(start + strspn(start, " \t\r\n"), ".address_size", 13) != 0;
        if (*at == '\n' && !line) {
            if (!read_statement(image, (struct text){start, at}))
                return false;
            start = at + 1;
        } else if (*at == '=') {
            value = true;
        } else if (*at == ';') {
            if (!read_statement(image, (struct text){start, at}))
                return false;
            start = at + 1;
            value = false;
        } else if (*at == '{' && !value) {
            if (!read_statement(image, (struct text){start, at}))
                return false;
            for (size_t depth = 1; depth > 0;) {
                if (*++at == '\0')
                    return false;
                depth += *at == '{';
                depth -= *at == '}';
            }
            start = at + 1;
        }
        if (!is_blank(*at))
            last = *at;
    }
}

/* The text at start up to its zero, as a copy; NULL if there is none. */
static char *ptx_at(const struct source *source) {
    size_t bytes = 0, room = 0;
    char *copy = NULL;
    while (bytes < LARGEST) {
        size_t page = 4096 - ((uintptr_t)source->start + bytes) % 4096;
        if (source->bytes != SIZE_MAX && page > source->bytes - bytes)
            page = source->bytes - bytes;
        if (bytes + page + 1 > room) {
            room = 2 * room + 8192;
            char *larger = realloc(copy, room);
            if (larger == NULL)
                break;
            copy = larger;
        }
        if (!read_at(source, bytes, copy + bytes, page))
            break;
        copy[bytes + page] = '\0';
        if (page == 0 || memchr(copy + bytes, '\0', page) != NULL)
            return copy;
        bytes += page;
    }
    free(copy);
    return NULL;
}

/* ---- fat binaries ---- */

struct fat_wrapper {
    uint32_t magic, version;
    const void *data;
    const void *prelinked; /* in version 2: fat binaries, with a NULL at the end */
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size; /* with padding */
    uint32_t compressed_size, options, kind_version, architecture;
    uint64_t reserved;
    uint64_t flags;
    uint64_t reserved2;
    uint64_t uncompressed_size;
};

enum {
    FAT_WRAPPER = 0x466243b1,
    FAT_HEADER = 0xba55ed50,
    FAT_PTX = 1,
    FAT_CUBIN = 2,
    FAT_LZ4 = 0x2000,
    FAT_ZSTD = 0x8000,
    FAT_COMPRESSED = 0xf000 /* in any way */
};

/* Whether a device can run what was made for an architecture: cubins of its own generation, PTX of any before. */
static bool runs_on(unsigned made_for, bool ptx, unsigned device) {
    return made_for <= device && (ptx || made_for / 10 == device / 10);
}

/* What an entry holds, unpacked, to be freed, with a zero behind it. */
static unsigned char *payload_of(const struct source *source, size_t at, const struct fat_entry *entry, size_t *size) {
    if ((entry->flags & FAT_COMPRESSED) == 0)
        return copy_at(source, at, entry->size);
    if (entry->compressed_size > entry->size || entry->uncompressed_size > LARGEST)
        return NULL;
    unsigned char *packed = copy_at(source, at, entry->compressed_size), *payload = NULL;
    *size = entry->uncompressed_size;
    if (packed != NULL)
        payload = calloc(1, *size + 1);
    bool (*decompress)(unsigned char *, size_t, const unsigned char *, size_t) =
        (entry->flags & FAT_ZSTD) != 0 ? decompress_zstd : decompress_lz4;
    if (payload != NULL && !decompress(payload, *size, packed, entry->compressed_size)) {
        free(payload);
        payload = NULL;
    }
    free(packed);
    return payload;
}

static enum image_result read_fatbin(struct image *image, const struct source *source, unsigned architecture) {
    struct fat_header header;
    if (!read_at(source, 0, &header, sizeof header) || header.magic != (uint32_t)FAT_HEADER ||
        header.header_size < sizeof header || header.size > LARGEST)
        return IMAGE_MALFORMED;
    struct fat_entry best = {.kind = 0};
    size_t best_at = 0, end = header.header_size + header.size;
    for (size_t at = header.header_size; end - at >= sizeof best;) {
        struct fat_entry entry;
        if (!read_at(source, at, &entry, sizeof entry) || entry.header_size < sizeof entry ||
            entry.header_size > end - at || entry.size > end - at - entry.header_size)
            return IMAGE_MALFORMED;
        bool ptx = entry.kind == FAT_PTX;
        /* A cubin before PTX, then the newest. */
        if ((ptx || entry.kind == FAT_CUBIN) && runs_on(entry.architecture, ptx, architecture) &&
            (best.kind == 0 || entry.kind > best.kind ||
             (entry.kind == best.kind && entry.architecture > best.architecture))) {
            best = entry;
            best_at = at + entry.header_size;
        }
        at += entry.header_size + entry.size;
    }
    if (best.kind == 0)
        return IMAGE_OF_OTHER_DEVICES;
    image->architecture = best.architecture;
    image->ptx = best.kind == FAT_PTX;
    if ((best.flags & FAT_COMPRESSED & ~(uint64_t)(FAT_LZ4 | FAT_ZSTD)) != 0) {
        image->opaque = true;
        return IMAGE_READ;
    }
    size_t size = best.size;
    unsigned char *payload = payload_of(source, best_at, &best, &size);
    if (payload == NULL)
        return IMAGE_MALFORMED;
    bool fine = image->ptx ? read_ptx(image, (char *)payload) : read_cubin(image, payload, size);
    free(payload);
    return fine ? IMAGE_READ : IMAGE_MALFORMED;
}

static enum image_result read_wrapper(struct image *image, const struct source *source, unsigned architecture) {
    struct fat_wrapper wrapper;
    if (source->bytes != SIZE_MAX || !read_at(source, 0, &wrapper, sizeof wrapper))
        return IMAGE_MALFORMED; /* its pointers mean nothing in a file */
    return read_fatbin(image, &(struct source){wrapper.data, SIZE_MAX}, architecture);
}

/* ---- all of them ---- */

static enum image_result read_any(struct image *image, const struct source *source, unsigned architecture) {
    uint32_t magic;
    if (!read_at(source, 0, &magic, sizeof magic))
        return IMAGE_MALFORMED;
    if (magic == FAT_WRAPPER)
        return read_wrapper(image, source, architecture);
    if (magic == (uint32_t)FAT_HEADER)
        return read_fatbin(image, source, architecture);
    unsigned char *copy;
    bool fine;
    if (memcmp(&magic, ELFMAG, SELFMAG) == 0) {
        size_t bytes = cubin_size(source);
        copy = bytes != 0 ? copy_at(source, 0, bytes) : NULL;
        fine = copy != NULL && read_cubin(image, copy, bytes);
    } else {
        copy = (unsigned char *)ptx_at(source);
        fine = copy != NULL && read_ptx(image, (char *)copy);
    }
    free(copy);
    if (!fine)
        return IMAGE_MALFORMED;
    return runs_on(image->architecture, image->ptx, architecture) ? IMAGE_READ : IMAGE_OF_OTHER_DEVICES;
}

enum image_result image_read(struct image *image, const void *start, size_t bytes, unsigned architecture) {
    memset(image, 0, sizeof *image);
    enum image_result result = read_any(image, &(struct source){start, bytes}, architecture);
    if (result != IMAGE_READ)
        image_clear(image);
    return result;
}
