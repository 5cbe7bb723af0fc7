"""What `restore --with-conversation` does and tells. The adapters are loaded only when it is asked for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, render

if TYPE_CHECKING:
    from holdfast.adapters.agents.conversation import Brought, Kept
    from holdfast.cli.app import App
    from holdfast.model import Checkpoint


def find(checkpoint: Checkpoint) -> Kept:
    """Find the conversation before anything is changed: without it nothing is restored."""
    from holdfast.adapters.agents.conversation import find_kept

    return find_kept(checkpoint.id, checkpoint.state)


def bring(kept: Kept | None, app: App) -> Brought | None:
    """Write it as a new conversation, where one was asked for."""
    if kept is None:
        return None
    from uuid import uuid4

    from holdfast.adapters.agents.conversation import bring_back
    from holdfast.cli.installing import places

    return bring_back(kept, places(app), new_session=str(uuid4()))


def document(said: Brought | None) -> dict[str, Any]:
    """What `--json` has of it."""
    return {"conversation": asdict(said)} if said else {}


def show(said: Brought | None) -> None:
    """Tell where it is, and how to go on with it."""
    if said is None:
        return
    if not said.is_new:
        output.answer("The conversation is as it was: nothing was said since.")
    else:
        output.answer(f"The conversation is in {render.escape(said.path)}; the one that goes on is untouched.")
    if said.resume:
        output.answer(f"Resume with: {render.escape(said.resume)}")
    else:
        output.note(f"{said.agent} cannot resume from it; it is there to be read.")
