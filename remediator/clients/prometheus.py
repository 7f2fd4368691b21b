"""Prometheus' API, asked for numbers: the adapter of ``ports.PrometheusReader``.

Takes a query → the value of each series that it gives now. It asks and never writes, and it never guesses: what is no
number, and what is no proper answer, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from remediator.clients.http import STATUSES, Failed, Login, Neighbour
from remediator.core.units import cut
from remediator.errors import InvalidTargetError

CONNECT_S: Final = 5.0
"""One in the same data centre accepts within milliseconds; above this it is away."""

ANSWER_S: Final = 5.0
"""A query that takes longer is too dear to be asked every 15 seconds for each run."""

MAX_BYTES: Final = 8 * 2**20
"""One series is meant. This takes ten thousand, whose number is then told; more is not read."""

FORM: Final[Mapping[str, str]] = {
    # Given up by the server too, a moment before we stop waiting: it says so, and does not go on for nobody.
    "timeout": "4500ms",
    # Of what merges several stores (Thanos, VictoriaMetrics): half an answer looks like a fix. Prometheus reads none.
    "partial_response": "false",
    "deny_partial_response": "1",
}

BAD_QUERY: Final = frozenset({"bad_data", "execution"})
"""``errorType`` of a query that cannot be read or carried out, as no other attempt would change; with 400 and 422."""

ABOUT_QUERY = "PromQL "
"""How those of an answer's ``warnings`` begin that speak of the query alone: ``PromQL info``, ``PromQL warning``."""

_VENDOR_TEXT = 300


class Prometheus:
    """One Prometheus, or what answers like one. Thread-safe; connects at each call.

    Args:
        name: in the settings.
        url: base, with the path where it has one.

    Source: Prometheus HTTP API v1, POST /api/v1/query, and its table of errorType and status (2.42 to 3.5); storage's
        fanout, whose errors of secondary storages become warnings; util/annotations.
    """

    def __init__(self, name: str, url: str, login: Login | None = None) -> None:
        self._neighbour = Neighbour(
            name=f"Prometheus {name}",
            url=url.rstrip("/"),
            settings=f"prometheus.servers.{name}",
            connect_s=CONNECT_S,
            answer_s=ANSWER_S,
            max_bytes=MAX_BYTES,
            login=login or Login(),
        )

    def query(self, promql: str, *, name: str = "") -> tuple[float, ...]:  # noqa: ARG002 - playbook tests answer by it
        """See ``ports.PrometheusReader.query``."""
        answer = self._neighbour.ask("POST", "/api/v1/query", form={"query": promql, **FORM})
        body = answer.json()
        if answer.status != 200:
            self._refuse(answer.status, body)
        try:
            if body["status"] != "success":
                raise KeyError("status")
            self._refuse_half(body.get("warnings") or ())
            return self._values(body["data"]["resultType"], body["data"]["result"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._neighbour.no_answer(Failed.BROKEN, "not as Prometheus answers") from error

    def _refuse_half(self, warnings: Sequence[object]) -> None:
        """Raise where a store that was asked too did not answer: what is left looks like a fix.

        A server with ``remote_read``, or in front of several stores, says so beside a result of what it has.
        """
        told = [str(one) for one in warnings if not str(one).startswith(ABOUT_QUERY)]
        if told:
            raise self._neighbour.no_answer(Failed.BROKEN, f"perhaps half of one: {cut(told[0], _VENDOR_TEXT)}")

    def _values(self, kind: Any, result: Any) -> tuple[float, ...]:
        match kind:
            case "scalar":
                return (_number(result),)
            case "vector":
                if any("histogram" in series for series in result):
                    raise self._bad_query("it gives a histogram, and a condition needs a number")
                return tuple(_number(series["value"]) for series in result)
            case "matrix":
                raise self._bad_query("it gives a range of values, and a condition needs one: max_over_time(…[5m])")
            case "string":
                raise self._bad_query("it gives text, and a condition needs a number")
            case _:
                raise KeyError("resultType")

    def _refuse(self, status: int, body: Any) -> None:
        """Raise what an answer other than 200 says."""
        says = body if isinstance(body, dict) and body.get("status") == "error" else {}
        kind, text = str(says.get("errorType", "")), cut(str(says.get("error", "")), _VENDOR_TEXT)
        if status in (400, 422) and kind in BAD_QUERY:
            raise self._bad_query(text)
        what = f"HTTP {status}: {text}" if text else f"HTTP {status}"
        if kind == "timeout":
            raise self._neighbour.no_answer(Failed.SILENT, what)
        raise self._neighbour.no_answer(STATUSES.get(status, Failed.BROKEN), what)

    def _bad_query(self, why: str) -> InvalidTargetError:
        return InvalidTargetError(f"{self._neighbour.name} cannot use the query: {why}", target=self._neighbour.url)


def _number(sample: Any) -> float:
    """Of ``[time, "text"]``; the text is Go's: ``+Inf``, ``NaN`` and ``1e+06`` among them."""
    match sample:
        case [int() | float(), str() as text]:
            return float(text)
        case _:
            raise TypeError("a sample is a time and text")
