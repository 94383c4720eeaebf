from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.predicates.value_sets import (
    ALL,
    NONE,
    NULL,
    VALUES,
    Value,
    ValueSet,
    above,
    below,
    intersection,
    points,
    union,
)

#: Constants are even, so that every place between two of them has a value of its own.
_LINE: list[Value | None] = [*map(float, range(-1, 10)), None]

_simple = st.one_of(
    st.sampled_from([ALL, NONE, NULL, VALUES]),
    st.builds(below, st.sampled_from([0.0, 2.0, 4.0]), inclusive=st.booleans()),
    st.builds(above, st.sampled_from([2.0, 4.0, 8.0]), inclusive=st.booleans()),
    st.builds(points, st.lists(st.sampled_from([0.0, 2.0, 6.0]), max_size=3)),
)
SETS = st.recursive(
    _simple,
    lambda sets: st.one_of(
        st.builds(ValueSet.__or__, sets, sets),
        st.builds(ValueSet.__and__, sets, sets),
        sets.map(lambda s: s.complement),
        sets.map(lambda s: s.inverse),
        sets.map(lambda s: s.with_null),
    ),
    max_leaves=6,
)


def members(values: ValueSet) -> set[Value | None]:
    """The values of the line that are in the set, found cut by cut."""
    found: set[Value | None] = {None} if values.null else set()
    for value in _LINE:
        if value is not None:
            passed = sum(at < value or (at == value and not behind) for at, behind in values.cuts)
            if values.low != bool(passed % 2):
                found.add(value)
    return found


@given(one=SETS, other=SETS)
def test_sets_combine_as_sets_of_values(one: ValueSet, other: ValueSet) -> None:
    assert members(one | other) == members(one) | members(other)
    assert members(one & other) == members(one) & members(other)
    assert (one <= other) == (members(one) <= members(other))
    assert members(one.complement) == set(_LINE) - members(one)
    assert members(one.inverse) - {None} == set(_LINE) - members(one) - {None}
    assert one.inverse.null == one.null


@given(one=SETS, other=SETS)
def test_a_set_is_written_in_one_way(one: ValueSet, other: ValueSet) -> None:
    assert (one == other) == (members(one) == members(other))
    assert list(one.cuts) == sorted(set(one.cuts))
    assert (one.point is not None) == (len(members(one)) == 1 and len(one.cuts) == 2 and not one.low)


@given(sets=st.lists(SETS, max_size=6))
def test_many_sets_combine_as_two_do(sets: list[ValueSet]) -> None:
    assert members(union(sets)) == set().union(*map(members, sets))
    assert members(intersection(sets)) == set(_LINE).intersection(*map(members, sets))
