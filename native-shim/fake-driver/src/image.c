/*
 * The layouts of fat binaries and cubins are not documented; they are as in ZLUDA (github.com/vosen/ZLUDA,
 * cuda_types/src/dark_api.rs) and GVirtuS (cudart-internal.h), compared with the output of nvcc 12.9 and 13.0.
 */
#define _GNU_SOURCE
#include "image.h"

#include <elf.h>
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

enum { MAX_IMAGE_BYTES = 1 << 30 };

/* ---- untrusted input ---- */

struct image_source {
    const unsigned char *start;
    size_t bytes; /* SIZE_MAX: unknown */
};

static bool copy_from(const struct image_source *source, size_t offset, void *to, size_t bytes) {
    if (offset > source->bytes || bytes > source->bytes - offset) {
        return false;
    }
    const unsigned char *from = source->start + offset;
    if (source->bytes == SIZE_MAX) {
        /* process_vm_readv fails on unmapped memory instead of raising SIGSEGV. A sandbox may forbid the call. */
        struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};
        ssize_t copied = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (copied >= 0 || (errno != EPERM && errno != ENOSYS)) {
            return copied == (ssize_t)bytes;
        }
    }
    memcpy(to, from, bytes);
    return true;
}

/* A zero-terminated copy, which the caller frees. */
static unsigned char *duplicate_from(const struct image_source *source, size_t offset, size_t bytes) {
    unsigned char *copy = bytes <= MAX_IMAGE_BYTES ? malloc(bytes + 1) : NULL;
    if (copy == NULL || !copy_from(source, offset, copy, bytes)) {
        free(copy);
        return NULL;
    }
    copy[bytes] = '\0';
    return copy;
}

/* ---- the parsed image ---- */

static void *append_zeroed(void **array, size_t *count, size_t bytes) {
    char *grown = realloc(*array, (*count + 1) * bytes);
    if (grown == NULL) {
        return NULL;
    }
    *array = grown;
    return memset(grown + (*count)++ * bytes, 0, bytes);
}

static struct image_kernel *add_kernel(struct image *image, const char *name, size_t length) {
    struct image_kernel *kernel = append_zeroed((void **)&image->kernels, &image->kernel_count, sizeof *kernel);
    if (kernel == NULL || (kernel->name = strndup(name, length)) == NULL) {
        return NULL;
    }
    kernel->registers = 32;
    kernel->max_threads = 1024;
    return kernel;
}

static bool set_parameter(struct image_kernel *kernel, size_t index, uint32_t offset, uint32_t size) {
    while (kernel->parameter_count <= index) {
        if (index > 4096 ||
            append_zeroed((void **)&kernel->parameters, &kernel->parameter_count, sizeof *kernel->parameters) == NULL) {
            return false;
        }
    }
    kernel->parameters[index] = (struct image_parameter){offset, size};
    return true;
}

static struct image_global *add_global(struct image *image, const char *name, size_t length, size_t bytes) {
    struct image_global *global = append_zeroed((void **)&image->globals, &image->global_count, sizeof *global);
    if (global == NULL || (global->name = strndup(name, length)) == NULL) {
        return NULL;
    }
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
    for (size_t i = 0; i < image->kernel_count; i++) {
        if (strcmp(image->kernels[i].name, name) == 0) {
            return &image->kernels[i];
        }
    }
    return NULL;
}

const struct image_global *image_global(const struct image *image, const char *name) {
    for (size_t i = 0; i < image->global_count; i++) {
        if (strcmp(image->globals[i].name, name) == 0) {
            return &image->globals[i];
        }
    }
    return NULL;
}

/* ---- cubins ---- */

enum {
    ELF_MACHINE_CUDA = 190,         /* EM_CUDA */
    STO_CUDA_ENTRY = 0x10,          /* in st_other: a kernel */
    STO_CUDA_MANAGED = 0x04,        /* in st_other: a __managed__ variable */
    ATTRIBUTE_HAS_SIZE = 0x04,      /* format of an .nv.info attribute: a size, then that many bytes */
    ATTRIBUTE_FRAME_SIZE = 0x11,    /* symbol, bytes */
    ATTRIBUTE_PARAMETER = 0x17,     /* index, ordinal and offset, size << 18 and more */
    ATTRIBUTE_MAX_THREADS = 0x05,   /* x, y, z */
    ATTRIBUTE_REGISTER_COUNT = 0x2f /* symbol, registers */
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

static const void *bytes_at(const struct cubin *cubin, uint64_t offset, uint64_t size) {
    return offset <= cubin->size && size <= cubin->size - offset ? cubin->bytes + offset : NULL;
}

static const char *string_at(const char *names, size_t size, size_t offset) {
    return offset < size && memchr(names + offset, '\0', size - offset) != NULL ? names + offset : NULL;
}

static const char *section_name(const struct cubin *cubin, size_t index) {
    return string_at(cubin->section_names, cubin->section_names_size, cubin->sections[index].sh_name);
}

/* The section called prefix followed by name, or NULL. */
static const Elf64_Shdr *section_of(const struct cubin *cubin, const char *prefix, const char *name) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < cubin->section_count; i++) {
        const char *found = section_name(cubin, i);
        if (found != NULL && strncmp(found, prefix, length) == 0 && strcmp(found + length, name) == 0) {
            return &cubin->sections[i];
        }
    }
    return NULL;
}

/* Calls visit for each attribute of an .nv.info section that has a size. */
static bool visit_attributes(const struct cubin *cubin, const Elf64_Shdr *section, struct image *image,
                             bool (*visit)(const struct cubin *cubin, struct image *image, unsigned attribute,
                                           const unsigned char *value, size_t size)) {
    const unsigned char *at = bytes_at(cubin, section->sh_offset, section->sh_size);
    if (at == NULL) {
        return false;
    }
    const unsigned char *end = at + section->sh_size;
    while (end - at >= 4) {
        unsigned format = at[0], attribute = at[1];
        size_t size = format == ATTRIBUTE_HAS_SIZE ? (size_t)(at[2] | at[3] << 8) : 0;
        at += 4;
        if ((size_t)(end - at) < size || (size != 0 && !visit(cubin, image, attribute, at, size))) {
            return false;
        }
        at += size;
    }
    return true;
}

static uint32_t read_le32(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Applies an attribute to the kernel that was added last. */
static bool visit_kernel_attribute(const struct cubin *cubin, struct image *image, unsigned attribute,
                                   const unsigned char *value, size_t size) {
    (void)cubin;
    struct image_kernel *kernel = &image->kernels[image->kernel_count - 1];
    if (attribute == ATTRIBUTE_PARAMETER && size >= 12) {
        return set_parameter(kernel, read_le32(value + 4) & 0xffff, read_le32(value + 4) >> 16,
                             read_le32(value + 8) >> 18);
    }
    if (attribute == ATTRIBUTE_MAX_THREADS && size >= 12) {
        uint64_t threads = (uint64_t)read_le32(value) * read_le32(value + 4);
        if (threads != 0 && threads < 1024 && threads * read_le32(value + 8) < 1024) {
            kernel->max_threads = (int)(threads * read_le32(value + 8));
        }
    }
    return true;
}

/* Applies an attribute of the whole cubin to the kernel that it names. */
static bool visit_cubin_attribute(const struct cubin *cubin, struct image *image, unsigned attribute,
                                  const unsigned char *value, size_t size) {
    if ((attribute != ATTRIBUTE_REGISTER_COUNT && attribute != ATTRIBUTE_FRAME_SIZE) || size < 8) {
        return true;
    }
    uint32_t symbol = read_le32(value), number = read_le32(value + 4);
    if (symbol >= cubin->symbol_count) {
        return false;
    }
    const char *name = string_at(cubin->names, cubin->names_size, cubin->symbols[symbol].st_name);
    struct image_kernel *kernel = (struct image_kernel *)(name != NULL ? image_kernel(image, name) : NULL);
    if (kernel != NULL && attribute == ATTRIBUTE_REGISTER_COUNT && number <= 255) {
        kernel->registers = (int)number;
    }
    if (kernel != NULL && attribute == ATTRIBUTE_FRAME_SIZE) {
        kernel->local_bytes = number;
    }
    return true;
}

static bool read_kernel_symbol(const struct cubin *cubin, struct image *image, const char *name) {
    struct image_kernel *kernel = add_kernel(image, name, strlen(name));
    if (kernel == NULL) {
        return false;
    }
    const Elf64_Shdr *shared = section_of(cubin, ".nv.shared.", name), *info = section_of(cubin, ".nv.info.", name),
                     *constants = section_of(cubin, ".nv.constant3", "");
    kernel->shared_bytes = shared != NULL ? shared->sh_size : 0;
    kernel->constant_bytes = constants != NULL ? constants->sh_size : 0;
    return info == NULL || visit_attributes(cubin, info, image, visit_kernel_attribute);
}

static bool read_global_symbol(const struct cubin *cubin, struct image *image, const char *name,
                               const Elf64_Sym *symbol) {
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= cubin->section_count || symbol->st_size == 0) {
        return true;
    }
    const Elf64_Shdr *section = &cubin->sections[symbol->st_shndx];
    const char *where = section_name(cubin, symbol->st_shndx);
    if (where == NULL || (strncmp(where, ".nv.global", 10) != 0 && strcmp(where, ".nv.constant3") != 0)) {
        return true;
    }
    if (symbol->st_size > section->sh_size || symbol->st_value > section->sh_size - symbol->st_size) {
        return false;
    }
    struct image_global *global = add_global(image, name, strlen(name), symbol->st_size);
    if (global == NULL) {
        return false;
    }
    global->managed = (symbol->st_other & STO_CUDA_MANAGED) != 0;
    if (section->sh_type == SHT_NOBITS) {
        return true;
    }
    const unsigned char *data = bytes_at(cubin, section->sh_offset, section->sh_size);
    if (data == NULL || (global->initial = malloc(symbol->st_size)) == NULL) {
        return false;
    }
    memcpy(global->initial, data + symbol->st_value, symbol->st_size);
    return true;
}

/* The architecture is in the second byte of the flags from OS ABI version 8 (CUDA 13) on, and in the first before. */
static unsigned cubin_architecture(const Elf64_Ehdr *header) {
    return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

static bool is_cubin(const Elf64_Ehdr *header) {
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_machine == ELF_MACHINE_CUDA;
}

/* bytes must have the alignment of malloc. */
static bool read_cubin(struct image *image, const unsigned char *bytes, size_t size) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)bytes;
    struct cubin cubin = {.bytes = bytes, .size = size};
    if (size < sizeof *header || !is_cubin(header) || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff % sizeof(uint64_t) != 0 || header->e_shstrndx >= header->e_shnum) {
        return false;
    }
    cubin.section_count = header->e_shnum;
    cubin.sections = bytes_at(&cubin, header->e_shoff, cubin.section_count * sizeof(Elf64_Shdr));
    if (cubin.sections == NULL) {
        return false;
    }
    const Elf64_Shdr *names = &cubin.sections[header->e_shstrndx];
    cubin.section_names = bytes_at(&cubin, names->sh_offset, names->sh_size);
    cubin.section_names_size = names->sh_size;
    if (cubin.section_names == NULL) {
        return false;
    }
    for (size_t i = 0; i < cubin.section_count && cubin.symbols == NULL; i++) {
        const Elf64_Shdr *section = &cubin.sections[i];
        if (section->sh_type != SHT_SYMTAB) {
            continue;
        }
        if (section->sh_entsize != sizeof(Elf64_Sym) || section->sh_offset % sizeof(uint64_t) != 0 ||
            section->sh_link >= cubin.section_count) {
            return false;
        }
        names = &cubin.sections[section->sh_link];
        cubin.symbols = bytes_at(&cubin, section->sh_offset, section->sh_size);
        cubin.symbol_count = section->sh_size / sizeof(Elf64_Sym);
        cubin.names = bytes_at(&cubin, names->sh_offset, names->sh_size);
        cubin.names_size = names->sh_size;
        if (cubin.symbols == NULL || cubin.names == NULL) {
            return false;
        }
    }
    image->architecture = cubin_architecture(header);
    for (size_t i = 0; i < cubin.symbol_count; i++) {
        const Elf64_Sym *symbol = &cubin.symbols[i];
        const char *name = string_at(cubin.names, cubin.names_size, symbol->st_name);
        if (name == NULL) {
            return false;
        }
        unsigned type = ELF64_ST_TYPE(symbol->st_info);
        bool ok = true;
        if (type == STT_FUNC && (symbol->st_other & STO_CUDA_ENTRY) != 0 && symbol->st_shndx != SHN_UNDEF) {
            ok = read_kernel_symbol(&cubin, image, name);
        } else if (type == STT_OBJECT) {
            ok = read_global_symbol(&cubin, image, name, symbol);
        }
        if (!ok) {
            return false;
        }
    }
    const Elf64_Shdr *info = section_of(&cubin, ".nv.info", "");
    return info == NULL || visit_attributes(&cubin, info, image, visit_cubin_attribute);
}

/* The size of a cubin according to its headers; 0 if it is not a cubin. */
static size_t cubin_size(const struct image_source *source) {
    Elf64_Ehdr header;
    if (!copy_from(source, 0, &header, sizeof header) || !is_cubin(&header) ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > MAX_IMAGE_BYTES) {
        return 0;
    }
    if (source->bytes != SIZE_MAX) {
        return source->bytes;
    }
    size_t end = header.e_shoff + (size_t)header.e_shnum * sizeof(Elf64_Shdr);
    for (size_t i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        if (!copy_from(source, header.e_shoff + i * sizeof section, &section, sizeof section) ||
            section.sh_offset > MAX_IMAGE_BYTES || section.sh_size > MAX_IMAGE_BYTES) {
            return 0;
        }
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end) {
            end = section.sh_offset + section.sh_size;
        }
    }
    return end <= MAX_IMAGE_BYTES ? end : 0;
}

/* ---- PTX ---- */

static void blank_comments(char *text) {
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '"') {
            while (*++at != '"') {
                if (*at == '\0') {
                    return;
                }
            }
        } else if (at[0] == '/' && at[1] == '/') {
            while (*at != '\0' && *at != '\n') {
                *at++ = ' ';
            }
            if (*at == '\0') {
                return;
            }
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

/* The unread part of a statement. */
struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *text) {
    while (text->at < text->end && is_blank(*text->at)) {
        text->at++;
    }
}

/* The next token: a directive with its dot, a name, or a single character; empty at the end. */
static struct text next_token(struct text *text) {
    skip_blanks(text);
    struct text found = {text->at, text->at};
    if (text->at == text->end) {
        return found;
    }
    text->at++;
    if (*found.at == '.' || *found.at == '%' || is_name_part(*found.at)) {
        while (text->at < text->end && is_name_part(*text->at)) {
            text->at++;
        }
    }
    found.end = text->at;
    return found;
}

static bool token_is(struct text token, const char *what) {
    size_t length = strlen(what);
    return (size_t)(token.end - token.at) == length && memcmp(token.at, what, length) == 0;
}

static bool is_empty(struct text token) {
    return token.at == token.end;
}

static uint64_t number_of(struct text token) {
    return is_empty(token) || *token.at < '0' || *token.at > '9' ? 0 : strtoull(token.at, NULL, 0);
}

/* The size of a type such as .u32; 0 if the token is not a type. */
static size_t type_bytes(struct text token) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{".b8", 1},     {".u8", 1},         {".s8", 1},     {".b16", 2}, {".u16", 2}, {".s16", 2},
                 {".f16", 2},    {".bf16", 2},       {".b32", 4},    {".u32", 4}, {".s32", 4}, {".f32", 4},
                 {".f16x2", 4},  {".b64", 8},        {".u64", 8},    {".s64", 8}, {".f64", 8}, {".b128", 16},
                 {".texref", 8}, {".samplerref", 8}, {".surfref", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (token_is(token, types[i].name)) {
            return types[i].bytes;
        }
    }
    return 0;
}

/* A variable or a parameter: .align, vectors, type, attributes, name, dimensions. */
struct declaration {
    struct text name;
    size_t element, bytes, alignment;
    bool managed;
};

static bool read_declaration(struct text *text, struct declaration *declaration) {
    size_t vector = 1, count = 1;
    memset(declaration, 0, sizeof *declaration);
    for (;;) {
        struct text found = next_token(text);
        if (is_empty(found)) {
            return false;
        }
        if (token_is(found, ".align")) {
            declaration->alignment = number_of(next_token(text));
        } else if (token_is(found, ".v2")) {
            vector = 2;
        } else if (token_is(found, ".v4")) {
            vector = 4;
        } else if (token_is(found, ".managed")) {
            declaration->managed = true;
        } else if (type_bytes(found) != 0) {
            declaration->element = type_bytes(found);
        } else if (is_name_part(*found.at) && (*found.at < '0' || *found.at > '9')) {
            declaration->name = found;
            break;
        }
    }
    for (;;) {
        struct text ahead = *text;
        if (!token_is(next_token(&ahead), "[")) {
            break;
        }
        struct text dimension = next_token(&ahead);
        uint64_t number = number_of(dimension);
        if (!token_is(dimension, "]") && !token_is(next_token(&ahead), "]")) {
            return false;
        }
        if (number > MAX_IMAGE_BYTES || count * number > MAX_IMAGE_BYTES) {
            return false;
        }
        count *= number;
        *text = ahead;
    }
    declaration->element *= vector;
    declaration->bytes = declaration->element * count;
    if (declaration->alignment == 0) {
        declaration->alignment = declaration->element;
    }
    return declaration->element != 0 && declaration->bytes <= MAX_IMAGE_BYTES && declaration->alignment <= 4096 &&
           (declaration->alignment & (declaration->alignment - 1)) == 0;
}

static bool read_entry(struct image *image, struct text text) {
    struct text name = next_token(&text), opening = next_token(&text);
    if (is_empty(name) || !is_name_part(*name.at)) {
        return false;
    }
    struct image_kernel *kernel = add_kernel(image, name.at, (size_t)(name.end - name.at));
    if (kernel == NULL) {
        return false;
    }
    if (!token_is(opening, "(")) {
        return true;
    }
    const char *closing = memchr(text.at, ')', (size_t)(text.end - text.at));
    if (closing == NULL) {
        return false;
    }
    struct text inside = {text.at, closing};
    size_t offset = 0;
    for (size_t i = 0; skip_blanks(&inside), inside.at < inside.end; i++) {
        struct declaration parameter;
        const char *comma = memchr(inside.at, ',', (size_t)(inside.end - inside.at));
        struct text one = {inside.at, comma != NULL ? comma : inside.end};
        inside.at = comma != NULL ? comma + 1 : inside.end;
        if (!read_declaration(&one, &parameter)) {
            return false;
        }
        offset = (offset + parameter.alignment - 1) & ~(parameter.alignment - 1);
        if (!set_parameter(kernel, i, (uint32_t)offset, (uint32_t)parameter.bytes)) {
            return false;
        }
        offset += parameter.bytes;
        if (offset > 1 << 20) {
            return false;
        }
    }
    return true;
}

/* One value of an initializer: a number, the bits of a float after 0f or 0d, or 0 for a name (unknown address). */
static uint64_t value_of(struct text token) {
    if (token.end - token.at > 2 && token.at[0] == '0' && strchr("fFdD", token.at[1]) != NULL) {
        return strtoull(token.at + 2, NULL, 16);
    }
    return number_of(token);
}

static bool read_variable(struct image *image, struct text text) {
    struct declaration variable;
    if (!read_declaration(&text, &variable)) {
        return false;
    }
    struct image_global *global =
        add_global(image, variable.name.at, (size_t)(variable.name.end - variable.name.at), variable.bytes);
    if (global == NULL) {
        return false;
    }
    global->managed = variable.managed;
    if (!token_is(next_token(&text), "=") || variable.bytes == 0) {
        return true;
    }
    global->initial = calloc(1, variable.bytes);
    if (global->initial == NULL) {
        return false;
    }
    size_t at = 0;
    bool negative = false;
    for (struct text found; !is_empty(found = next_token(&text));) {
        if (token_is(found, "-")) {
            negative = true;
        }
        if (!is_name_part(*found.at) || at + variable.element > variable.bytes) {
            continue;
        }
        uint64_t value = negative ? 0 - value_of(found) : value_of(found);
        memcpy(global->initial + at, &value, variable.element < sizeof value ? variable.element : sizeof value);
        at += variable.element;
        negative = false;
    }
    return true;
}

/* Reads a statement of the outermost level; only kernels and module variables are recorded. */
static bool read_statement(struct image *image, struct text text) {
    for (struct text found; !is_empty(found = next_token(&text));) {
        if (token_is(found, ".entry")) {
            return read_entry(image, text);
        }
        if (token_is(found, ".extern") || token_is(found, ".func")) {
            return true;
        }
        if (token_is(found, ".global") || token_is(found, ".const")) {
            return read_variable(image, text);
        }
        if (token_is(found, ".target")) {
            struct text target = next_token(&text);
            if (target.end - target.at > 3 && memcmp(target.at, "sm_", 3) == 0) {
                image->architecture = (unsigned)strtoul(target.at + 3, NULL, 10);
            }
        }
    }
    return true;
}

static bool read_ptx(struct image *image, char *ptx) {
    image->ptx = true;
    blank_comments(ptx);
    char *version = strstr(ptx, ".version");
    if (version == NULL) {
        return false;
    }
    /* .version, .target and .address_size end with their line; all other statements end with a semicolon or a body. */
    const char *start = version;
    char last = '\0';
    bool in_initializer = false;
    for (char *at = version;; at++) {
        if (*at == '\0') {
            return is_blank(last) || last == '\0' || read_statement(image, (struct text){start, at});
        }
        bool line = *at == '\n' && strncmp(start + strspn(start, " \t\r\n"), ".version", 8) != 0 &&
                    strncmp(start + strspn(start, " \t\r\n"), ".target", 7) != 0 &&
                    strncmp(start + strspn(start, " \t\r\n"), ".address_size", 13) != 0;
        if (*at == '\n' && !line) {
            if (!read_statement(image, (struct text){start, at})) {
                return false;
            }
            start = at + 1;
        } else if (*at == '=') {
            in_initializer = true;
        } else if (*at == ';') {
            if (!read_statement(image, (struct text){start, at})) {
                return false;
            }
            start = at + 1;
            in_initializer = false;
        } else if (*at == '{' && !in_initializer) {
            if (!read_statement(image, (struct text){start, at})) {
                return false;
            }
            for (size_t depth = 1; depth > 0;) {
                if (*++at == '\0') {
                    return false;
                }
                depth += *at == '{';
                depth -= *at == '}';
            }
            start = at + 1;
        }
        if (!is_blank(*at)) {
            last = *at;
        }
    }
}

/* A copy of the text up to its terminating zero, which the caller frees; NULL if no zero can be read. */
static char *duplicate_ptx(const struct image_source *source) {
    size_t bytes = 0, capacity = 0;
    char *copy = NULL;
    while (bytes < MAX_IMAGE_BYTES) {
        size_t page = 4096 - ((uintptr_t)source->start + bytes) % 4096;
        if (source->bytes != SIZE_MAX && page > source->bytes - bytes) {
            page = source->bytes - bytes;
        }
        if (bytes + page + 1 > capacity) {
            capacity = 2 * capacity + 8192;
            char *grown = realloc(copy, capacity);
            if (grown == NULL) {
                break;
            }
            copy = grown;
        }
        if (!copy_from(source, bytes, copy + bytes, page)) {
            break;
        }
        copy[bytes + page] = '\0';
        if (page == 0 || memchr(copy + bytes, '\0', page) != NULL) {
            return copy;
        }
        bytes += page;
    }
    free(copy);
    return NULL;
}

/* ---- fat binaries ---- */

struct fat_wrapper {
    uint32_t magic, version;
    const void *data;
    const void *prelinked; /* in version 2: a NULL-terminated list of fat binaries */
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
    FAT_COMPRESSED = 0xf000 /* by any method */
};

/* Whether a device can run code for an architecture: cubins of its own major version, PTX of any older architecture. */
static bool runs_on(unsigned made_for, bool ptx, unsigned device) {
    return made_for <= device && (ptx || made_for / 10 == device / 10);
}

/* False: the result is not exactly size bytes. Both sizes are at most MAX_IMAGE_BYTES. */
static bool decompress(bool zstd, unsigned char *to, size_t size, const unsigned char *from, size_t from_size) {
    return zstd ? ZSTD_decompress(to, size, from, from_size) == size
                : LZ4_decompress_safe((const char *)from, (char *)to, (int)from_size, (int)size) == (int)size;
}

/* The decompressed, zero-terminated content of an entry, which the caller frees. */
static unsigned char *read_payload(const struct image_source *source, size_t at, const struct fat_entry *entry,
                                   size_t *size) {
    if ((entry->flags & FAT_COMPRESSED) == 0) {
        return duplicate_from(source, at, entry->size);
    }
    if ((entry->flags & (FAT_LZ4 | FAT_ZSTD)) == 0 || entry->compressed_size > entry->size ||
        entry->uncompressed_size > MAX_IMAGE_BYTES) {
        return NULL;
    }
    unsigned char *packed = duplicate_from(source, at, entry->compressed_size), *payload = NULL;
    *size = entry->uncompressed_size;
    if (packed != NULL) {
        payload = calloc(1, *size + 1);
    }
    if (payload != NULL &&
        !decompress((entry->flags & FAT_ZSTD) != 0, payload, *size, packed, entry->compressed_size)) {
        free(payload);
        payload = NULL;
    }
    free(packed);
    return payload;
}

static enum image_result read_fatbin(struct image *image, const struct image_source *source, unsigned architecture) {
    struct fat_header header;
    if (!copy_from(source, 0, &header, sizeof header) || header.magic != (uint32_t)FAT_HEADER ||
        header.header_size < sizeof header || header.size > MAX_IMAGE_BYTES) {
        return IMAGE_MALFORMED;
    }
    struct fat_entry best = {.kind = 0};
    size_t best_at = 0, end = header.header_size + header.size;
    for (size_t at = header.header_size; end - at >= sizeof best;) {
        struct fat_entry entry;
        if (!copy_from(source, at, &entry, sizeof entry) || entry.header_size < sizeof entry ||
            entry.header_size > end - at || entry.size > end - at - entry.header_size) {
            return IMAGE_MALFORMED;
        }
        bool ptx = entry.kind == FAT_PTX;
        /* Prefers a cubin to PTX, then the newest architecture. */
        if ((ptx || entry.kind == FAT_CUBIN) && runs_on(entry.architecture, ptx, architecture) &&
            (best.kind == 0 || entry.kind > best.kind ||
             (entry.kind == best.kind && entry.architecture > best.architecture))) {
            best = entry;
            best_at = at + entry.header_size;
        }
        at += entry.header_size + entry.size;
    }
    if (best.kind == 0) {
        return IMAGE_OF_OTHER_DEVICES;
    }
    image->architecture = best.architecture;
    image->ptx = best.kind == FAT_PTX;
    size_t size = best.size;
    unsigned char *payload = read_payload(source, best_at, &best, &size);
    if (payload == NULL) {
        return IMAGE_MALFORMED;
    }
    bool ok = image->ptx ? read_ptx(image, (char *)payload) : read_cubin(image, payload, size);
    free(payload);
    return ok ? IMAGE_READ : IMAGE_MALFORMED;
}

static enum image_result read_wrapper(struct image *image, const struct image_source *source, unsigned architecture) {
    struct fat_wrapper wrapper;
    if (source->bytes != SIZE_MAX || !copy_from(source, 0, &wrapper, sizeof wrapper)) {
        return IMAGE_MALFORMED; /* the pointers of a wrapper are meaningless in a file */
    }
    return read_fatbin(image, &(struct image_source){wrapper.data, SIZE_MAX}, architecture);
}

/* ---- entry point ---- */

static enum image_result parse_image(struct image *image, const struct image_source *source, unsigned architecture) {
    uint32_t magic;
    if (!copy_from(source, 0, &magic, sizeof magic)) {
        return IMAGE_MALFORMED;
    }
    if (magic == FAT_WRAPPER) {
        return read_wrapper(image, source, architecture);
    }
    if (magic == (uint32_t)FAT_HEADER) {
        return read_fatbin(image, source, architecture);
    }
    unsigned char *copy;
    bool ok;
    if (memcmp(&magic, ELFMAG, SELFMAG) == 0) {
        size_t bytes = cubin_size(source);
        copy = bytes != 0 ? duplicate_from(source, 0, bytes) : NULL;
        ok = copy != NULL && read_cubin(image, copy, bytes);
    } else {
        copy = (unsigned char *)duplicate_ptx(source);
        ok = copy != NULL && read_ptx(image, (char *)copy);
    }
    free(copy);
    if (!ok) {
        return IMAGE_MALFORMED;
    }
    return runs_on(image->architecture, image->ptx, architecture) ? IMAGE_READ : IMAGE_OF_OTHER_DEVICES;
}

enum image_result image_read(struct image *image, const void *start, size_t bytes, unsigned architecture) {
    memset(image, 0, sizeof *image);
    enum image_result result = parse_image(image, &(struct image_source){start, bytes}, architecture);
    if (result != IMAGE_READ) {
        image_clear(image);
    }
    return result;
}
