"""What the declared requirements of a package bring, read from the environment that is installed."""

from __future__ import annotations

from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def brought_by(name: str, extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """The distribution and everything that it and these extras require, by canonical name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(canonicalize_name(name), extras)]
    while todo:
        this, wanted = todo.pop()
        if (this, wanted) in seen:
            continue
        seen.add((this, wanted))
        found[this] = distribution(this)
        for line in found[this].requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in (wanted or {""})):
                todo.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def link_into(folder: Path, distributions: dict[str, Distribution]) -> None:
    """Link the files of these distributions into a folder, as if they alone were installed there."""
    for each in distributions.values():
        for file in each.files or ():
            source = Path(str(each.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                continue
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(source)
