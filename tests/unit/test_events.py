"""Each handler gets an event, whatever the other handlers do."""

from __future__ import annotations

import pytest

from holdfast.events import Listeners


def test_listener_that_unsubscribes_does_not_skip_the_next() -> None:
    listeners: Listeners[str] = Listeners()
    told: list[str] = []

    def once(event: str) -> None:
        told.append(f"once: {event}")
        stop()

    stop = listeners.on("saved", once)
    listeners.on("saved", lambda event: told.append(f"always: {event}"))
    listeners.tell("saved", "first")
    listeners.tell("saved", "second")
    assert told == ["once: first", "always: first", "always: second"]


def test_one_that_fails_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    listeners: Listeners[str] = Listeners()
    listeners.on("saved", lambda event: int("no number"))
    listeners.on("saved", str.upper)
    assert listeners.tell("saved", "first") == ["FIRST"]
    assert "a handler of saved failed" in caplog.text
