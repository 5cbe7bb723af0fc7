"""`holdfast verify LOCATION`."""

from __future__ import annotations

from holdfast.cli import documents, output, progress, render
from holdfast.cli.app import App
from holdfast.cli.exits import Exit
from holdfast.cli.flow import telling
from holdfast.cli.flow.opening import keys_of, opened, session_of
from holdfast.cli.locations import Asked
from holdfast.model import VerifyReport


def verify(app: App, place: Asked) -> int:
    """Read every state and every write, of all tenants or one, and name what is damaged."""
    reports: dict[str, VerifyReport] = {}
    with opened(place.location, keys_of(place)) as location, progress.shown() as shown:
        of_session = place.tenant or "" if place.session is not None else place.tenant
        for tenant in location.tenants(of_session):
            states = location.tenant(tenant)
            session = None if place.session is None else session_of(location, states, place.session)
            reports[tenant] = states.verify(session, progress=shown)
    is_ok = all(report.ok for report in reports.values())
    if app.json:
        each = [{"tenant": tenant, **documents.report(report)} for tenant, report in reports.items()]
        app.document({"ok": is_ok, "tenants": each})
        return Exit.DONE if is_ok else Exit.DAMAGED
    checkpoints = sum(report.checkpoints for report in reports.values())
    read = sum(report.bytes_read for report in reports.values())
    verdict = render.paint("sound", "green") if is_ok else render.paint("damaged", "red")
    output.answer(f"{verdict}: read {render.count(checkpoints, 'checkpoint')}, {render.size(read)}")
    for tenant, report in reports.items():
        whose = f"tenant {telling.name(tenant)}: " if tenant else ""
        for problem in report.problems:
            output.answer(f"    {whose}{render.escape(problem.detail)}")
    if not is_ok:
        output.note("Checkpoints that are not named are sound.")
    return Exit.DONE if is_ok else Exit.DAMAGED
