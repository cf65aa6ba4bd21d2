"""Charts: valid XML, ticks that cover the data, labels that are escaped."""

import math
from xml.etree import ElementTree

import pytest

from tinyset.report.svg import Axis, Line, bar_chart, line_chart, log_ticks, number, ticks


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.2, 97.3), (-3, 4), (1e-6, 3e-6), (5, 5), (0, 12345)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)


def test_log_ticks() -> None:
    assert log_ticks(100, 20_000) == [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000]
    assert log_ticks(1, 1e6)[0] == 1 and len(log_ticks(1e-9, 1e9)) <= 7


def test_axis_maps_ends_to_ends() -> None:
    linear, log = Axis([2, 4], 10, 110, log=False), Axis([1, 100], 0, 100, log=True)
    assert (linear(2), linear(3), linear(4)) == (10, 60, 110)
    assert (log(1), log(10), log(100)) == (0, 50, 100)
    assert math.isfinite(Axis([], 0, 1, log=True)(5))
    assert math.isfinite(Axis([0.0], 0, 1, log=False)(0))


def test_charts_are_valid_xml_whatever_the_names() -> None:
    nasty = "<b>&\"'"
    lines = [Line(nasty, [1, 10], [0.5, 0.1], [0.1, 0.05]), Line("b", [1], [0.2])]
    for log in (False, True):
        chart = line_chart(lines, title=nasty, x_label=nasty, y_label=nasty, log_x=log, log_y=log)
        figure = ElementTree.fromstring(chart)
        assert figure.findtext("figcaption") == nasty
        assert len(figure.findall(".//polyline")) == 2 and len(figure.findall(".//circle")) == 3
    bars = bar_chart(
        [(nasty, [(0, "50.0 ± 1.0", 50.0, 1.0), (1, "0.0", 0.0, 0.0)])], [nasty, "b"], title="t", x_label="x"
    )
    figure = ElementTree.fromstring(bars)
    assert len(figure.findall(".//rect")) == 2 and nasty in (figure.find("svg") or figure).attrib["aria-label"]


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0, 1234567, 0.12345, 1e-7, 99.95)] == ["0", "1,234,567", "0.123", "1.0e-07", "100"]
