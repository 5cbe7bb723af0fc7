"""Verifying a location and planning an index: begun with a button, and shown while they go on."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Refused
from holdfast.location import Capability, Verification
from holdfast.web.answers import Answer, Query, error_document, go, json_response, query_of, site_of, wants_json
from holdfast.web.jobs import Job, Jobs
from holdfast.web.locations import options_of
from holdfast.web.places import NamedLocation, NamedLocations
from holdfast.web.rendering import address

_VERIFY, _PLAN = "verify", "plan"
PROBLEMS_MAX = 500


def verify(request: Request) -> Answer:
    """The verification of a location that goes on, or what the last one found."""
    return _shown(request, _VERIFY)


def plan(request: Request) -> Answer:
    """What an apply of an index would do and cost, as it was computed last."""
    return _shown(request, _PLAN)


def start_verify(request: Request, form: Query) -> Response:
    """Read every byte of a location, in the background."""
    site, options = site_of(request), options_of(form)
    place = site.places.find(request.path_params["key"])
    if Capability.VERIFY not in place.kind.load().capabilities:
        raise Refused(f"{place.kind.title} cannot be verified", hint="Choose another location.")
    if place.kind.name == "index":
        site.places.check_trusted(place)
    return _started(request, _VERIFY, place, options, partial(_verify, site.places, place, options))


def start_plan(request: Request, form: Query) -> Response:
    """Compute what an apply of an index would do; no model is called."""
    place = site_of(request).places.index(request.path_params["key"])
    return _started(request, _PLAN, place, {}, partial(_plan, site_of(request).places, place))


def _verify(places: NamedLocations, place: NamedLocation, options: dict[str, str], job: Job) -> Verification:
    if place.kind.name == "index":
        return Verification(**places.ask("verify", place))
    found = places.ask(
        "verify_location", place, lambda _, value: job.tell(*value), options=places.options(place, options)
    )
    return Verification(**found)


def _plan(places: NamedLocations, place: NamedLocation, _: Job) -> dict[str, Any]:
    found: dict[str, Any] = places.ask("plan", place)
    return found


def _started(request: Request, kind: str, place: NamedLocation, options: dict[str, str], work: Any) -> Response:
    job = site_of(request).jobs.start(*_key(kind, place, options), work=work)
    if wants_json(request):
        return json_response({"job": job.document()})
    return go(address("l", place.key, kind, **options))


def _shown(request: Request, kind: str) -> Answer:
    query = query_of(request)
    site, options = site_of(request), options_of(query)
    place = site.places.find(request.path_params["key"])
    job = _job(site.jobs, kind, place, options)
    values = {
        "place": place,
        "kind": kind,
        "job": job,
        "error": error_document(job.error) if job and job.error else None,
        "found": job.result if job else None,
        "options": options,
        "here_again": address("l", place.key, kind, fragment="1", **options),
        "can_start": not site.read_only and (place.kind.name != "index" or site.places.is_trusted(place)),
        "problems_max": PROBLEMS_MAX,
    }

    def document() -> dict[str, Any]:
        result = None if job is None else job.result
        report = result.document if isinstance(result, Verification) else result
        return {"job": job.document() if job else None, "error": values["error"], kind: report}

    return Answer("work_fragment.html" if query.get("fragment") else "work.html", values, document)


def _job(jobs: Jobs, kind: str, place: NamedLocation, options: dict[str, str]) -> Job | None:
    return jobs.find(*_key(kind, place, options))


def _key(kind: str, place: NamedLocation, options: dict[str, str]) -> tuple[str, ...]:
    return (kind, place.key, *(f"{name}={options[name]}" for name in sorted(options)))
