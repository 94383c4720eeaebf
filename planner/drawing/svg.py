"""A plan as an SVG picture: chains of slices, drawn to scale, with the windows of the queries below.

Unlike the plan graph, the picture shows lengths: how long windows are, and where slices end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from catalog.steps import stream_names
from catalog.values.plan import FamilyPlan, JoinPlan, Plan, Slice
from catalog.values.query import UNBOUNDED_US, Clock
from planner.families.families import SIDES, SideName, side_chain, side_window_us
from planner.families.texts.display import FamilyText, display_duration, display_interval, family_text

_WIDTH = 960
#: Begin and end of the axis, px.
_LEFT, _RIGHT = 250, 940
#: Length of the last part of the axis, px; only unbounded windows reach into it.
_ENDLESS = 60
_LINE, _SLICE = 18, 30
#: If a chain's shortest slice end is a smaller fraction of its longest one, the axis is logarithmic.
_NARROW = 0.004
#: Maximum number of lines under a chain, and of names on a line; further lines and names are only counted.
_MOST_LINES, _MOST_NAMES = 20, 3
#: Width of a letter, px; labels of slice ends are left out if they would overlap.
_LETTER = 7
_STYLE = (
    "text{font:12px sans-serif;fill:#1b1f24}.title{font-weight:bold;font-size:14px}.end{font-size:11px;"
    "fill:#57606a}.slice{fill:#cfe3f7;stroke:#1f5f99}.filtered{fill:#f6e3c3;stroke:#9a6700}.query{stroke:#1f5f99;"
    "stroke-width:3}.background{fill:#fff}"
)


def render_svg(plan: Plan) -> str:
    """Return a picture of a plan's chains.

    Each side of each join is drawn as a chain of slices from 0 to the longest window. Slices with a filter at
    their entry have another colour, and show the filter as a tooltip. Below the chain is a line for each
    window length, with the names of the queries that have this window. The axis of a chain measures time,
    rows or steps of an order. It is logarithmic if short lengths could not be seen otherwise.

    Args:
        plan: The plan.

    Returns:
        The SVG document, without a final line break.
    """
    root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    ElementTree.SubElement(root, "title").text = f"Plan version {plan.version}"
    ElementTree.SubElement(root, "style").text = _STYLE
    ElementTree.SubElement(root, "rect", {"class": "background", "width": "100%", "height": "100%"})
    picture = _Picture(root)
    streams = stream_names(plan)
    if not plan.families:
        picture.text("no queries", "title")
    for family in plan.families:
        _draw_family(picture, family, family_text(family, streams))
    height = picture.y + _LINE
    root.attrib |= {"width": str(_WIDTH), "height": str(height), "viewBox": f"0 0 {_WIDTH} {height}"}
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode")


class _Picture:
    """A picture to which lines are added from top to bottom.

    Args:
        root: SVG element to which the picture adds its elements.

    Attributes:
        y: Vertical position of the current line, px.
    """

    def __init__(self, root: ElementTree.Element) -> None:
        self._root = root
        self.y = 10

    def text(self, text: str, kind: str = "", x: int = 10, anchor: str = "start") -> None:
        """Write text on the current line; a title ends the line."""
        place = {"x": str(x), "y": str(self.y + 13), "text-anchor": anchor}
        self.add("text", place | ({"class": kind} if kind else {}), text)
        if kind == "title":
            self.y += _LINE + 6

    def add(self, name: str, attributes: dict[str, str], text: str | None = None) -> ElementTree.Element:
        """Add an element to the picture."""
        element = ElementTree.SubElement(self._root, name, attributes)
        element.text = text
        return element


@dataclass(frozen=True, slots=True)
class _Scale:
    """Axis of a chain: turns lengths into positions in the picture.

    Attributes:
        least: Shortest finite end of a slice.
        most: Longest finite end of a slice.
        endless: Whether the last slice is unbounded.
    """

    least: int
    most: int
    endless: bool

    @staticmethod
    def of(chain: Sequence[Slice]) -> _Scale:
        finite = [piece.w_end_us for piece in chain if piece.w_end_us < UNBOUNDED_US] or [1]
        return _Scale(finite[0], finite[-1], chain[-1].w_end_us >= UNBOUNDED_US)

    def at(self, length: int) -> int:
        """Return the horizontal position, px, of the end of a length that starts at 0."""
        if length >= UNBOUNDED_US:
            return _RIGHT
        share = length / self.most
        if self.least < _NARROW * self.most:
            share = math.log1p(length / self.least) / math.log1p(self.most / self.least)
        return _LEFT + round(min(share, 1.0) * (_RIGHT - _LEFT - (_ENDLESS if self.endless else 0)))


def _draw_family(picture: _Picture, family: FamilyPlan, text: FamilyText) -> None:
    picture.text(text.title, "title")
    for join in family.joins:
        for side in SIDES:
            chain = side_chain(join, side)
            if not chain:
                continue
            of = "" if len(family.joins) == 1 else f" of join {join.id}"
            picture.text(f"rows of {text.labels[side]}{of}")
            _draw_chain(picture, chain, family.clock(side), side, text)
            _draw_queries(picture, family, join, side, _Scale.of(chain))
            picture.y += 8


def _draw_chain(
    picture: _Picture, chain: Sequence[Slice], clock: Clock, side: SideName, text: FamilyText
) -> None:
    scale, taken = _Scale.of(chain), _LEFT
    picture.text("0", "end", _LEFT, "middle")
    for piece in chain:
        end = scale.at(piece.w_end_us)
        label = _length(piece.w_end_us, clock)
        if end - taken >= _LETTER * (len(label) + 1):
            picture.text(label, "end", min(end, _RIGHT - 8), "middle")
            taken = end
    picture.y += _LINE
    for piece in chain:
        start, end = scale.at(piece.w_start_us), scale.at(piece.w_end_us)
        place = {"x": start, "y": picture.y, "width": max(end - start, 1), "height": _SLICE}
        kind = "slice" if piece.keep is None else "slice filtered"
        box = picture.add("rect", {"class": kind} | {name: str(value) for name, value in place.items()})
        told = display_interval(piece, clock)
        if piece.keep is not None:
            told += f", keeps {text.keep(side, piece.keep)}"
        ElementTree.SubElement(box, "title").text = told
    picture.y += _SLICE + 6


def _draw_queries(
    picture: _Picture, family: FamilyPlan, join: JoinPlan, side: SideName, scale: _Scale
) -> None:
    lines = list(_windows(family, join, side))
    for window, names in lines[:_MOST_LINES]:
        picture.text(names, x=_LEFT - 10, anchor="end")
        ends = {"x1": _LEFT, "x2": max(scale.at(window), _LEFT + 2), "y1": picture.y + 9, "y2": picture.y + 9}
        picture.add("line", {"class": "query"} | {name: str(value) for name, value in ends.items()})
        picture.y += _LINE
    if len(lines) > _MOST_LINES:
        picture.text(f"and {len(lines) - _MOST_LINES:,} more windows", x=_LEFT - 10, anchor="end")
        picture.y += _LINE


def _windows(family: FamilyPlan, join: JoinPlan, side: SideName) -> Iterator[tuple[int, str]]:
    """Yield each window of a join's queries that holds rows, shortest first, with the queries' names."""
    found: dict[int, list[str]] = {}
    for query, reached in family.slices_reached(join, side):
        if reached:
            found.setdefault(side_window_us(query, side), []).append(query.name)
    for window, names in sorted(found.items()):
        shown = ", ".join(_short(name) for name in names[:_MOST_NAMES])
        yield window, f"{shown} +{len(names) - _MOST_NAMES:,}" if len(names) > _MOST_NAMES else shown


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}…"


def _length(end: int, clock: Clock) -> str:
    if end >= UNBOUNDED_US:
        return "no end"
    return display_duration(end) if clock == "time" else f"{end:,}"
