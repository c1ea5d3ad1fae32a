"""Pictures as SVG: steps per second over the size of the model on logarithmic axes, and curves on plain ones. Pure.

Written by hand: two small pictures are no reason to depend on a plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 50, 50, 60
_SIDES = (("ours", "#1f6fb4", "ours"), ("other", "#c4572b", "TensorFlow's runtime"))


@dataclass(frozen=True, kw_only=True)
class Point:
    """Medians of both sides, in steps per second, for a model of so many bytes."""

    nbytes: int
    ours: float
    other: float


@dataclass(frozen=True)
class _Axis:
    """Maps values to pixels, logarithmically, over whole decades."""

    low: int
    high: int
    first: float
    last: float

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), first, last)

    def at(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.first + part * (self.last - self.first), 1)

    def decades(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.low, self.high + 1)]


def svg(points: Sequence[Point], title: str) -> str:
    """The picture. Needs at least one point; sizes are decimal: 1 MB is 10^6 bytes."""
    points = sorted(points, key=lambda point: point.nbytes)
    rates = [rate for point in points for rate in (point.ours, point.other)]
    x = _Axis.over([point.nbytes for point in points], _LEFT, WIDTH - _RIGHT)
    y = _Axis.over(rates, HEIGHT - _BOTTOM, _TOP)
    words = _words(title, "size of the model", "steps/s, 2 workers")
    return _picture([*_grid(x, y), *_lines(points, x, y), *words])


def _picture(body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *body, "</svg>", ""])


def _text(x: float, y: float, text: str, more: str = "") -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}"{more}>{escaped}</text>'


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value in x.decades():
        yield f'<path d="M{x.at(value):g} {_TOP}V{bottom}" stroke="#ddd"/>'
        yield _text(x.at(value), bottom + 18, _bytes(value), ' text-anchor="middle"')
    for value in y.decades():
        yield f'<path d="M{_LEFT} {y.at(value):g}H{right}" stroke="#ddd"/>'
        yield _text(_LEFT - 8, y.at(value) + 4, f"{value:g}", ' text-anchor="end"')


def _lines(points: Sequence[Point], x: _Axis, y: _Axis) -> Iterator[str]:
    for number, (name, color, label) in enumerate(_SIDES):
        places = [(x.at(point.nbytes), y.at(getattr(point, name))) for point in points]
        path = " ".join(f"{across:g},{up:g}" for across, up in places)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        for (across, up), point in zip(places, points, strict=True):
            yield f'<circle cx="{across:g}" cy="{up:g}" r="3.5" fill="{color}"/>'
            yield _text(across + 6, up - 6, f"{getattr(point, name):.4g}", f' fill="{color}"')
        left = WIDTH - _RIGHT - 160
        yield f'<path d="M{left} {_TOP + 12 + 18 * number}h24" stroke="{color}" stroke-width="2"/>'
        yield _text(left + 30, _TOP + 16 + 18 * number, label)


def _words(title: str, across: str, up: str) -> Iterator[str]:
    yield _text(WIDTH / 2, 24, title, ' text-anchor="middle" font-size="14"')
    yield _text(WIDTH / 2, HEIGHT - 14, across, ' text-anchor="middle"')
    middle = HEIGHT / 2
    yield _text(18, middle, up, f' text-anchor="middle" transform="rotate(-90 18 {middle:g})"')


def _bytes(value: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} B"


@dataclass(frozen=True)
class Curve:
    """A line through points (x, y), at least one, with x rising."""

    label: str
    points: Sequence[tuple[float, float]]


def curves(lines: Sequence[Curve], title: str, across: str, up: str) -> str:
    """The picture of up to two curves, the later one above; both axes are plain, and that of y begins at zero."""
    right = max(x for line in lines for x, _ in line.points)
    top = max(y for line in lines for _, y in line.points)

    def place(x: float, y: float) -> tuple[float, float]:
        wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + wide * x / right, 1), round(HEIGHT - _BOTTOM - high * y / top, 1)

    body = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *_ticks(right, top, place)]
    for number, (line, (_, color, _)) in enumerate(zip(lines, reversed(_SIDES[: len(lines)]), strict=True)):
        path = " ".join(f"{x:g},{y:g}" for x, y in (place(*point) for point in line.points))
        stroke = f'stroke="{color}" stroke-width="1.5"'
        body.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        left, height = WIDTH - _RIGHT - 190, _TOP + 12 + 18 * number
        body += [f'<path d="M{left} {height}h24" {stroke}/>', _text(left + 30, height + 4, line.label)]
    return _picture([*body, *_words(title, across, up)])


def _ticks(right: float, top: float, place: Callable[[float, float], tuple[float, float]]) -> Iterator[str]:
    """Five parts of each axis."""
    for part in range(6):
        x, y = right * part / 5, top * part / 5
        across, up = place(x, 0)[0], place(0, y)[1]
        yield f'<path d="M{across:g} {_TOP}V{HEIGHT - _BOTTOM}M{_LEFT} {up:g}H{WIDTH - _RIGHT}" stroke="#ddd"/>'
        yield _text(across, HEIGHT - _BOTTOM + 18, f"{x:.4g}", ' text-anchor="middle"')
        yield _text(_LEFT - 8, up + 4, f"{y:.3g}", ' text-anchor="end"')
