"""What is asked over HTTP: what a failure is called, and what is made of a body."""

from __future__ import annotations

import pytest

from remediator.clients.http import STATUSES, Answer, Failed, Login, Neighbour
from remediator.errors import AccessDeniedError, TransientActionError

NEIGHBOUR = Neighbour(
    name="N", url="http://n", settings="n.s", connect_s=1, answer_s=1, max_bytes=1, login=Login(token=lambda: "s3cr3t")
)


@pytest.mark.parametrize("failed", Failed)
def test_no_answer_when_it_failed_so_then_only_a_refusal_is_for_good(failed: Failed) -> None:
    error = NEIGHBOUR.no_answer(failed, "why")
    assert type(error) is (AccessDeniedError if failed is Failed.DENIED else TransientActionError)
    assert str(error).startswith(f"N at http://n {failed.value} (why)")
    assert "s3cr3t" not in str(error)


def test_statuses_when_read_then_a_403_and_a_time_out_never_look_alike() -> None:
    assert {status: failed.name for status, failed in STATUSES.items()} == {
        401: "DENIED",
        403: "DENIED",
        407: "DENIED",
        408: "SILENT",
        502: "AWAY",
        503: "AWAY",
        504: "SILENT",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 200_000, b"1" * 5000],
    ids=["nothing", "cut off", "no text", "nested", "a number without end"],
)
def test_json_when_the_body_is_none_then_none(body: bytes) -> None:
    assert Answer(status=200, body=body).json() is None
