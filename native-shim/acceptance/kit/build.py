"""Builds the shim and the kit's programs in the source tree."""
import contextlib
import os
import shutil
import subprocess

from kit import FOLDER


def build(folder):
    """Builds what is missing or out of date."""
    if shutil.which("cmake") is None:
        raise SystemExit("run: cmake is not installed; --no-build uses programs that are built already")
    for command in (["cmake", "-S", os.path.dirname(FOLDER), "-B", folder],
                    ["cmake", "--build", folder, "--target", "acceptance", "-j4"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"run: {' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def version(folder):
    """The version that the build wrote: of the project, and of the library's content."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "VERSION")) as file:
        return file.read().strip()
