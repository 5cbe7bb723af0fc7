"""Plots, drawn as SVG by the server. Colours are classes of the stylesheet: no style is in the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 6, 6, 8, 8
_POINTS_MAX = 600


class Series(NamedTuple):
    """The values of one run."""

    name: str
    points: Sequence[tuple[float, float]]
    """By step."""


class ChartLine(NamedTuple):
    """A series as it is drawn."""

    name: str
    number: int
    path: str
    last: tuple[float, float]


class Chart(NamedTuple):
    """One metric."""

    title: str
    lines: list[ChartLine]
    low: str
    high: str
    first: str
    final: str


def draw(title: str, series: Sequence[Series]) -> Chart | None:
    """Draw a metric of several runs over each other; None if there is nothing to draw."""
    finite = [Series(each.name, [point for point in each.points if all(map(math.isfinite, point))]) for each in series]
    points = [point for each in finite for point in each.points]
    if not points:
        return None
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - left) / (right - left) if right > left else 0.5
        up = (point[1] - low) / (high - low) if high > low else 0.5
        x = _LEFT + across * (WIDTH - _LEFT - _RIGHT)
        return round(x, 1), round(HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM), 1)

    lines = []
    for number, each in enumerate(finite):
        if each.points:
            step = max(len(each.points) // _POINTS_MAX, 1)
            placed = [place(point) for point in [*each.points[::step], each.points[-1]]]
            lines.append(ChartLine(each.name, number % 4, " ".join(f"{x},{y}" for x, y in placed), placed[-1]))
    return Chart(title, lines, f"{low:.4g}", f"{high:.4g}", f"{left:g}", f"{right:g}")
