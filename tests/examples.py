"""How many examples a property test tries: few by default, all with `--hypothesis-profile=thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine fails no property test: neither an example nor its generation is timed.
_UNTIMED = settings(deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("quick", _UNTIMED, max_examples=20)
settings.register_profile("thorough", _UNTIMED, max_examples=100)


def examples(number: int) -> int:
    """The share of this number that the profile has of a hundred."""
    return max(1, number * settings.default.max_examples // 100)
