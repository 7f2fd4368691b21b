"""``doctor``: each check against something that is right, and something that is wrong."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import remediator
from remediator.cli import cli
from remediator.cli.doctor_local import check_clock, check_rights, check_settings, check_sqlite, check_store
from remediator.cli.doctor_network import (
    check_alertmanager,
    check_docker,
    check_fleets,
    check_prometheus,
    check_receiver,
    our_urls,
    server_at,
)
from remediator.cli.finding import Finding
from remediator.settings import Settings, load_settings
from remediator.store.engine import open_store

OK, WARNING, PROBLEM = "ok", "warning", "problem"
Serving = Callable[..., str]


def settings(**overrides: Any) -> Settings:
    """Settings without a file."""
    return load_settings(environ={}, overrides=overrides)


def said(findings: Iterable[Finding]) -> list[str]:
    """Level and text of each; whatever is not ok has an advice."""
    found = list(findings)
    assert [finding.text for finding in found if finding.level != OK and not finding.advice] == []
    return [f"{finding.level} {finding.text}" for finding in found]


QUERY, BUILDINFO = ("POST", "/api/v1/query"), ("GET", "/api/v1/status/buildinfo")


def gives(*values: str) -> dict[tuple[str, str], tuple[int, dict[str, str], bytes]]:
    """Routes of a Prometheus whose every query gives these values."""
    result = [{"metric": {}, "value": [1, value]} for value in values]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return {QUERY: (200, {}, json.dumps(body).encode())}


def with_fleet(url: str) -> Settings:
    """Settings whose one fleet is asked of a Prometheus there."""
    servers = {"a": {"url": url}}
    return settings(prometheus={"servers": servers}, fleets={"gpus": {"kind": "gpu", "query": "count(up)"}})


# -- this machine


@pytest.mark.parametrize(
    ("version", "level"),
    [
        pytest.param((3, 40, 1), WARNING, id="an old one"),
        pytest.param((3, 44, 5), WARNING, id="the last before the first backport"),
        pytest.param((3, 44, 6), OK, id="the first backport"),
        pytest.param((3, 45, 0), WARNING, id="newer than the first backport, without it"),
        pytest.param((3, 50, 6), WARNING, id="the last before the second backport"),
        pytest.param((3, 50, 7), OK, id="the second backport"),
        pytest.param((3, 51, 2), WARNING, id="the last before it was mended"),
        pytest.param((3, 51, 3), OK, id="mended"),
        pytest.param((3, 52, 0), OK, id="later"),
        pytest.param((4, 0, 0), OK, id="much later"),
    ],
)
def test_sqlite_when_it_loses_pages_then_warns_and_says_why_it_is_safe_here(
    version: tuple[int, int, int], level: str
) -> None:
    finding = check_sqlite(version)

    assert finding.level == level
    assert ("one writing connection" in finding.advice) is (level == WARNING)


def test_clock_when_before_the_installation_then_is_a_problem(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    later = site / "later.py"
    later.touch()
    os.utime(later, (time.time() + 3600, time.time() + 3600))
    monkeypatch.setattr(remediator, "__file__", str(later))

    (text,) = said(check_clock())

    assert text.startswith("problem says ")


def test_settings_when_nobody_is_configured_then_warns_of_open_doors_and_silent_ends() -> None:
    assert [text.split()[0] for text in said(check_settings(settings()))] == [OK, WARNING, WARNING]


def test_settings_when_a_file_is_missing_then_is_a_problem() -> None:
    found = said(check_settings(settings(auth={"tokens": [{"name": "am", "roles": ["deliver"], "file": "none"}]})))

    assert found[0] == "problem auth.tokens, am: none cannot be read: No such file or directory"


def store_of(site: Path) -> Settings:
    """Settings whose store exists."""
    made = settings(store_url=f"sqlite:///{site}/store.db")
    open_store(made.store_url).close()
    return made


def only_store(found: Iterable[Finding]) -> list[str]:
    """Without what is said of SQLite's version."""
    return said(finding for finding in found if finding.check == "store")


def test_store_when_whole_then_is_ok_and_unchanged(site: Path) -> None:
    made = store_of(site)
    before = (site / "store.db").read_bytes()

    assert [text.split(": ")[1].split(",")[0] for text in only_store(check_store(made))] == ["whole"]
    assert (site / "store.db").read_bytes() == before


def test_store_when_an_engine_has_it_then_is_read_all_the_same(site: Path) -> None:
    made = settings(store_url=f"sqlite:///{site}/store.db")
    store = open_store(made.store_url)
    try:
        assert [text.split()[0] for text in only_store(check_store(made))] == [OK]
    finally:
        store.close()


def test_store_when_not_there_then_its_folder_must_be_writable(site: Path) -> None:
    assert only_store(check_store(settings(store_url=f"sqlite:///{site}/sub/store.db"))) == [
        "ok not there yet; the engine will make it"
    ]
    assert not (site / "sub").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param("DROP TRIGGER audit_no_delete", "trigger audit_no_delete is not as", id="a trigger dropped"),
        pytest.param("UPDATE alembic_version SET version_num = '9999'", "newer version", id="a newer schema"),
        pytest.param("PRAGMA application_id = 7", "another program", id="another program's file"),
    ],
)
def test_store_when_changed_by_others_then_is_a_problem(spoil: str, words: str, site: Path) -> None:
    made = store_of(site)
    connection = sqlite3.connect(site / "store.db")
    connection.execute(spoil)
    connection.commit()
    connection.close()

    (text,) = only_store(check_store(made))

    assert text.startswith(PROBLEM)
    assert words in text


def test_store_when_damaged_then_is_a_problem(site: Path) -> None:
    made = store_of(site)
    file = site / "store.db"
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)

    (text,) = only_store(check_store(made))

    assert text.startswith(PROBLEM)


def test_store_when_somebody_else_looks_then_says_as_whom_to_look(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = store_of(site)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # root, who runs the tests, may read everything

    (text,) = only_store(check_store(made))

    assert text == f"problem {made.store_path} is not this user's to read"


def test_rights_when_private_then_is_ok(site: Path) -> None:
    assert said(check_rights(store_of(site), None)) == ["ok the database and the files with secrets are private"]


@pytest.mark.parametrize(
    ("mode", "is_problem"),
    [
        pytest.param(0o600, False, id="private"),
        pytest.param(0o640, True, id="group"),
        pytest.param(0o604, True, id="all"),
    ],
)
def test_rights_when_others_can_read_the_database_then_is_a_problem(mode: int, is_problem: bool, site: Path) -> None:
    made = store_of(site)
    (site / "store.db").chmod(mode)

    assert [text.startswith(PROBLEM) for text in said(check_rights(made, None))] == [is_problem]


@pytest.mark.parametrize(
    ("mode", "is_problem"),
    [pytest.param(0o640, False, id="group"), pytest.param(0o644, True, id="all")],
)
def test_rights_when_everybody_can_read_a_secret_then_is_a_problem(mode: int, is_problem: bool, site: Path) -> None:
    for name in ("token", "password", "urls", "key", "docker-key", "am-password", "site.toml"):
        (site / name).touch()
        (site / name).chmod(mode)
    made = settings(
        store_url=f"sqlite:///{site}/store.db",
        auth={
            "tokens": [{"name": "am", "roles": ["deliver"], "file": "token"}],
            "basic": [{"username": "am", "roles": ["deliver"], "password_file": "password"}],
        },
        notify={"file": {"urls_file": "urls"}, "inline": {"urls": ["json://localhost"]}},
        docker={"hosts": {"gpu-07": {"url": "tcp://gpu-07:2376", "tls_cert": "c", "tls_key": "docker-key"}}},
        alertmanager={"username": "engine", "password_file": "am-password"},
        tls_cert="c",
        tls_key="key",
    )

    found = [text for text in said(check_rights(made, Path("site.toml"))) if text.startswith(PROBLEM)]

    assert len(found) == (7 if is_problem else 0)


def test_rights_when_a_notification_address_is_a_scheme_alone_then_the_settings_hold_no_secret(site: Path) -> None:
    (site / "site.toml").touch(0o644)
    made = settings(store_url=f"sqlite:///{site}/store.db", notify={"here": {"urls": ["syslog://"]}})

    assert not [text for text in said(check_rights(made, Path("site.toml"))) if text.startswith(PROBLEM)]


@pytest.mark.parametrize(
    ("mode", "is_problem"),
    [
        pytest.param(0o755, False, id="others may look"),
        pytest.param(0o775, True, id="the group may write"),
        pytest.param(0o1777, True, id="all may write and only the owner remove"),
    ],
)
def test_rights_when_others_may_write_where_the_database_lies_then_is_a_problem(
    mode: int, is_problem: bool, site: Path
) -> None:
    made = store_of(site)
    site.chmod(mode)

    assert [text.startswith(PROBLEM) for text in said(check_rights(made, None))] == [is_problem]


@pytest.mark.parametrize("name", ["site.toml", "playbooks", "playbooks/deep", "playbooks/deep/restart.yaml"])
def test_rights_when_everybody_may_write_what_decides_then_is_a_problem(name: str, site: Path) -> None:
    (site / "playbooks" / "deep").mkdir(parents=True)
    (site / "playbooks" / "deep" / "restart.yaml").touch(0o644)
    (site / "playbooks" / "notes.txt").touch()
    (site / "playbooks" / "notes.txt").chmod(0o666)
    (site / "site.toml").touch(0o644)
    made = store_of(site)
    assert [text[:2] for text in said(check_rights(made, Path("site.toml")))] == [OK]
    (site / name).chmod((site / name).stat().st_mode | 0o002)

    found = said(check_rights(made, Path("site.toml")))

    assert [(text.startswith(PROBLEM), f"everybody may write {name} " in text) for text in found] == [(True, True)]


# -- others


def test_docker_when_no_host_answers_then_each_is_a_problem(site: Path) -> None:
    found = said(check_docker(settings(docker={"hosts": {"gpu-07": {"url": f"unix://{site}/none.sock"}}})))

    assert len(found) == 1
    assert found[0].startswith("problem ")
    assert "gpu-07 cannot be reached" in found[0]


def test_docker_when_no_host_is_configured_then_warns() -> None:
    assert [text.split()[0] for text in said(check_docker(settings()))] == [WARNING]


HEALTHZ, WEBHOOK = ("GET", "/healthz"), ("POST", "/api/v1/alertmanager")


@pytest.mark.parametrize(
    ("healthz", "webhook", "expected"),
    [
        pytest.param((200, {}, b""), (401, {}, b""), "ok answers; refuses an empty POST with 401", id="with tokens"),
        pytest.param((200, {}, b""), (400, {}, b""), "ok answers; refuses an empty POST with 400", id="without"),
        pytest.param(
            (200, {}, b""),
            (302, {"Location": "https://sso/"}, b""),
            "problem redirects to https://sso/",
            id="login page",
        ),
        pytest.param((308, {"Location": "/x"}, b""), (401, {}, b""), "problem redirects to /x", id="everything moved"),
        pytest.param((200, {}, b""), (200, {}, b""), "problem an empty POST", id="something that takes anything"),
        pytest.param((200, {}, b""), (404, {}, b""), "problem an empty POST", id="another server"),
        pytest.param((503, {}, b""), (400, {}, b""), "problem /healthz answers 503", id="not well"),
    ],
)
def test_receiver_when_asked_then_must_refuse_an_empty_post_itself(
    healthz: tuple[int, dict[str, str], bytes],
    webhook: tuple[int, dict[str, str], bytes],
    expected: str,
    serving: Serving,
) -> None:
    url = serving({HEALTHZ: healthz, WEBHOOK: webhook})

    (text,) = said(check_receiver(url))

    assert text.startswith(expected)


def test_receiver_when_nobody_answers_then_warns() -> None:
    assert said(check_receiver("http://127.0.0.1:1")) == ["warning does not answer (Connection refused)"]


@pytest.mark.parametrize(
    ("skew", "level"),
    [
        pytest.param(timedelta(seconds=0), None, id="together"),
        pytest.param(timedelta(seconds=-20), WARNING, id="seconds apart"),
        pytest.param(timedelta(minutes=5), PROBLEM, id="minutes apart"),
    ],
)
def test_clock_when_another_s_differs_then_says_by_how_much(
    skew: timedelta, level: str | None, serving: Serving
) -> None:
    date = formatdate(time.time() + skew.total_seconds(), usegmt=True)
    url = serving({**gives("1"), BUILDINFO: (200, {"Date": date}, b'{"data": {"version": "2.42.0"}}')})

    found = said(check_prometheus("a", server_at(url, settings())))

    assert found[0] == "ok 2.42.0 answers queries"
    assert [text.split()[0] for text in found[1:]] == ([level] if level else [])


def test_prometheus_when_it_lets_only_queries_through_then_is_ok(serving: Serving) -> None:
    url = serving(gives("1"))
    assert said(check_prometheus("a", server_at(url, settings()))) == ["ok it answers queries"]


@pytest.mark.parametrize(
    ("login", "authorization"),
    [
        pytest.param({"token_file": "secret"}, "Bearer s3cret", id="a token"),
        pytest.param({"username": "engine", "password_file": "secret"}, "Basic ZW5naW5lOnMzY3JldA==", id="a password"),
    ],
)
def test_prometheus_when_it_asks_for_a_login_then_only_the_configured_one_gets_it(
    login: dict[str, str], authorization: str, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("s3cret")
    url = serving({**gives("1"), BUILDINFO: (200, {}, b'{"data": {"version": "2.42.0"}}')}, authorization)
    made = settings(prometheus={"servers": {"a": {"url": url, **login}}})

    assert said(check_prometheus("a", server_at(f"{url}/", made))) == ["ok 2.42.0 answers queries"]
    (text,) = said(check_prometheus("a", server_at(url, settings())))
    assert "does not let us in (HTTP 401)" in text
    assert "s3cret" not in text


def test_prometheus_when_the_address_has_a_password_then_it_is_not_said() -> None:
    (text,) = said(check_prometheus("a", server_at("http://me:s3cret@127.0.0.1:1", settings())))
    assert "http://127.0.0.1:1 cannot be reached" in text
    assert "s3cret" not in text


def test_fleets_when_the_query_gives_a_number_then_it_is_said(serving: Serving) -> None:
    assert said(check_fleets(with_fleet(serving(gives("64"))))) == ["ok 64 of kind gpu"]


@pytest.mark.parametrize("values", [(), ("1", "2"), ("0",), ("NaN",)], ids=["none", "several", "zero", "NaN"])
def test_fleets_when_the_query_gives_no_size_then_is_a_problem(values: tuple[str, ...], serving: Serving) -> None:
    (text,) = said(check_fleets(with_fleet(serving(gives(*values)))))
    assert text.startswith("problem its query gives ")


def test_fleets_when_the_settings_say_the_size_then_nobody_is_asked() -> None:
    made = settings(fleets={"gpus": {"kind": "gpu", "size": 8}})
    assert said(check_fleets(made)) == ["ok 8 of kind gpu"]


def test_alertmanager_when_it_delivers_to_us_then_its_configuration_is_judged(serving: Serving) -> None:
    made = settings(public_url="https://remediator.example")
    config = (
        "route: {receiver: engine, repeat_interval: 5h}\n"
        "receivers: [{name: engine, webhook_configs: [{url: 'https://remediator.example/api/v1/alertmanager'}]}]\n"
    )
    body = json.dumps({"versionInfo": {"version": "0.25.0"}, "config": {"original": config}}).encode()
    url = serving({("GET", "/api/v2/status"): (200, {}, body)})

    assert [" ".join(text.split()[:3]) for text in said(check_alertmanager(f"{url}/", made))] == [
        "ok Alertmanager 0.25.0",
        "ok receiver engine",
        "warning receiver engine",
        "problem repeats an",
    ]


@pytest.mark.parametrize(
    ("login", "authorization"),
    [
        pytest.param({"token_file": "secret"}, "Bearer s3cret", id="a token"),
        pytest.param({"username": "engine", "password_file": "secret"}, "Basic ZW5naW5lOnMzY3JldA==", id="a password"),
    ],
)
def test_alertmanager_when_it_asks_who_calls_then_the_login_of_the_settings_is_for_theirs_alone(
    login: dict[str, str], authorization: str, serving: Serving, site: Path
) -> None:
    (site / "secret").write_text("s3cret\n")
    url = serving({("GET", "/api/v2/status"): (200, {}, b"{}")}, authorization)

    found = said(check_alertmanager(url, settings(alertmanager={"urls": [url], **login})))
    assert found[0].startswith("ok Alertmanager")
    found = said(check_alertmanager(url, settings(alertmanager={"urls": ["http://other:9093"], **login})))
    assert found == ["problem does not answer its API (HTTP 401)"]


def test_alertmanager_when_its_token_cannot_be_read_then_is_a_problem(serving: Serving) -> None:
    url = serving({})

    (text,) = said(check_alertmanager(url, settings(alertmanager={"urls": [url], "token_file": "gone"})))

    assert text.startswith("problem gone cannot be read")


@pytest.mark.parametrize(
    "check",
    [
        lambda url: check_alertmanager(url, settings()),
        lambda url: check_prometheus("a", server_at(url, settings())),
        lambda url: check_fleets(with_fleet(url)),
    ],
    ids=["Alertmanager", "Prometheus", "a fleet"],
)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(404, b"", id="another server"),
        pytest.param(200, b"<html>", id="a page"),
        pytest.param(200, b"[]", id="other JSON"),
    ],
)
def test_neighbour_when_it_does_not_answer_as_itself_then_is_a_problem(
    check: Callable[[str], Iterable[Finding]], status: int, body: bytes, serving: Serving
) -> None:
    url = serving({place: (status, {}, body) for place in (("GET", "/api/v2/status"), QUERY)})

    assert [text.split()[0] for text in said(check(url))] == [PROBLEM]


def test_our_urls_when_public_url_is_set_then_begin_with_it() -> None:
    assert our_urls(settings(public_url="https://r.example/")) == ("https://r.example", "http://127.0.0.1:9095")


# -- the command

NOBODY_THERE = 'listen = "127.0.0.1:1"\n'
"""The default port may be that of an engine on this machine."""


def test_doctor_when_something_is_a_problem_then_ends_with_1(site: Path) -> None:
    (site / "remediator.toml").write_text(NOBODY_THERE)

    result = CliRunner().invoke(cli, ["doctor", "--prometheus-url", "http://127.0.0.1:1"])

    assert result.exit_code == 1
    said_of_it = " ".join(result.stdout.split())
    assert "prometheus http://127.0.0.1:1: " in said_of_it
    assert "cannot be reached (ConnectionError)" in said_of_it
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.output
    assert [path.name for path in site.iterdir()] == ["remediator.toml"]


def test_doctor_when_no_alertmanager_is_named_then_tries_those_of_the_settings(site: Path) -> None:
    (site / "remediator.toml").write_text(f'{NOBODY_THERE}[alertmanager]\nurls = ["http://127.0.0.1:1"]\n')

    tried = [
        [finding["check"] for finding in json.loads(result.stdout) if finding["check"].startswith("alertmanager")]
        for result in (
            CliRunner().invoke(cli, ["doctor", "--json"]),
            CliRunner().invoke(cli, ["doctor", "--json", "--alertmanager-url", "http://127.0.0.1:2"]),
        )
    ]

    assert tried == [["alertmanager http://127.0.0.1:1"], ["alertmanager http://127.0.0.1:2"]]


def test_doctor_when_no_prometheus_is_named_then_tries_those_of_the_settings_and_the_fleets(site: Path) -> None:
    (site / "remediator.toml").write_text(
        f'{NOBODY_THERE}[prometheus.servers.a]\nurl = "http://127.0.0.1:1"\n'
        '[fleets.gpus]\nkind = "gpu"\nquery = "count(up)"\n'
    )

    tried = [
        [one["check"] for one in json.loads(result.stdout) if one["check"].startswith(("prometheus", "fleet"))]
        for result in (
            CliRunner().invoke(cli, ["doctor", "--json"]),
            CliRunner().invoke(cli, ["doctor", "--json", "--prometheus-url", "http://127.0.0.1:2"]),
        )
    ]

    assert tried == [["prometheus a", "fleet gpus"], ["prometheus http://127.0.0.1:2", "fleet gpus"]]


def test_doctor_when_there_are_warnings_alone_then_ends_with_0(site: Path) -> None:
    (site / "playbooks").mkdir()
    (site / "remediator.toml").write_text(NOBODY_THERE)

    result = CliRunner().invoke(cli, ["doctor", "--json"])

    assert {finding["level"] for finding in json.loads(result.stdout)} == {OK, WARNING}
    assert result.exit_code == 0


def test_doctor_when_settings_are_wrong_then_says_each_and_stops_there(site: Path) -> None:
    (site / "remediator.toml").write_text("a = 1\nb = 2\n")

    result = CliRunner().invoke(cli, ["doctor", "--json"])

    found = json.loads(result.stdout)
    assert [finding["check"] for finding in found] == ["clock", "settings", "settings"]
    assert result.exit_code == 1
