"""
The driver against NVIDIA's own headers: header_test.py SOURCES CLIENTS LIBRARY. Every source compiles with cuda.h in
place of our declarations (a wrong type or value is a compiler error), every entry of the table is of a form and a
version that cudaTypedefs.h knows, and the library exports the table's symbols and no others.
"""
import glob
import os
import re
import subprocess
import sys
import unittest

SOURCES, CLIENTS, LIBRARY = sys.argv[1:4]
del sys.argv[1:4]
INCLUDE = os.path.join(CLIENTS, "nvidia", "cu13", "include")
# Not in cudaTypedefs.h but in cudaProfilerTypedefs.h, which the runtime's package lacks.
ELSEWHERE = {("cuProfilerStart", 4000, ""), ("cuProfilerStop", 4000, "")}


def table():
    with open(os.path.join(SOURCES, "cuda_entries.def")) as entries:
        return re.findall(r"^(ENTRY|THREAD)\((\w+), (\d+), (\w+?)(_pt[ds][sz])?(?:, (\w+))?\)$", entries.read(), re.M)


class HeaderTest(unittest.TestCase):
    def test_every_source_compiles_against_cuda_h(self):
        for source in sorted(glob.glob(os.path.join(SOURCES, "cuda_*.c"))):
            with self.subTest(os.path.basename(source)):
                subprocess.run(["cc", "-std=gnu11", "-fsyntax-only", "-Werror", "-Wno-deprecated-declarations",
                                "-DALIQUOT_CHECK_AGAINST_CUDA_H", f"-I{INCLUDE}", source], check=True)

    def test_every_entry_is_one_of_cuda_typedefs_h(self):
        with open(os.path.join(INCLUDE, "cudaTypedefs.h")) as header:
            known = {(name, int(version), flavour) for name, version, flavour in
                     re.findall(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", header.read())}
        entries = {(name, int(version), flavour) for _, name, version, _, flavour, _ in table()}
        self.assertGreater(len(entries), 200)
        self.assertEqual(set(), entries - known - ELSEWHERE)

    def test_newer_forms_have_newer_names(self):
        forms = {}
        for kind, name, version, symbol, _, _ in table():
            if kind == "ENTRY":
                forms.setdefault(name, []).append((int(version), symbol))
        for name, versions in forms.items():
            numbers = [int((re.search(r"_v(\d)$", symbol) or [0, "1"])[1]) for _, symbol in sorted(versions)]
            self.assertEqual(sorted(set(numbers)), numbers, name)

    def test_the_library_exports_the_table_and_nothing_else(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", LIBRARY], check=True,
                                 capture_output=True, text=True).stdout
        exported = {line.split()[0] for line in symbols.splitlines()}
        self.assertEqual({symbol + flavour for _, _, _, symbol, flavour, _ in table()}, exported)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
