"""Builds the native module with the package, where there is a compiler.

Without one the package is built without it and works the same, slower. `HOLDFAST_NATIVE=1` makes that an error, for
wheels to publish; `HOLDFAST_NATIVE=0` leaves it out.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

SOURCES = tuple(
    f"src/holdfast/{each}.c" for each in ("_native", "_native_read", "_native_index", "_native_parts", "_native_stamp")
)
BUILT = "src/holdfast/_native.abi3.so"


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles the module into the source tree, where an editable install finds it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        choice = os.environ.get("HOLDFAST_NATIVE")
        if self.target_name != "wheel" or choice == "0":
            return
        if sysconfig.get_config_var("Py_GIL_DISABLED"):  # there is no stable ABI of the free-threaded build
            if choice == "1":
                raise RuntimeError("The free-threaded Python has no stable ABI, which the native module needs.")
            self.app.display_warning("Holdfast is built without its native module: this is a free-threaded Python.")
            return
        if not _compile([Path(self.root, each) for each in SOURCES], Path(self.root, BUILT), is_optional=choice != "1"):
            self.app.display_warning("Holdfast is built without its native module: the compiler failed.")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"cp311-abi3-{platform}")
        build_data["force_include"][BUILT] = "holdfast/_native.abi3.so"


def _compile(sources: list[Path], built: Path, *, is_optional: bool) -> bool:
    """Compile beside, and move into place: a program that runs keeps the module that it has loaded."""
    # Without debug information, which names the folder of the build: two builds give the same bytes.
    options = ["-std=c11", "-O2", "-g0", "-Wall", "-Wextra", "-pthread"]
    module = Extension(
        "_native",
        [str(each) for each in sources],
        py_limited_api=True,
        extra_compile_args=options,
        optional=is_optional,
    )
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        command = Distribution({"ext_modules": [module]}).get_command_obj("build_ext")
        command.build_lib = command.build_temp = folder  # type: ignore[attr-defined]
        command.ensure_finalized()
        command.run()
        found = next(Path(folder).glob("_native*.so"), None)
        built.unlink(missing_ok=True)
        if found is not None:
            shutil.move(found, built)
    return found is not None
