"""Whatever an answer holds: it is numbers, or an error that says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remediator.clients.http import Answer, Neighbour
from remediator.clients.prometheus import MAX_BYTES, Prometheus
from remediator.errors import ActionError, InvalidTargetError, TransientActionError

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.sampled_from(["1", "NaN", "+Inf"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
SAMPLES = JSON | st.tuples(st.integers(), LEAVES)
SERIES = JSON | st.fixed_dictionaries({"value": SAMPLES}) | st.fixed_dictionaries({"histogram": JSON})
RESULTS = JSON | SAMPLES | st.lists(SERIES, max_size=3)
KINDS = JSON | st.sampled_from(["vector", "scalar", "matrix", "string"])
BODIES = (
    JSON
    | st.fixed_dictionaries({"status": JSON | st.just("success"), "data": JSON})
    | st.fixed_dictionaries(
        {
            "status": st.just("success"),
            "data": st.fixed_dictionaries({"resultType": KINDS, "result": RESULTS}),
        }
    )
    | st.fixed_dictionaries(
        {
            "status": st.just("error"),
            "errorType": JSON | st.sampled_from(["bad_data", "execution", "timeout"]),
            "error": JSON,
        }
    )
)


class Saying(Neighbour):
    """Answers as told, without a network."""

    __slots__ = ("answer",)
    answer: Answer

    def ask(self, *_: Any, **__: Any) -> Answer:
        return self.answer


def ask(status: int, body: Any) -> tuple[float, ...]:
    client = Prometheus("a", "http://a")
    saying = Saying(name="Prometheus a", url="http://a", settings="x", connect_s=1, answer_s=1, max_bytes=MAX_BYTES)
    object.__setattr__(saying, "answer", Answer(status=status, body=json.dumps(body).encode()))
    client._neighbour = saying
    return client.query("q")


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([200, 400, 422, 500, 503]), BODIES)
@example(400, {"status": "error", "errorType": ["bad_data"], "error": {}})
@example(200, {"status": "success", "data": {"resultType": [], "result": []}})
def test_query_when_anything_is_answered_then_numbers_or_an_error(status: int, body: Any) -> None:
    failed: ActionError | None = None
    values: tuple[float, ...] = ()
    try:
        values = ask(status, body)
    except ActionError as error:
        failed = error
    assert type(failed) in (type(None), TransientActionError, InvalidTargetError)
    assert len(str(failed)) < 500
    assert failed is not None or (status == 200 and body["data"]["resultType"] in ("vector", "scalar"))
    assert all(type(value) is float for value in values)


@pytest.mark.parametrize(
    "sample",
    ["51", {"1": 0, "2": 0}, [1], [1, "2", "3"], [1, 2], [1, None], [1, ""], [1, "1,5"], None],
    ids=["text", "a map", "no value", "three", "a number", "null", "empty", "a comma", "nothing"],
)
def test_query_when_a_sample_is_no_pair_of_time_and_text_then_no_number_is_made_of_it(sample: Any) -> None:
    with pytest.raises(TransientActionError, match="not as Prometheus answers"):
        ask(200, {"status": "success", "data": {"resultType": "scalar", "result": sample}})
