"""
Checks that no file includes a header or uses a symbol of a layer above its own: layers_test.py SOURCES NM OBJECT...
The shim's layers are those of README.md, one a folder of src; within a layer no files depend on each other in a circle.
The compute limit is one box: its files may. The fake driver has one folder, and each of its files is a layer, the lowest
first, as fake-driver/CMakeLists.txt lists them; its headers hold what all may know, so only symbols count.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import unittest

SOURCES, NM, *OBJECTS = sys.argv[1:]
del sys.argv[1:]
LAYERS = ["os", "limits", "driver", "charge", "memory", "compute"]
IS_SHIM = os.path.isdir(os.path.join(SOURCES, LAYERS[0]))


def name(path):
    """charge/pool of .../src/charge/pool.c.o, pool.c and pool.h, which are one file here."""
    folder, file = path.split(os.sep)[-2:]
    return f"{folder}/{file.split('.')[0]}"


def layer(file):
    return LAYERS.index(file.split("/")[0]) if IS_SHIM else [name(path) for path in OBJECTS].index(file)


def included():
    for source in glob.glob(os.path.join(SOURCES, "*", "*.[chS]")):
        with open(source) as text:
            for header in re.findall(r'^#include "(\w+/\w+\.h)"', text.read(), re.M):
                if not header.startswith("aliquot/"):  # the layouts of files, which all may read
                    yield name(source), name(header)


def used():
    defined, wanted = {}, []
    for path in OBJECTS:
        output = subprocess.run([NM, "--format=posix", path], check=True, capture_output=True, text=True).stdout
        for symbol, kind in (line.split()[:2] for line in output.splitlines() if len(line.split()) > 1):
            if kind == "U":
                wanted.append((name(path), symbol))
            elif kind.isupper():
                defined[symbol] = name(path)
    # exports.S is the table of all hooks, by which the linker exports them.
    return [(user, defined[symbol]) for user, symbol in wanted
            if symbol in defined and not symbol.startswith("aliquot_hook_")]


class LayersTest(unittest.TestCase):
    def check(self, edges):
        edges = {(user, supplier) for user, supplier in edges if user != supplier}
        self.assertGreater(len(edges), 60)
        height = {file: layer(file) for edge in edges for file in edge}
        self.assertEqual([], sorted(f"{user} uses {supplier}" for user, supplier in edges
                                    if height[supplier] > height[user]))
        suppliers = collections.defaultdict(set)
        for user, supplier in edges:
            if height[user] == height[supplier] and not user.startswith("compute/"):
                suppliers[user].add(supplier)
        while free := [file for file in suppliers if not suppliers[file] & suppliers.keys()]:
            for file in free:
                del suppliers[file]
        self.assertEqual({}, dict(suppliers), "a circle")

    @unittest.skipUnless(IS_SHIM, "headers are no layers")
    def test_includes(self):
        self.check(included())

    def test_symbols(self):
        if IS_SHIM:
            self.assertEqual(set(LAYERS), {name(path).split("/")[0] for path in OBJECTS})
        self.check(used())


unittest.main()
