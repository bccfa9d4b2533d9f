/*
 * A small cubin and a fat binary that contains it, as nvcc compiles them from
 *   __device__ int counter = 7; __device__ char zeros[1000];
 *   extern "C" __global__ void kernel(unsigned long long a, char b, int c);
 */
#ifndef ALIQUOT_FAKE_CUBIN_H
#define ALIQUOT_FAKE_CUBIN_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CUBIN_CAPACITY = 4096, CUBIN_SECTIONS = 8 };

struct cubin_maker {
    unsigned char *bytes;
    size_t size;
    Elf64_Shdr sections[CUBIN_SECTIONS];
};

static inline void cubin_section(struct cubin_maker *cubin, unsigned index, const char *names, const char *name,
                                 uint32_t type, const void *data, size_t size) {
    Elf64_Shdr *section = &cubin->sections[index];
    const char *at = names + 1;
    while (strcmp(at, name) != 0) {
        at += strlen(at) + 1;
    }
    section->sh_name = (Elf64_Word)(at - names);
    section->sh_type = type;
    section->sh_offset = cubin->size;
    section->sh_size = size;
    if (type != SHT_NOBITS) {
        memcpy(cubin->bytes + cubin->size, data, size);
        cubin->size = (cubin->size + size + 7) & ~(size_t)7;
    }
}

/* Writes a cubin to CUBIN_CAPACITY zeroed bytes, aligned to 8; returns its size. */
static inline size_t make_cubin(unsigned char *bytes, unsigned architecture) {
    static const char names[] = "\0.strings\0.symtab\0.nv.info\0.nv.info.kernel\0.text.kernel\0.nv.global.init\0"
                                ".nv.global\0kernel\0counter\0zeros";
    enum { STRINGS = 1, SYMBOLS, INFO, KERNEL_INFO, TEXT, INITIAL, ZEROS };
    struct cubin_maker cubin = {.bytes = bytes, .size = sizeof(Elf64_Ehdr)};
    Elf64_Sym symbols[4];
    memset(symbols, 0, sizeof symbols);
    const char *at = names + 1;
    for (const char *symbol[] = {"kernel", "counter", "zeros"}, **one = symbol; one < symbol + 3; one++) {
        for (at = names + 1; strcmp(at, *one) != 0;) {
            at += strlen(at) + 1;
        }
        symbols[1 + (one - symbol)].st_name = (Elf64_Word)(at - names);
    }
    symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbols[1].st_other = 0x10;
    symbols[1].st_shndx = TEXT;
    symbols[1].st_size = 16;
    symbols[2].st_info = symbols[3].st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT);
    symbols[2].st_shndx = INITIAL;
    symbols[2].st_size = 4;
    symbols[3].st_shndx = ZEROS;
    symbols[3].st_size = 1000;
    static const uint32_t initial = 7;
    const uint32_t info[] = {8 << 16 | 0x2f << 8 | 4, 1, 20};
    const uint32_t kernel_info[] = {12 << 16 | 0x17 << 8 | 4, 0, 12 << 16 | 2, 4 << 18,
                                    12 << 16 | 0x17 << 8 | 4, 0, 8 << 16 | 1,  1 << 18,
                                    12 << 16 | 0x17 << 8 | 4, 0, 0 << 16 | 0,  8 << 18};
    static const unsigned char code[16];
    cubin_section(&cubin, STRINGS, names, ".strings", SHT_STRTAB, names, sizeof names);
    cubin_section(&cubin, SYMBOLS, names, ".symtab", SHT_SYMTAB, symbols, sizeof symbols);
    cubin.sections[SYMBOLS].sh_entsize = sizeof symbols[0];
    cubin.sections[SYMBOLS].sh_link = STRINGS;
    cubin_section(&cubin, INFO, names, ".nv.info", SHT_LOPROC, info, sizeof info);
    cubin_section(&cubin, KERNEL_INFO, names, ".nv.info.kernel", SHT_LOPROC, kernel_info, sizeof kernel_info);
    cubin_section(&cubin, TEXT, names, ".text.kernel", SHT_PROGBITS, code, sizeof code);
    cubin_section(&cubin, INITIAL, names, ".nv.global.init", SHT_PROGBITS, &initial, sizeof initial);
    cubin_section(&cubin, ZEROS, names, ".nv.global", SHT_NOBITS, NULL, 1000);
    const Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
                               .e_type = ET_EXEC,
                               .e_machine = 190,
                               .e_version = 1,
                               .e_shoff = cubin.size,
                               .e_flags = 0x6000004 | architecture << 8,
                               .e_ehsize = sizeof header,
                               .e_shentsize = sizeof(Elf64_Shdr),
                               .e_shnum = CUBIN_SECTIONS,
                               .e_shstrndx = STRINGS};
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + cubin.size, cubin.sections, sizeof cubin.sections);
    return cubin.size + sizeof cubin.sections;
}

/* Writes a fat binary with two such cubins to CUBIN_CAPACITY zeroed bytes; returns its size. */
static inline size_t make_fatbin(unsigned char *bytes, unsigned first, unsigned second) {
    struct {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } header = {0xba55ed50u, 1, 16, 0};
    size_t size = sizeof header;
    for (unsigned i = 0; i < 2; i++) {
        unsigned char cubin[CUBIN_CAPACITY] __attribute__((aligned(8))) = {0};
        struct {
            uint16_t kind, version;
            uint32_t header_size;
            uint64_t size;
            uint32_t compressed, options, kind_version, architecture;
            uint64_t reserved[4];
        } entry = {2,
                   0x101,
                   sizeof entry,
                   make_cubin(cubin, i == 0 ? first : second),
                   0,
                   0,
                   0x10008,
                   i == 0 ? first : second,
                   {0, 0x11, 0, 0}};
        memcpy(bytes + size, &entry, sizeof entry);
        memcpy(bytes + size + sizeof entry, cubin, entry.size);
        size += sizeof entry + entry.size;
    }
    header.size = size - sizeof header;
    memcpy(bytes, &header, sizeof header);
    return size;
}

#endif
