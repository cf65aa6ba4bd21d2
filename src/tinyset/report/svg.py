"""Charts as inline SVG: no library, colours from the page's style sheet, readable on a phone and in the dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 44
BAR, GROUP_GAP = 18, 14
SERIES = 7  # colours in the style sheet


@dataclass(frozen=True)
class Line:
    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()  # one standard deviation, drawn as a band
    marks: bool = True


def number(value: float) -> str:
    """Short and exact enough for a label: 1,200; 0.035; 2.5e-06."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.3g}"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover [low, high]."""
    span = high - low or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / about))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten inside [low, high]; 1-2-5 where they are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**k for k in powers if low <= 10.0**k <= high]
    if len(tens) >= 4:
        return tens[:: math.ceil(len(tens) / 6)]
    return [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]


class Axis:
    """From values to positions."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool, pad: float = 0.0) -> None:
        usable = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(usable), max(usable)
        if log:
            low, high = (low / 1.2, high * 1.2) if low == high else (low, high)
            room = (math.log10(high) - math.log10(low)) * pad
            low, high = 10 ** (math.log10(low) - room), 10 ** (math.log10(high) + room)
        else:
            room = (high - low) * pad or (abs(high) or 1.0) * 0.05 * (low == high)
            low, high = low - room, high + room
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log
        self.ticks = log_ticks(low, high) if log else ticks(low, high)

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = math.log10(max(value, self.low)) if self.log else value
        return round(self.start + (at - low) / ((high - low) or 1) * (self.end - self.start), 2)


def line_chart(
    lines: Sequence[Line], *, title: str, x_label: str, y_label: str, log_x: bool = False, log_y: bool = False
) -> str:
    """A `<figure>`: the chart, its title, and a legend where there are several lines."""
    xs = [x for line in lines for x in line.x]
    bands = [y + sign * e for line in lines for y, e in zip(line.y, line.error, strict=False) for sign in (-1, 1)]
    x = Axis(xs, LEFT, WIDTH - RIGHT, log=log_x)
    y = Axis([y for line in lines for y in line.y] + bands, HEIGHT - BOTTOM, TOP, log=log_y, pad=0.06)
    parts = [_axes(x, y, x_label, y_label)]
    for i, line in enumerate(lines):
        points = [
            (x(a), y(b)) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b) and (b > 0 or not log_y)
        ]
        if line.error and len(points) == len(line.error):
            parts.append(_band(line, x, y, i))
        path = " ".join(f"{a},{b}" for a, b in points)
        parts.append(f'<polyline class="line s{i % SERIES}" points="{path}"/>')
        if line.marks:
            for (a, b), at, value in zip(points, line.x, line.y, strict=False):
                tip = escape(f"{line.name}: {number(value)} at {number(at)}")
                parts.append(
                    f'<circle class="mark s{i % SERIES}" cx="{a}" cy="{b}" r="3"><title>{tip}</title></circle>'
                )
    said = "; ".join(f"{line.name} from {number(line.y[0])} to {number(line.y[-1])}" for line in lines if len(line.y))
    return _figure(title, f"{title}. {y_label} over {x_label}: {said}.", parts, HEIGHT, [line.name for line in lines])


def bar_chart(
    groups: Sequence[tuple[str, Sequence[tuple[int, str, float, float]]]],
    series: Sequence[str],
    *,
    title: str,
    x_label: str,
) -> str:
    """Horizontal bars in named groups, each bar (series number, text, value, deviation), from 0 to 100."""
    parts, at = [], TOP
    ends = TOP + sum(GROUP_GAP + 16 + BAR * len(bars) for _, bars in groups)
    x = Axis([0, 100], LEFT - 40, WIDTH - 44, log=False)
    for tick in x.ticks:
        parts.append(f'<line class="grid" x1="{x(tick)}" x2="{x(tick)}" y1="{TOP}" y2="{ends}"/>')
        parts.append(_text(x(tick), ends + 16, number(tick), "middle"))
    for group, bars in groups:
        parts.append(f'<text class="group" x="{x(0)}" y="{at + 12}">{escape(group)}</text>')
        at += 18
        for i, text, value, deviation in bars:
            width = round(x(value) - x(0), 2)
            tip = escape(f"{series[i]}, {group}: {text} %")
            parts.append(
                f'<rect class="bar s{i % SERIES}" x="{x(0)}" y="{at}" width="{max(width, 1)}" height="{BAR - 4}" rx="2">'
                f"<title>{tip}</title></rect>"
            )
            if deviation > 0:
                low, high, middle = x(max(0, value - deviation)), x(min(100, value + deviation)), at + (BAR - 4) / 2
                parts.append(f'<line class="error" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>')
            parts.append(_text(max(x(0) + width, x(min(100, value + deviation))) + 5, at + 11, text, "start"))
            at += BAR
        at += GROUP_GAP
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, ends + 34, x_label, "middle"))
    said = "; ".join(
        f"{group}: " + ", ".join(f"{series[i]} {text}" for i, text, _, _ in bars) for group, bars in groups
    )
    return _figure(title, f"{title}. {said}.", parts, ends + 42, list(series))


def _axes(x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    parts = []
    for tick in y.ticks:
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(_text(x.start - 6, y(tick) + 4, number(tick), "end"))
    for tick in x.ticks:
        parts.append(f'<line class="tick" x1="{x(tick)}" x2="{x(tick)}" y1="{y.start}" y2="{y.start + 4}"/>')
        parts.append(_text(x(tick), y.start + 17, number(tick), "middle"))
    parts.append(f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}"/>')
    parts.append(_text((x.start + x.end) / 2, y.start + 36, x_label, "middle"))
    middle = round((y.start + y.end) / 2, 1)
    parts.append(f'<text transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>')
    return "".join(parts)


def _band(line: Line, x: Axis, y: Axis, i: int) -> str:
    upper = [(x(a), y(b + e)) for a, b, e in zip(line.x, line.y, line.error, strict=True)]
    lower = [(x(a), y(b - e)) for a, b, e in zip(line.x, line.y, line.error, strict=True)]
    path = " ".join(f"{a},{b}" for a, b in [*upper, *reversed(lower)])
    return f'<polygon class="band s{i % SERIES}" points="{path}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}">{escape(text)}</text>'


def _figure(title: str, description: str, parts: Sequence[str], height: float, series: Sequence[str]) -> str:
    legend = ""
    if len(series) > 1:
        items = (f'<li><i class="s{i % SERIES}"></i>{escape(name)}</li>' for i, name in enumerate(series))
        legend = f'<ul class="legend">{"".join(items)}</ul>'
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {round(height)}" role="img" aria-label="{escape(description)}">{"".join(parts)}</svg>'
        f"{legend}</figure>"
    )
