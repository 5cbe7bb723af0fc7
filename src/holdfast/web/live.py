"""Server-sent events: a line whenever a workspace has a new checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.durable.aio import in_thread
from holdfast.errors import HoldfastError
from holdfast.web.answers import site_of
from holdfast.workspace import Workspace

POLL_S = 0.5
"""However many checkpoints are saved meanwhile, a page hears of them once."""
_SILENCE_S = 15.0  # after which a comment shows whether the browser is still there


async def events(request: Request) -> Response:
    """New checkpoints of a workspace, as `data: {"newest": ID}`; the page then asks for what it shows."""
    opened = partial(site_of(request).places.workspace, request.path_params["key"])
    _, workspace = await in_thread(opened)
    return StreamingResponse(_told(request, workspace), media_type="text/event-stream")


async def _told(request: Request, workspace: Workspace) -> AsyncIterator[str]:
    last = await in_thread(partial(newest_id, workspace))
    yield f"data: {json.dumps({'newest': last})}\n\n"
    silent_s = 0.0
    while not await request.is_disconnected():
        await asyncio.sleep(POLL_S)
        newest = await in_thread(partial(newest_id, workspace))
        silent_s += POLL_S
        if newest != last:
            last, silent_s = newest, 0.0
            yield f"data: {json.dumps({'newest': newest})}\n\n"
        elif silent_s >= _SILENCE_S:
            silent_s = 0.0
            yield ": still here\n\n"


def newest_id(workspace: Workspace) -> str:
    """The newest checkpoint; empty if that cannot be read now."""
    try:
        found = workspace.list(1, safety=True)
    except HoldfastError:
        return ""
    return found[0].id if found else ""
