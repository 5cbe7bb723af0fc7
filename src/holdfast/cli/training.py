"""The general commands, in a folder of a training run: `log`, `show`, `verify`, `prune`, `diff`."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import documents, output, render
from holdfast.cli.app import App
from holdfast.cli.exits import Exit
from holdfast.cli.kinds import FLOW
from holdfast.errors import NotFound, Refused

if TYPE_CHECKING:
    from holdfast.model import VerifyReport
    from holdfast.training.folder import Found, TrainingFolder

_DIGITS = 100
"""No step has as many; Python does not read numbers of very many."""


def run_of(app: App) -> TrainingFolder | None:
    """The training run whose checkpoints the folder, or the place in an object store, holds; None if it holds none."""
    if app.directory and app.directory.partition("://")[0] in FLOW:
        app.check_kind()
    if app.directory and "://" in app.directory:
        return open_run(app.directory)
    folder = app.folder()
    is_run = os.path.isdir(folder / ".holdfast") and os.path.isfile(folder / "last")
    return open_run(folder) if is_run else None


def open_run(place: str | Path) -> TrainingFolder:
    """The checkpoints in a folder, or below a URL."""
    from holdfast.training.checkpoints import run_of  # start-up cost, for training runs only

    return run_of(place)


def find(run: TrainingFolder, ref: str) -> Found:
    """The checkpoint that a word means: latest, best, latest~2, or a step."""
    if ref in ("latest", "best"):
        return run.get(ref)
    found, _ = run.look()
    back, step = ref.removeprefix("latest~"), ref.removeprefix("step-")
    if back != ref and _is_number(back) and int(back) < len(found):
        return run.full(found[-1 - int(back)])
    if not _is_number(step):
        raise NotFound(f"there is no checkpoint {ref}", hint="Say latest, best, or the number of a step.")
    return run.get(int(step))


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < _DIGITS


def document(found: Found, pinned: set[int], best: int | None) -> dict[str, Any]:
    """What there is to say of a checkpoint, as JSON."""
    manifest = found.manifest
    return {
        "step": found.step, "path": str(found.path), "sequence": manifest.sequence, "created_at": manifest.created_at,
        "metrics": manifest.metrics, "metadata": manifest.metadata, "environment": manifest.environment,
        "config_hash": manifest.config_hash, "bytes": manifest.total_bytes, "tensors": manifest.n_tensors,
        "files": manifest.n_files, "pinned": found.step in pinned, "best": found.step == best,
    }  # fmt: skip


def log(app: App, run: TrainingFolder, limit: int) -> None:
    """List the checkpoints of a run, newest first."""
    found, broken = run.look()
    shown = found[::-1][:limit] if limit else found[::-1]
    pinned, best = run.pinned(), _best(run, found)
    if app.json:
        wrong = [{"path": str(each.path), "step": each.step, "error": each.error.message} for each in broken]
        app.document({"checkpoints": [document(each, pinned, best) for each in shown], "broken": wrong})
        return
    rows = []
    for each in shown:
        flags = [word for word, holds in (("best", each.step == best), ("pinned", each.step in pinned)) if holds]
        size = render.size(each.manifest.total_bytes)
        rows.append((str(each.step), render.local(each.manifest.timestamp), " · ".join(flags), size, _metrics(each)))
    render.table(("step", "when", "", "size", "metrics"), rows)
    if len(shown) < len(found):
        output.note(f"There are more: {app.typed('log', '-n', str(2 * limit))}")
    for wrong_one in broken:
        output.note(render.escape(f"broken: {wrong_one.error}"))


def show(app: App, run: TrainingFolder, ref: str) -> None:
    """Show one checkpoint."""
    found = find(run, ref)
    pinned, best = run.pinned(), _best(run, run.look()[0])
    if app.json:
        app.document({"checkpoint": document(found, pinned, best)})
        return
    manifest = found.manifest
    environment = manifest.environment
    packages = environment.get("packages") if isinstance(environment.get("packages"), dict) else {}
    versions = ", ".join(f"{name} {version}" for name, version in {**(packages or {})}.items())
    flags = [word for word, holds in (("best", found.step == best), ("pinned", found.step in pinned)) if holds]
    pairs = [
        ("step", render.paint(str(found.step), "cyan")),
        ("path", render.escape(str(found.path))),
        ("when", f"{render.local(manifest.timestamp)} ({render.ago(manifest.timestamp)})"),
        ("metrics", _metrics(found)),
        ("marks", ", ".join(flags)),
        ("tensors", f"{render.count(len(manifest.tensors), 'tensor')}, {render.size(manifest.total_bytes)}"),
        ("files", str(len(manifest.files) + 1)),
        ("digest", render.escape(manifest.digest_algorithm)),
        ("metadata", render.escape(json.dumps(manifest.metadata)) if manifest.metadata else ""),
        ("git commit", render.escape(str(environment.get("git_commit") or ""))),
        ("configuration", manifest.config_hash or ""),
        ("python", render.escape(str(environment.get("python") or ""))),
        ("packages", render.escape(versions)),
    ]
    output.answer(render.fields(pairs))


def verify(app: App, run: TrainingFolder) -> int:
    """Read every byte of every checkpoint of a run."""
    report = _report(run)
    if app.json:
        app.document(documents.report(report))
    else:
        read = f"{render.count(report.checkpoints, 'checkpoint')}, {render.count(report.objects, 'file')}"
        verdict = render.paint("sound", "green") if report.ok else render.paint("damaged", "red")
        output.answer(f"{verdict}: read {read}, {render.size(report.bytes_read)}")
        for problem in report.problems:
            touched = f"  (touches {', '.join(problem.checkpoints)})" if problem.checkpoints else ""
            output.answer(render.escape(f"    {problem.what}: {problem.detail}{touched}"))
    return Exit.DONE if report.ok else Exit.DAMAGED


def _report(run: TrainingFolder) -> VerifyReport:
    from holdfast.training.folder import TrainingFolder

    if isinstance(run, TrainingFolder):
        from holdfast.training.checking import verify as check

        return check(*run.look())
    from holdfast.training.remote_reading import verify_remote

    return verify_remote(run)


def prune(app: App, run: TrainingFolder, wishes: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Remove checkpoints of a run that no rule keeps; the newest, the best and what is pinned always stay."""
    from holdfast.training import retaining

    unknown = [name for name in ("keep_for", "keep_per_session", "max_size") if wishes[name] is not None]
    if unknown:
        raise Refused(
            f"--{unknown[0].replace('_', '-')} is not for training runs", hint="Use --keep-last, --keep-every."
        )
    if wishes["keep_last"] is None and wishes["keep_every"] is None:
        raise Refused("nothing says what to keep, so everything is kept", hint="Pass --keep-last N or --keep-every N.")
    keep = retaining.Keep(wishes["keep_last"], 1, wishes["keep_every"])
    options: dict[str, Any] = {"best_key": None, "mode": "min", "now": datetime.now(UTC)}  # `best.json` says which
    plan = retaining.plan(run, run.look()[0], keep, **options)
    told = {"plan": {"removed": plan.removed, "kept": plan.kept}, "pruned": None}
    if not app.json and (dry_run or not yes or not plan.removed):
        say = output.answer if dry_run or not plan.removed else output.note
        say(f"To be deleted, for good: {', '.join(map(str, plan.removed)) or 'nothing'}")
        for step, why in plan.kept.items():
            say(render.escape(f"    {step} stays: {why}"))
    if dry_run or not plan.removed:
        if app.json:
            app.document(told)
        return
    app.confirm("Delete them?", yes=yes)
    with run.writing():
        done = retaining.prune(run, run.look()[0], keep, **options, shown=plan)
    if app.json:
        app.document(told | {"pruned": {"removed": done.removed, "kept": done.kept}})
    else:
        output.answer(f"{render.count(len(done.removed), 'checkpoint')} deleted")


def diff(app: App, run: TrainingFolder, a: str, b: str | None) -> None:
    """Show which tensors differ between two checkpoints, and by how much; without B, A and the newest."""
    from holdfast.training.comparing import compare

    if b is None:
        a, b = ("latest~1" if a == "latest" else a), "latest"
    found = compare(find(run, a), find(run, b), run)
    if app.json:
        changes = [{field: getattr(each, field) for field in each.__slots__} for each in found.changes]
        app.document({"changes": changes, "same": found.same, "values": found.values})
        return
    rows = [
        (
            each.verb,
            _number(each.max_change),
            _number(each.relative_change),
            render.escape(f"{each.name}  {each.detail}"),
        )
        for each in found.changes
    ]
    if rows:
        render.table(("", "greatest change", "relative", "tensor"), rows)
    for path, (old, new) in found.values.items():
        output.answer(render.escape(f"{path}: {json.dumps(old)} → {json.dumps(new)}"))
    output.note(f"{render.count(found.same, 'tensor')} the same")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _metrics(found: Found) -> str:
    values = {name: found.manifest.metric(name) for name in found.manifest.metrics}
    return render.escape(", ".join(f"{name} {value:g}" for name, value in values.items() if value is not None))


def _best(run: TrainingFolder, found: list[Found]) -> int | None:
    marker = run.best_marker()
    best = run.best_of(found, str(marker.get("metric")), str(marker.get("mode"))) if marker else None
    return best.step if best else None
