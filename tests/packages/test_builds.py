"""What `python -m build` makes, installed where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.extras]

ROOT = Path(__file__).parents[2]


def build(into: Path, source: Path = ROOT, *, epoch: str = "1700000000") -> tuple[Path, Path]:
    """The sdist, and the wheel made from it in a folder of its own."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    command = [sys.executable, "-m", "build", "--outdir", str(into), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(into.glob("*.tar.gz")), next(into.glob("*.whl"))


def copy_of_the_source(into: Path) -> Path:
    """The files that git knows, in a folder where nothing was built yet."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target)
    return into


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    source = copy_of_the_source(tmp_path_factory.mktemp("source"))
    return build(tmp_path_factory.mktemp("dist"), source)


def environment_with(package: Path, folder: Path, **variables: str) -> Path:
    """Install a package into a new virtual environment; the Python of that."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(package)]
    done = subprocess.run(install, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def without_tools(home: Path) -> dict[str, str]:
    """An environment in which no program can be found: no compiler, no git."""
    home.mkdir()
    return {"PATH": str(home), "HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home)}


def run(command: list[str], environment: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_runs_the_demo_with_no_tools(built: tuple[Path, Path], tmp_path: Path) -> None:
    python = environment_with(built[1], tmp_path / "env")
    bare = without_tools(tmp_path / "home")
    run([str(python), "-m", "holdfast", "demo"], bare, tmp_path)
    assert "native" in run([str(python), "-m", "holdfast", "--version", "--verbose"], bare, tmp_path)
    run([str(python), "-c", "import holdfast._native"], bare, tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("1")
    run([str(python), "-m", "holdfast", "save", "first"], bare, project)
    assert "first" in run([str(python), "-m", "holdfast", "log"], bare, project)


@pytest.mark.parametrize("compiler", ["with a compiler", "without one"])
def test_the_sdist_installs(compiler: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    broken = {} if compiler == "with a compiler" else {"CC": str(tmp_path / "no-such-compiler")}
    python = environment_with(built[0], tmp_path / "env", **broken)
    bare = without_tools(tmp_path / "home")
    run([str(python), "-m", "holdfast", "demo"], bare, tmp_path)
    tried = subprocess.run(
        [str(python), "-c", "import holdfast._native"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (tried.returncode == 0) is (compiler == "with a compiler")


def test_two_builds_in_two_folders_give_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, wheel = build(tmp_path / "again", copy_of_the_source(tmp_path / "elsewhere"))
    assert sdist.read_bytes() == built[0].read_bytes()
    assert wheel.read_bytes() == built[1].read_bytes()


@pytest.mark.parametrize("choice", ["", "1"])
def test_a_free_threaded_python_gets_no_native_module(choice: str, tmp_path: Path) -> None:
    """There is no stable ABI of it. The build reads of a Python what it is, so it can be told."""
    real = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    needed = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "build",
        "hatchling>=1.24",
        "setuptools>=77",
    ]
    subprocess.run(needed, check=True)
    [site] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "_sysconfigdata_free.py").write_text(
        f"import importlib\nreal = importlib.import_module({real!r}).build_time_vars\n"
        "build_time_vars = {**real, 'Py_GIL_DISABLED': 1}\n"
    )
    environment = {**os.environ, "_PYTHON_SYSCONFIGDATA_NAME": "_sysconfigdata_free"}
    environment |= {"HOLDFAST_NATIVE": choice} if choice else {}
    source = copy_of_the_source(tmp_path / "source")
    command = [str(python), "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path / "dist"), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if choice:
        assert done.returncode != 0
        assert "The free-threaded Python has no stable ABI" in done.stdout + done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "without its native module: this is a free-threaded Python" in done.stdout + done.stderr
        [wheel] = (tmp_path / "dist").iterdir()
        assert wheel.name.endswith("-py3-none-any.whl")


def test_the_packages_contain_what_they_should(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        source = {each.split("/", 1)[1] for each in archive.getnames() if "/" in each}
    needed = {"src/holdfast/_native.c", "src/holdfast/_native.h", "hatch_build.py", "LICENSE", "README.md"}
    assert needed <= source
    assert not [each for each in source if each.endswith((".so", ".pyc")) or each.startswith((".venv", "build/"))]
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    assert {"holdfast/_native.abi3.so", "holdfast/py.typed"} <= names
    assert not [each for each in names if each.endswith((".c", ".h", ".pyc"))]
    package = {
        each.removeprefix("src/") for each in source if each.startswith("src/") and not each.endswith((".c", ".h"))
    }
    assert package <= names  # every file of the package, its templates and skills too
    assert any(each.endswith("licenses/LICENSE") for each in names)
