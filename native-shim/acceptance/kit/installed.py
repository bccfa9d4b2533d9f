"""Software that may be installed on the machine; a check without it is a Skip."""
import glob
import importlib.util
import os
import re
import shutil
import sys

from kit import FOLDER
from kit.report import Skip


def torch_command(script, *arguments):
    if importlib.util.find_spec("torch") is None:
        raise Skip(f"PyTorch is not installed for {sys.executable}")
    return [sys.executable, os.path.join(FOLDER, script), *arguments]


def find_nvcc():
    for path in [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc", *pypi_files("cu*/bin/nvcc", "cuda_nvcc/bin/nvcc")]:
        if path and os.access(path, os.X_OK):
            return path
    raise Skip("nvcc is not installed (neither in PATH, nor in /usr/local/cuda, nor from PyPI)")


def find_cudart():
    """One library for each major version."""
    by_version = {}
    for path in libraries("cudart"):
        by_version.setdefault(int(re.search(r"\.so\.(\d+)", path).group(1)), path)
    return [by_version[major] for major in sorted(by_version)]


def find_cublas():
    found = libraries("cublas")
    return found[-1] if found else None


def libraries(name):
    return [*glob.glob(f"/usr/local/cuda*/lib64/lib{name}.so.*"), *pypi_files(f"*/lib/lib{name}.so.*")]


def pypi_files(*patterns):
    """Files of NVIDIA's PyPI packages in this Python's module path."""
    return sorted({found for path in sys.path if path for pattern in patterns
                   for found in glob.glob(os.path.join(path, "nvidia", pattern))})
