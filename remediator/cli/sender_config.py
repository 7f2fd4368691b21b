"""Does an Alertmanager's configuration deliver to us, and as it should? Pure: ``doctor`` fetches the text.

Takes → gives: ``config.original`` of Alertmanager's API, our addresses, ``expire_after`` → findings.

Source: Alertmanager configuration, ``webhook_config``, ``http_config`` and ``route``; defaults of 0.25 to 0.34.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from remediator.cli.finding import Finding, ok, problem, warning
from remediator.cli.terminal import shown_url
from remediator.core.units import parse_duration, print_duration
from remediator.loading.document import read_documents

WEBHOOK_PATH = "/api/v1/alertmanager"

_HIDDEN = "<secret>"
"""How Alertmanager from 0.26 on shows every webhook's address."""

_DEFAULT_REPEAT = timedelta(hours=4)
"""Alertmanager's own ``repeat_interval``; its API leaves out what the file leaves out."""


def judge_sender(check: str, text: str, our_urls: tuple[str, ...], expire_after: timedelta) -> Iterator[Finding]:
    """What is right and wrong for us in an Alertmanager's configuration.

    Args:
        check: how the findings are headed.
        text: the configuration as its API shows it, YAML.
        our_urls: addresses under which the engine is known.
        expire_after: the setting.
    """
    # Not ruamel's own loader: that raises whatever Python raises where a tag or a date is not what it says.
    documents, problems = read_documents("", text.encode("utf-8", "replace"))
    config = documents[0].root.plain() if documents and not problems else None
    if not isinstance(config, Mapping):
        yield warning(check, "its configuration cannot be read", "look at its receivers by hand")
        return
    webhooks = [
        (str(receiver.get("name", "")), webhook)
        for receiver in _maps(config.get("receivers"))
        for webhook in _maps(receiver.get("webhook_configs"))
    ]
    ours = [(name, webhook) for name, webhook in webhooks if _has_our_path(webhook)]
    hidden = [(name, webhook) for name, webhook in webhooks if webhook.get("url") == _HIDDEN or "url_file" in webhook]
    names = sorted({name for name, _ in ours or hidden})
    if ours:
        yield ok(check, f"receiver {', '.join(names)} delivers to us")
        yield from _judge_addresses(check, ours, our_urls)
    elif hidden:
        yield warning(
            check,
            f"has webhook receivers ({', '.join(names)}) but hides their addresses",
            f"make sure that one of them has url: {our_urls[0]}{WEBHOOK_PATH} (or url_file with it)",
        )
    else:
        yield problem(
            check,
            "has no receiver whose webhook points at us",
            f"add one with url: {our_urls[0]}{WEBHOOK_PATH}, and a route to it",
        )
        return
    found = [finding for name, webhook in ours or hidden for finding in _judge_webhook(check, name, webhook)]
    found += _judge_routes(check, config, set(names), expire_after)
    is_guess = not ours and len(hidden) > 1
    yield from (_softened(finding) if is_guess else finding for finding in found)


def _softened(finding: Finding) -> Finding:
    """Of a receiver that may be another's: nobody can tell by the configuration whether it is a problem of ours."""
    return warning(finding.check, finding.text, f"if it is ours: {finding.advice}")


def _judge_addresses(
    check: str, webhooks: list[tuple[str, Mapping[str, Any]]], our_urls: tuple[str, ...]
) -> Iterator[Finding]:
    known = {urlsplit(url).netloc for url in our_urls}
    for name, webhook in webhooks:
        url = shown_url(str(webhook["url"]))
        if urlsplit(url).netloc not in known:
            yield warning(
                check,
                f"receiver {name} delivers to {url}, and we know ourselves as {', '.join(our_urls)}",
                "make sure that both are one engine; public_url says how others reach it",
            )


def _judge_webhook(check: str, name: str, webhook: Mapping[str, Any]) -> Iterator[Finding]:
    if webhook.get("send_resolved") is False:
        yield problem(
            check,
            f"receiver {name} has send_resolved: false, so that we never hear that an alert is over",
            "set send_resolved: true",
        )
    http = webhook.get("http_config")
    if not isinstance(http, Mapping) or http.get("follow_redirects") is not False:
        yield warning(
            check,
            f"receiver {name} follows redirects: one login page in between, and alerts count as delivered but are lost",
            "set http_config: {follow_redirects: false}",
        )
    if webhook.get("max_alerts"):
        yield warning(
            check,
            f"receiver {name} cuts groups at max_alerts: {webhook['max_alerts']}; what is cut may never come",
            "leave max_alerts out",
        )


def _judge_routes(
    check: str, config: Mapping[str, Any], receivers: set[str], expire_after: timedelta
) -> Iterator[Finding]:
    repeats = [
        repeat for receiver, repeat in _routes(config.get("route"), "", _DEFAULT_REPEAT) if receiver in receivers
    ]
    if not repeats:
        yield problem(
            check,
            f"no route leads to the receiver {', '.join(sorted(receivers))}",
            "add a route to it; amtool config routes",
        )
    elif expire_after <= 2 * max(repeats):
        yield problem(
            check,
            f"repeats an alert after {print_duration(max(repeats))}, and an alert expires here after "
            f"{print_duration(expire_after)} without a word",
            "set expire_after above twice the repeat_interval, or the repeat_interval lower",
        )


def _routes(route: object, receiver: str, repeat: timedelta) -> Iterator[tuple[str, timedelta]]:
    """Every route's receiver and ``repeat_interval``, inherited from above where it has none."""
    if not isinstance(route, Mapping):
        return
    receiver = str(route.get("receiver") or receiver)
    repeat = _duration(route.get("repeat_interval")) or repeat
    yield receiver, repeat
    for child in _maps(route.get("routes")):
        yield from _routes(child, receiver, repeat)


def _duration(text: object) -> timedelta | None:
    """None for what is absent or no duration."""
    try:
        return parse_duration(str(text))
    except ValueError:
        return None


def _has_our_path(webhook: Mapping[str, Any]) -> bool:
    return urlsplit(str(webhook.get("url", ""))).path.rstrip("/").endswith(WEBHOOK_PATH)


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
