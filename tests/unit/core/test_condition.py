"""What a reading says of a condition: absent is never good."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.core.condition import Comparison, Condition, Reading, Seen, look, number_that, read_back

BOUNDS = st.one_of(
    st.integers(-(10**6), 10**6).map(str), st.sampled_from(["0.8", "1e3", "-0.5"]), st.floats(allow_nan=False).map(str)
)
CONDITIONS = st.builds(
    Condition, name=st.just("x"), query=st.just("q"), comparison=st.sampled_from(Comparison), bound=BOUNDS
)


def condition(comparison: str, bound: str, name: str = "ratio") -> Condition:
    return Condition(name=name, query="q", comparison=Comparison(comparison), bound=bound)


@pytest.mark.parametrize(
    ("comparison", "bound", "value", "seen"),
    [
        ("below", "0.8", 0.79, Seen.MET),
        ("below", "0.8", 0.8, Seen.NOT_MET),
        ("below", "0.8", 0.81, Seen.NOT_MET),
        ("above", "0", 0.1, Seen.MET),
        ("above", "0", 0.0, Seen.NOT_MET),
        ("above", "0", math.inf, Seen.MET),
        ("equals", "1", 1.0, Seen.MET),
        ("equals", "1", 0.999999999, Seen.NOT_MET),
        ("equals", "1e3", 1000.0, Seen.MET),
        ("below", "82", -math.inf, Seen.MET),
    ],
)
def test_look_when_there_is_one_number_then_it_is_compared(
    comparison: str, bound: str, value: float, seen: Seen
) -> None:
    assert look(condition(comparison, bound), Reading(values=(value,)))[0] is seen


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (Reading(values=(1.03,)), "ratio is 1.03, must be below 0.8"),
        (Reading(values=(1.0,)), "ratio is 1, must be below 0.8"),
        (Reading(values=(5000,)), "ratio is 5000, must be below 0.8"),
        (Reading(values=(1 / 3,)), "ratio is 0.333333, must be below 0.8"),
        (Reading(values=(0.8000000001,)), "ratio is 0.8, must be below 0.8"),
        (Reading(values=(0.7999999999,)), "ratio is 0.7999999999, must be below 0.8"),
        (Reading(values=(1772366400.0,)), "ratio is 1772366400, must be below 0.8"),
        (Reading(values=(1e300,)), "ratio is 1e+300, must be below 0.8"),
        (Reading(values=(math.inf,)), "ratio is inf, must be below 0.8"),
        (Reading(), "ratio has no value, must be below 0.8"),
        (Reading(values=(1.0, 2.0)), "ratio has 2 values where one is meant, must be below 0.8"),
        (Reading(values=(math.nan,)), "ratio is NaN, must be below 0.8"),
        (Reading(problem="away"), "ratio has no answer: away"),
    ],
    ids=lambda value: "" if isinstance(value, Reading) else value,
)
def test_look_when_read_by_people_then_it_says_the_number_and_what_it_must_be(reading: Reading, says: str) -> None:
    assert look(condition("below", "0.8"), reading)[1] == says


@given(CONDITIONS, st.floats(allow_nan=False))
def test_look_when_its_number_is_said_then_the_text_never_belies_the_verdict(one: Condition, value: float) -> None:
    seen, says = look(one, Reading(values=(value,)))
    said = float(says.split(" is ")[1].split(",")[0])
    assert one.is_met(said) is (seen is Seen.MET)


@given(CONDITIONS, st.lists(st.floats(), max_size=3), st.sampled_from(["", "away"]))
def test_look_when_there_is_no_one_number_then_it_is_never_met(
    one: Condition, values: list[float], problem: str
) -> None:
    seen, says = look(one, Reading(values=tuple(values), problem=problem))
    is_known = not problem and len(values) == 1 and not math.isnan(values[0])
    assert (seen is not Seen.NO_VALUE) is is_known
    assert says.startswith("x ")


@given(st.sampled_from(Comparison), BOUNDS)
def test_is_met_when_it_is_no_number_then_never(comparison: Comparison, bound: str) -> None:
    assert not Condition(name="x", query="q", comparison=comparison, bound=bound).is_met(math.nan)


@given(CONDITIONS, st.lists(st.floats(), max_size=3), st.sampled_from(["", "away: the server is gone"]))
def test_words_when_read_back_then_they_are_said_of_that_reading_too(
    one: Condition, values: list[float], problem: str
) -> None:
    said = look(one, Reading(values=tuple(values), problem=problem))
    again = read_back(one, *said)
    assert again is not None
    assert look(one, again) == said


@pytest.mark.parametrize(
    ("seen", "detail", "reading"),
    [
        pytest.param(None, "exporter_up is 0, must be 1; ratio is 0.5, must be below 0.8", (0.5,), id="among others"),
        pytest.param(
            None, "memory_ratio is 3, must be below 9; ratio is 0.5, must be below 0.8", (0.5,), id="of its own name"
        ),
        pytest.param(Seen.NO_VALUE, "cut", (), id="cut, and there was no value"),
        pytest.param(Seen.MET, "ratio is 0.", (-0.2,), id="cut, and it was met"),
        pytest.param(Seen.NOT_MET, "", (1.8,), id="nothing said, and it was not met"),
        pytest.param(None, "", None, id="nothing said, and nothing known"),
    ],
)
def test_words_when_they_do_not_stand_alone_then_what_is_known_is_read(
    seen: Seen | None, detail: str, reading: tuple[float, ...] | None
) -> None:
    found = read_back(condition("below", "0.8"), seen, detail)
    assert (None if found is None else found.values) == (None if reading is None else pytest.approx(reading))


@given(CONDITIONS.filter(lambda one: abs(float(one.bound)) < 1e300), st.booleans())
def test_number_when_one_is_wanted_that_fits_or_does_not_then_it_does_so(one: Condition, is_met: bool) -> None:
    assert one.is_met(number_that(one, is_met=is_met)) is is_met
