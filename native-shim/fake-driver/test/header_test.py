"""
Compares the driver with NVIDIA's headers: header_test.py SOURCES CLIENTS LIBRARY. Every source compiles with cuda.h in
place of our declarations, so a wrong type or value is a compiler error. Every entry of the table has a name and version
from cudaTypedefs.h, and the library exports exactly the table's symbols. NVML functions, structures and values are
compared with nvml.h, whose handles are structures around a pointer where ours are the pointer.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, CLIENTS, LIBRARY = sys.argv[1:4]
del sys.argv[1:4]
INCLUDE = os.path.join(CLIENTS, "nvidia", "cu13", "include")
# Declared in cudaProfilerTypedefs.h, which the runtime's package lacks, and not in cudaTypedefs.h.
ELSEWHERE = {("cuProfilerStart", 4000, ""), ("cuProfilerStop", 4000, "")}


def table():
    with open(os.path.join(SOURCES, "cuda_entries.def")) as entries:
        pattern = r"^(ENTRY|PER_THREAD|UNSUPPORTED)\((\w+), (\d+), (\w+?)(_pt[ds][sz])?(?:,\s+(\w+))?\)$"
        return re.findall(pattern, entries.read(), re.M)


class HeaderTest(unittest.TestCase):
    def test_every_source_compiles_against_cuda_h(self):
        for source in sorted(glob.glob(os.path.join(SOURCES, "cuda_*.c"))):
            with self.subTest(os.path.basename(source)):
                subprocess.run(["cc", "-std=gnu11", "-fsyntax-only", "-Werror", "-Wno-deprecated-declarations",
                                "-DALIQUOT_CHECK_AGAINST_CUDA_H", f"-I{INCLUDE}", source], check=True)

    def test_every_entry_is_in_cuda_typedefs_h(self):
        with open(os.path.join(INCLUDE, "cudaTypedefs.h")) as header:
            known = {(name, int(version), flavour) for name, version, flavour in
                     re.findall(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", header.read())}
        entries = {(name, int(version), flavour) for _, name, version, _, flavour, _ in table()}
        self.assertGreater(len(entries), 200)
        self.assertEqual(set(), entries - known - ELSEWHERE)

    def test_newer_versions_have_newer_symbols(self):
        forms = {}
        for kind, name, version, symbol, _, _ in table():
            if kind != "PER_THREAD":
                forms.setdefault(name, []).append((int(version), symbol))
        for name, versions in forms.items():
            numbers = [int((re.search(r"_v(\d)$", symbol) or [0, "1"])[1]) for _, symbol in sorted(versions)]
            self.assertEqual(sorted(set(numbers)), numbers, name)

    def test_the_library_exports_exactly_the_table(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", LIBRARY], check=True,
                                 capture_output=True, text=True).stdout
        exported = {line.split()[0] for line in symbols.splitlines()}
        self.assertEqual({symbol + flavour for _, _, _, symbol, flavour, _ in table()}, exported)


def compiled(*arguments):
    return subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", f"-I{INCLUDE}",
                           f"-I{SOURCES}", *arguments], check=True, capture_output=True, text=True)


def read(path):
    with open(path) as file:
        return file.read()


class NvmlHeaderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.header = read(os.path.join(INCLUDE, "nvml.h"))
        self.integers = set(re.findall(r"typedef enum \w+\s*\{[^}]*\}\s*(nvml\w+);", self.header)) - {"nvmlReturn_t"}
        self.integers |= set(re.findall(r"typedef unsigned int (nvml\w+);", self.header))

    def prototypes(self, source, where):
        """The functions that the compiler found in the file where: name to return and parameter types."""
        path = os.path.join(self.folder, "prototypes")
        compiled("-DFAKE_DRIVER_VERSION=\"\"", "-DFAKE_CUDA_VERSION=13000", "-U_GNU_SOURCE", "-fsyntax-only",
                 "-aux-info", path, source)
        found = {}
        for answer, name, parameters in re.findall(
                rf"^/\* \S*{where}:\d+:\w+ \*/ (?:extern )?(.*?)(nvml[A-Z]\w*) \((.*?)\);", read(path), re.M):
            found[name] = [self.plain(answer)] + [self.plain(one) for one in parameters.split(", ")]
        return found

    def plain(self, text):
        """A type without the parameter name, with every enum type as unsigned int."""
        words = re.findall(r"[\w]+|\*", text)
        if len(words) > 1 and "*" in words:
            words = words[:len(words) - words[::-1].index("*")]
        elif len(words) > 1 and words[-1] not in ("int", "char", "long", "short"):
            words = words[:-1]
        return " ".join("unsigned int" if word in self.integers else
                        word.replace("nvmlProcessInfo_t", "nvmlProcessInfo_v2_t") for word in words)

    def test_every_function_matches_its_declaration_in_nvml_h(self):
        include = os.path.join(self.folder, "include.c")
        with open(include, "w") as source:
            source.write("#include <nvml.h>\n")
        nvidia = self.prototypes(include, "nvml.h")
        declared = self.prototypes(os.path.join(SOURCES, "nvml.c"), "nvml.c")
        self.assertGreater(len(declared), 80)
        self.assertEqual(set(), set(declared) - set(nvidia))
        for name, types in declared.items():
            # The simulated driver declares pointers that it does not dereference as void *.
            seen = [own if own == "void *" and their.endswith("*") else their
                    for own, their in zip(types, nvidia[name])] + nvidia[name][len(types):]
            self.assertEqual(seen, types, name)

    def values(self, include, lines):
        source, program = os.path.join(self.folder, "values.c"), os.path.join(self.folder, "values")
        with open(source, "w") as text:
            text.write(f"#include <stddef.h>\n#include <stdio.h>\n#include <{include}>\nint main(void) {{\n")
            for what, value in lines:
                text.write(f'printf("{what} %lld\\n", (long long)({value}));\n')
            text.write("}\n")
        compiled(source, "-o", program)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()

    def test_structures_and_values_match_nvml_h(self):
        own = re.sub(r"/\*.*?\*/", "", read(os.path.join(SOURCES, "nvml_abi.h")), flags=re.S)
        own = re.sub(r"union \{.*?\}", "union", own, flags=re.S)  # members are compared by name
        lines = []
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", own, re.S):
            lines.append((f"sizeof {name}", f"sizeof({name})"))
            for field in re.findall(r"(\w+)(?:\[\d+\])?[,;]", body):
                lines.append((f"{name}.{field}", f"offsetof({name}, {field})"))
        for constant in re.findall(r"\b(NVML_\w+)(?: =|\b.*sizeof)", own):
            if re.search(rf"\b{constant}\b", self.header):
                lines.append((constant, constant))
        self.assertGreater(len(lines), 60)
        theirs = [(what, value.replace("NVML_MEMORY_V2", "nvmlMemory_v2")) for what, value in lines]
        self.assertEqual(self.values("nvml.h", theirs), self.values("nvml_abi.h", lines))


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
