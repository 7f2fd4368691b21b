"""Charts: what was evaluated is drawn, where and as long as it was, and nothing beside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from simulator.charts import Chart, Fires, Line, Panel, draw

HEAT = Line("heat", "heat")
LIMIT = Line("limit", "limit", "limit")
HOT = Fires("GPUHot", "warning", "gpu", "5")
CHART = Chart("c", "overheat", (0, 1), (Panel("Heat & <air>", (0, 100, 50), (HEAT, LIMIT), (HOT,)),), step_s=600)
TIMES = (0, 600, 1200, 1800, 2400, 3000, 3600)
X = {0: 46, 600: 163, 1200: 279, 1800: 396, 2400: 513, 3000: 629, 3600: 746}
"""Where a time is drawn: 46 is the left edge, 746 the right."""


def drawn(heat: dict[int, float], hot: dict[int, float]) -> ElementTree.Element:
    """The picture of these values, with a limit of 85."""
    return ElementTree.fromstring(draw(CHART, {"heat": heat, "limit": dict.fromkeys(TIMES, 85.0), HOT.expr: hot}))


def with_class(picture: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in picture.iter() if each.get("class") == name]


def curve(picture: ElementTree.Element) -> str:
    """The path of the one curve, without that of its legend."""
    (path,) = [each.get("d", "") for each in with_class(picture, "l c0") if "h20" not in each.get("d", "")]
    return path


def words(picture: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in picture.iter() if each.tag.endswith("}text")]


def test_curve_when_values_change_then_goes_through_each_at_its_time() -> None:
    # The axis is 150 high and begins at 48: 100 is at 48, 50 at 123, 0 at 198.
    assert curve(drawn({0: 0, 600: 50, 1200: 100}, {})) == "M46 198.0L163 123.0L279 48.0"


def test_curve_when_values_are_level_then_has_their_ends_alone() -> None:
    assert curve(drawn(dict.fromkeys(TIMES, 50.0), {})) == "M46 123.0L746 123.0"


def test_curve_when_a_series_was_not_there_then_has_a_gap() -> None:
    assert curve(drawn({0: 50, 600: 50, 2400: 0, 3000: 0}, {})) == "M46 123.0L163 123.0M513 198.0L629 198.0"


def test_curve_when_a_value_is_beyond_the_axis_then_ends_at_it() -> None:
    assert curve(drawn({0: 150, 600: -20}, {})) == "M46 48.0L163 198.0"


@pytest.mark.parametrize(
    ("hot", "spans"),
    [
        pytest.param({1200: 1, 1800: 1}, [(X[1200], X[2400])], id="until the first look at which it does not"),
        pytest.param({0: 1, 2400: 1}, [(X[0], X[600]), (X[2400], X[3000])], id="twice"),
        pytest.param({3000: 1, 3600: 1}, [(X[3000], X[3600])], id="to the end of the chart"),
        pytest.param({}, [], id="never"),
    ],
)
def test_alert_when_it_fires_then_row_and_panel_are_marked_so_long(
    hot: dict[int, float], spans: list[tuple[int, int]]
) -> None:
    picture = drawn({0: 0}, hot)

    for name in ("s warning", "r warning"):
        boxes = [(int(each.get("x", "")), int(each.get("width", ""))) for each in with_class(picture, name)]
        assert [start for start, _ in boxes] == [start for start, _ in spans]
        assert all(abs(start + width - end) <= 1 for (start, width), (_, end) in zip(boxes, spans, strict=True))
    assert ("GPU 5: GPUHot warning" + ("" if hot else " (never)")) in words(picture)


def test_chart_when_drawn_then_names_its_axes_and_what_it_is_made_from() -> None:
    picture = drawn({0: 0}, {})

    assert {"Heat & <air>", "heat", "limit", "0", "50", "100", "0 h", "1 h"} <= set(words(picture))
    assert "Story overheat of tests/simulator" in (picture.findtext("{http://www.w3.org/2000/svg}desc") or "")
    assert len(with_class(picture, "l d")) == 2  # the limit and its legend
    assert re.search(r"prefers-color-scheme:dark", picture.findtext("{http://www.w3.org/2000/svg}style") or "")
