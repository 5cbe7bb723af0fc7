"""Writes what each extra downloads, and under which licences, into docs/install.md.

pip names the files that it would download into an environment with nothing in it; their sizes come from the index. Run
it in the environment of `make install-all`, from which the licences are read: `.venv/bin/python tools/install_page.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
sys.path.insert(0, str(ROOT / "tests"))

from packages.closure import brought_by  # noqa: E402
from packages.test_licences import EXPLAINED, licence_of  # noqa: E402

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "dev-all", "docs"}


def files_of(extra: str, python: str) -> dict[str, str]:
    """The address of every file that pip would download."""
    wanted = f"{ROOT}[{extra}]" if extra else str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), wanted], check=True, stderr=subprocess.DEVNULL)
        found = json.loads(report.read_text())["install"]
    return {
        each["metadata"]["name"]: each["download_info"]["url"]
        for each in found
        if each["metadata"]["name"].lower() != "holdfast"
    }


def size_of(url: str, known: dict[str, int]) -> int:
    """The bytes of a file of the index, or of a local one."""
    if url not in known:
        if url.startswith("file:"):
            known[url] = Path(urllib.request.url2pathname(url.removeprefix("file://"))).stat().st_size
        else:
            asked = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(asked, timeout=60) as answer:
                known[url] = int(answer.headers["Content-Length"])
    return known[url]


def shown(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 9.5e6 else f"{size / 1e6:.1f} MB"


def sizes_table() -> str:
    known: dict[str, int] = {}
    lines = ["| extra | packages | download | the largest |", "|---|--:|--:|---|"]
    for extra in ["", *sorted(set(EXTRAS) - FOR_DEVELOPERS)]:
        sizes = {name: size_of(url, known) for name, url in files_of(extra, sys.executable).items()}
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:2]
        named = ", ".join(f"{name} {shown(sizes[name])}" for name in largest)
        label = f"`{extra}`" if extra else "none"
        lines.append(f"| {label} | {len(sizes)} | {shown(sum(sizes.values()))} | {named} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def licences_table() -> str:
    under: dict[str, list[str]] = defaultdict(list)
    for name, found in sorted(brought_by("holdfast", frozenset({"all", "jax"})).items()):
        if name != "holdfast":
            under[EXPLAINED.get(name) or group(licence_of(found))].append(name)
    lines = ["| licence | packages |", "|---|---|"]
    for licence in sorted(under, key=lambda each: (-len(under[each]), each)):
        lines.append(f"| {licence} | {', '.join(under[licence])} |")
    return "\n".join(lines)


def group(licence: str) -> str:
    """One spelling for the licences that many packages have."""
    for pattern, name in (
        (r"^(MIT|MIT License|The MIT License.*|Expat.*)$", "MIT"),
        (r"^(Apache.*2.*|Apache Software License|Apache)$", "Apache 2.0"),
        (r"^(BSD.*|.*BSD License.*|.*[23]-Clause.*)$", "BSD"),
        (r"^(MPL.*|Mozilla.*)$", "MPL 2.0"),
        (r"^(PSF.*|Python Software.*)$", "PSF"),
        (r"^(ISC.*)$", "ISC"),
    ):
        if re.match(pattern, licence) and " AND " not in licence and " OR " not in licence:
            return name
    return licence


def put(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    assert begin in text and end in text, name
    return text.split(begin)[0] + f"{begin}\n{table}\n{end}" + text.split(end)[1]


if __name__ == "__main__":
    page = put(PAGE.read_text(), "licences", licences_table())
    PAGE.write_text(page)
    PAGE.write_text(put(page, "extras", sizes_table()))
