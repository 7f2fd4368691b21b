"""What other playbooks would change for a delivery: two answers of ``dry_run`` about it → what is new, gone, different.

Runs are told apart by playbook, case and ``per`` values. Compared is what was decided: what the world says now (the
state of a target, the value of a condition, the size of a fleet) may change between two looks, and is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_OF_NOW = frozenset({"run_id", "now", "fleets", "problem"})
"""Not compared: what the world says now, and the run's id, which follows from what tells runs apart."""

_TEXT_OF_THE_PLAYBOOK = frozenset({"params", "per"})
"""Maps whose keys are not ours."""

_SAYS_VALUES = frozenset({"require", "targets"})
"""Rules whose detail quotes the world's own answers."""

Key = tuple[str, str, tuple[tuple[str, str], ...]]


def difference(was: Mapping[str, Any], would_be: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two dry runs of one delivery.

    Args:
        was: with the running set.
        would_be: with the other one.

    Returns:
        ``differs``; ``alerts``, each with ``new`` (runs as ``dry_run`` shows them), ``gone`` (which, and why not any
        more), ``different`` (which, and ``changes``: what, was, would_be; None = not there) and ``n_same``; and
        ``bad_alerts``.
    """
    alerts = [_alert(before, after) for before, after in zip(was["alerts"], would_be["alerts"], strict=True)]
    return {
        "differs": any(alert["new"] or alert["gone"] or alert["different"] for alert in alerts),
        "alerts": alerts,
        "bad_alerts": would_be["bad_alerts"],
    }


def _alert(was: Mapping[str, Any], would_be: Mapping[str, Any]) -> dict[str, Any]:
    before = {_key(match): match for match in was["matches"]}
    after = {_key(match): match for match in would_be["matches"]}
    both = [(match, after[key]) for key, match in before.items() if key in after]
    changes = [(match, _changes(_decided(match), _decided(other))) for match, other in both]
    different = [{**_which(match), "changes": found} for match, found in changes if found]
    shown = {name: would_be[name] for name in ("labels", "fingerprint", "status", "problem") if name in would_be}
    return {
        **shown,
        "new": [match for key, match in after.items() if key not in before],
        "gone": [
            {**_which(match), "why": _why_gone(match, would_be)} for key, match in before.items() if key not in after
        ],
        "different": different,
        "n_same": len(both) - len(different),
    }


def _key(match: Mapping[str, Any]) -> Key:
    return match["playbook"], match["case"], tuple(sorted(match["per"].items()))


def _which(match: Mapping[str, Any]) -> dict[str, Any]:
    return {name: match[name] for name in ("playbook", "case", "per")}


def _why_gone(match: Mapping[str, Any], would_be: Mapping[str, Any]) -> list[str]:
    name = match["playbook"]
    for other in would_be["not_matched"]:
        if other["playbook"] == name:
            return list(other["why"])
    for other in would_be["matches"]:
        if other["playbook"] == name and other["case"] != match["case"]:
            return [f"its case {other['case']} applies" if other["case"] else "none of its cases applies"]
        if other["playbook"] == name:
            return ["its runs are about other values"]
    return ["there is no such playbook any more"]


def _decided(value: Any) -> Any:
    """Without what the world says now; targets by their refs, rules by their names."""
    match value:
        case {"ref": ref, "uid": _}:
            return ref
        case {"word": word, "trips": trips, "answers": answers}:
            return {"word": word, "trips": trips, "rules": _rules(answers)}
        case Mapping():
            return {
                name: item if name in _TEXT_OF_THE_PLAYBOOK else _decided(item)
                for name, item in value.items()
                if name not in _OF_NOW
            }
        case list() | tuple():
            return [_decided(item) for item in value]
        case _:
            return value


def _rules(answers: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """Rule → what it says, in words: some speak more than once."""
    said: dict[str, list[str]] = {}
    for answer in answers:
        reason = f" ({answer['reason']})" if answer["word"] != "allow" else ""
        detail = f": {answer['detail']}" if answer["detail"] and answer["rule"] not in _SAYS_VALUES else ""
        until = f", until {answer['lifts_at'][:19]}Z" if answer["lifts_at"] else ""
        said.setdefault(answer["rule"], []).append(f"{answer['word']}{reason}{detail}{until}")
    return said


def _changes(was: Any, would_be: Any, what: str = "") -> list[dict[str, Any]]:
    """Each place that differs: ``steps.restart.params.container``, and what stands there."""
    if was == would_be:
        return []
    if isinstance(was, Mapping) and isinstance(would_be, Mapping):
        return _of_parts(was, would_be, what)
    if isinstance(was, list) and isinstance(would_be, list):
        before, after = _by_name(was), _by_name(would_be)
        if before is not None and after is not None:
            order, new_order = ([name for name in one if name in before and name in after] for one in (before, after))
            moved = [{"what": f"{what} in order", "was": order, "would_be": new_order}] if order != new_order else []
            return [*_of_parts(before, after, what), *moved]
    return [{"what": what, "was": was, "would_be": would_be}]


def _of_parts(was: Mapping[str, Any], would_be: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    names = [*was, *(name for name in would_be if name not in was)]
    return [
        change
        for name in names
        for change in _changes(was.get(name), would_be.get(name), f"{what}.{name}" if what else name)
    ]


def _by_name(items: Sequence[Any]) -> dict[str, Any] | None:
    """Steps and checks by what people call them; None where they are no such things."""
    named: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, Mapping):
            return None
        name = item.get("name", "alert" if "alert" in item else None)
        if not isinstance(name, str) or name in named:
            return None
        named[name] = item
    return named
