from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.segments.encoding.view_names import (
    CUT,
    KEPT,
    LINEAGE,
    cut_bounds,
    cut_name,
    part_name,
    part_of,
    patched_name,
    steps,
    stored_id,
    stored_ids,
)

BASE = "c0ffee.3.17.4"


def test_a_stored_segment_is_made_of_itself() -> None:
    assert (stored_id(BASE), stored_ids(BASE), steps(BASE)) == (BASE, (BASE,), [])


def test_a_view_is_made_of_its_rows_and_its_patches() -> None:
    cut = cut_name(BASE, -30, 40)
    part = part_name("c0ffee.3.20.9", 5)
    view = patched_name(cut, part, part_name("c0ffee.3.20.9", 0))
    assert part_of(view, part) == ("c0ffee.3.20.9", 5)
    later = patched_name(view, part_name("c0ffee.3.21.0", 1), None)
    assert stored_id(later) == BASE
    assert stored_ids(later) == (BASE, "c0ffee.3.20.9", "c0ffee.3.21.0")


def test_lineage_given_anew_takes_the_place_of_the_former() -> None:
    view = patched_name(BASE, None, "20.9:0")
    assert patched_name(view, None, "21.0:3") == f"{BASE}=21.0:3"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(CUT), st.tuples(st.integers(-9, 9), st.integers(-9, 9))),
            st.tuples(st.sampled_from([KEPT, LINEAGE]), st.integers(0, 99)),
        ),
        max_size=12,
    )
)
def test_no_cut_follows_a_cut_and_lineage_is_given_once(
    made: list[tuple[str, tuple[int, int] | int]],
) -> None:
    """A cut after a cut keeps what both keep, also where only other lineage stood between them."""
    name, cuts = BASE, [(-99, 99)]
    for kind, facts in made:
        if isinstance(facts, tuple):
            name = cut_name(name, *facts)
            cuts.append(facts)
        else:
            part = f"20.9:{facts}"
            name = patched_name(name, part if kind == KEPT else None, part if kind == LINEAGE else None)
    kinds = "".join(kind for kind, _ in steps(name))
    assert kinds.count(LINEAGE) == min(1, sum(kind == LINEAGE for kind, _ in made))
    assert kinds.count(KEPT) == sum(kind == KEPT for kind, _ in made)
    assert CUT + CUT not in kinds
    bounds = [cut_bounds(facts) for kind, facts in steps(name) if kind == CUT]
    for t in range(-10, 11):
        assert all(a <= t < b for a, b in bounds) == all(a <= t < b for a, b in cuts)
