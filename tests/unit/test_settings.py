import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML

from remediator.core.action import TargetKind
from remediator.core.policy import Fleet
from remediator.errors import SettingsError
from remediator.settings import (
    AuthSettings,
    BasicSettings,
    DockerHostSettings,
    DockerSettings,
    FleetSettings,
    LabelMapSettings,
    NotifySettings,
    PrometheusServerSettings,
    PrometheusSettings,
    Role,
    Settings,
    TokenSettings,
    check_files,
    is_loopback,
    load_settings,
    notify_urls,
    read_secret_file,
    secret_values,
)

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "settings_errors.yaml")
CANARY = "canary-s3cr3t-value"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file of the developer's own must not be read."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_load_settings_when_a_source_is_wrong_then_says_where_and_what_to_do(
    row: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "remediator.toml"
    file.write_text(row.get("toml", ""))

    with pytest.raises(SettingsError) as caught:
        load_settings(file, row.get("env", {}), row.get("overrides"))

    lines = str(caught.value).replace(str(file), "FILE").splitlines()
    assert len(lines) == len(row["says"])
    assert [line[: len(said)] for line, said in zip(lines, row["says"], strict=True)] == row["says"]


def test_load_settings_when_nothing_is_given_then_defaults_hold(tmp_path: Path) -> None:
    settings = load_settings(environ={})

    assert settings.store_url == f"sqlite:///{tmp_path}/remediator.db"
    assert settings.store_path == tmp_path / "remediator.db"
    assert settings.playbooks == (Path("playbooks"),)
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 9095)
    assert settings.max_body == 16 * 1024 * 1024
    assert settings.shutdown_grace == timedelta(seconds=30)
    assert settings.expire_after == timedelta(hours=9)
    assert settings.ignore_labels == ()
    assert not settings.has_auth


def test_load_settings_when_the_working_directory_has_a_file_then_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "remediator.toml").write_text("workers = 3")

    assert load_settings(environ={}).workers == 3


def test_load_settings_when_the_named_file_is_absent_then_says_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml: cannot be read: No such file"):
        load_settings(tmp_path / "gone.toml", {})


def test_load_settings_when_all_sources_set_it_then_options_beat_variables_beat_the_file(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('workers = 1\nlog_level = "error"\nlog_format = "text"\n[label_map]\nhost = ["a"]\nnode = ["n"]')

    settings = load_settings(
        file,
        {"REMEDIATOR_WORKERS": "2", "REMEDIATOR_LOG_LEVEL": "warning", "REMEDIATOR_LABEL_MAP__HOST": "x,y"},
        {"workers": 3},
    )

    assert (settings.workers, settings.log_level, settings.log_format) == (3, "warning", "text")
    assert settings.label_map.host == ("x", "y")
    assert settings.label_map.node == ("n",)


def test_load_settings_when_variables_hold_lists_and_tables_then_they_are_read(tmp_path: Path) -> None:
    settings = load_settings(
        environ={
            "REMEDIATOR_PLAYBOOKS": "one, two,",
            "REMEDIATOR_IGNORE_LABELS": "replica",
            "REMEDIATOR_MAX_BODY": "1MiB",
            "REMEDIATOR_WATCH_PLAYBOOKS": "false",
            "REMEDIATOR_VARS__TEAM": "ml",
            "REMEDIATOR_DOCKER__HOSTS__GPU-07__URL": "ssh://root@gpu-07",
            "REMEDIATOR_NOTIFY__ONCALL__URLS": "mailto://a@example?to=b@example,c@example, slack://t/x",
            "REMEDIATOR_AUTH__TOKENS": '[{"name": "am", "roles": ["deliver"], "file": "t"}]',
            "REMEDIATOR_PUBLIC_URL": "",
            "REMEDIATOR_REQUIRE": "docker",
            "REMEDIATOR_TEST_DOCKER": "x",
            "REMEDIATOR_EXPORTER_LISTEN": ":9096",
            "REMEDIATOR_URL": "http://127.0.0.1:9095",
            "REMEDIATOR_TOKEN_FILE": "t",
            "HOME": "/root",
        }
    )

    assert settings.playbooks == (Path("one"), Path("two"))
    assert settings.ignore_labels == ("replica",)
    assert settings.max_body == 1024 * 1024
    assert settings.watch_playbooks is False
    assert settings.vars == {"team": "ml"}
    assert settings.docker.hosts["gpu-07"].url == "ssh://root@gpu-07"
    assert notify_urls(settings.notify["oncall"], {}) == (
        "mailto://a@example?to=b@example,c@example",
        "slack://t/x",
    )
    assert settings.auth.tokens == (TokenSettings(name="am", roles=(Role.DELIVER,), file=Path("t")),)


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [("[::1]:9095", "::1", 9095), ("localhost:0", "localhost", 0), ("127.0.0.2:80", "127.0.0.2", 80)],
)
def test_listen_when_loopback_then_needs_no_token(listen: str, host: str, port: int) -> None:
    settings = load_settings(environ={"REMEDIATOR_LISTEN": listen})

    assert (settings.listen_host, settings.listen_port) == (host, port)


@pytest.mark.parametrize("listen", ["0.0.0.0:9095", ":9095", "[::]:9095", "10.0.0.5:9095", "gpu-head.example:9095"])
def test_listen_when_others_can_reach_it_then_a_token_is_enough(listen: str) -> None:
    tokens = {"tokens": [{"name": "am", "roles": ["deliver"], "file": "t"}]}

    assert load_settings(environ={"REMEDIATOR_LISTEN": listen}, overrides={"auth": tokens}).listen == listen


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_is_loopback_when_this_machine_alone_then_true(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"])
def test_is_loopback_when_anything_else_then_false(host: str) -> None:
    assert not is_loopback(host)


def test_label_map_when_one_docker_host_then_it_is_the_default() -> None:
    one = load_settings(environ={"REMEDIATOR_DOCKER__HOSTS__A__URL": "unix:///a"})
    two = load_settings(environ={f"REMEDIATOR_DOCKER__HOSTS__{name}__URL": "unix:///a" for name in "AB"})

    assert one.to_label_map().only_host == "a"
    assert two.to_label_map().only_host == ""
    assert one.to_label_map().host == ("hostname", "Hostname", "instance")


def test_label_map_when_there_are_prometheus_servers_then_it_has_their_names() -> None:
    servers = {name: {"url": f"http://{name}:9090/prefix/"} for name in ("a", "b")}
    made = load_settings(environ={}, overrides={"prometheus": {"servers": servers}})

    assert made.to_label_map().prometheus == ("a", "b")
    assert made.prometheus.servers["a"].url == "http://a:9090/prefix"


def test_fleets_when_there_are_some_then_they_have_a_size_or_a_query(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        """
        [prometheus.servers.a]
        url = "http://a:9090"
        [fleets.nodes]
        kind = "node"
        size = 40
        [fleets.gpus]
        kind = "gpu"
        query = "count(DCGM_FI_DEV_GPU_TEMP)"
        """
    )

    assert load_settings(tmp_path / "r.toml", {}).to_fleets() == {
        "nodes": Fleet(name="nodes", kind=TargetKind.NODE, size=40),
        "gpus": Fleet(name="gpus", kind=TargetKind.GPU, query="count(DCGM_FI_DEV_GPU_TEMP)"),
    }


def test_settings_when_changed_then_refuses() -> None:
    settings = load_settings(environ={})

    with pytest.raises(ValidationError):
        settings.workers = 1  # type: ignore[misc]


def test_settings_when_printed_then_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(CANARY)
    settings = load_settings(
        environ={"REMEDIATOR_NOTIFY__ONCALL__URLS": f"slack://{CANARY}/x"},
        overrides={"auth": {"tokens": [{"name": "am", "roles": ["deliver"], "file": tmp_path / "t"}]}},
    )

    assert CANARY not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_settings_error_when_a_secret_is_misplaced_then_does_not_repeat_it() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={"REMEDIATOR_NOTIFY__ONCALL__URLS_": CANARY, "REMEDIATOR_AUTH__TOKENS": CANARY})

    assert CANARY not in str(caught.value)


def test_secret_values_when_files_and_variables_hold_some_then_has_all(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("token-one\ntoken-two\n")
    (tmp_path / "p").write_text("pass-word\n")
    (tmp_path / "u").write_text("json://from-file\n")
    (tmp_path / "q").write_text("prometheus-token\n")
    (tmp_path / "r").write_text("prometheus-word\n")
    settings = load_settings(
        environ={},
        overrides={
            "auth": {
                "tokens": [{"name": "am", "roles": ["deliver"], "file": tmp_path / "t"}],
                "basic": [{"username": "u", "roles": ["view"], "password_file": tmp_path / "p"}],
            },
            "prometheus": {
                "servers": {
                    "a": {"url": "http://a", "token_file": tmp_path / "q"},
                    "b": {"url": "http://b", "username": "u", "password_file": tmp_path / "r"},
                }
            },
            "notify": {
                "a": {"urls": ["json://plain"]},
                "b": {"urls_file": tmp_path / "u"},
                "c": {"urls_env": "SLACK"},
                "d": {"urls_file": tmp_path / "absent"},
            },
        },
    )

    assert secret_values(settings, {"SLACK": "json://from-env"}) == {
        "token-one",
        "token-two",
        "pass-word",
        "prometheus-token",
        "prometheus-word",
        "json://plain",
        "json://from-file",
        "json://from-env",
    }


def test_secret_values_when_a_url_holds_them_in_parts_then_each_is_one() -> None:
    url = "https://user:pass%20word@chat.example/hooks/T012345/B012345?to=me"
    settings = load_settings(environ={}, overrides={"notify": {"a": {"urls": [url]}}})

    assert secret_values(settings, {}) == {url, "pass%20word", "pass word", "/hooks/T012345/B012345"}


def test_notify_urls_when_from_three_places_then_all_are_given(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("json://file\n")
    target = NotifySettings.model_validate({"urls": "json://plain", "urls_file": tmp_path / "u", "urls_env": "SLACK"})

    assert notify_urls(target, {"SLACK": "json://env"}) == ("json://plain", "json://file", "json://env")


def test_notify_urls_when_the_variable_is_not_set_then_says_its_name() -> None:
    with pytest.raises(SettingsError, match="the variable SLACK is not set"):
        notify_urls(NotifySettings(urls_env="SLACK"), {})


def test_check_files_when_some_are_missing_then_names_each(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    settings = load_settings(
        environ={"REMEDIATOR_TLS_CERT": str(tmp_path / "c"), "REMEDIATOR_TLS_KEY": str(tmp_path / "k")},
        overrides={
            "auth": {"tokens": [{"name": "am", "roles": ["deliver"], "file": tmp_path / "empty"}]},
            "docker": {"hosts": {"a": {"url": "tcp://a:1", "tls_ca": tmp_path / "ca"}}},
            "prometheus": {
                "servers": {"p": {"url": "https://p", "token_file": tmp_path / "empty", "tls_ca": tmp_path / "ca"}}
            },
        },
    )

    assert check_files(settings) == [
        f"auth.tokens, am: {tmp_path}/empty is empty; write the secret into it, one a line",
        f"prometheus.servers.p.token_file: {tmp_path}/empty is empty; write the secret into it, one a line",
        f"prometheus.servers.p.tls_ca: {tmp_path}/ca does not exist or cannot be read",
        f"tls_cert: {tmp_path}/c does not exist or cannot be read",
        f"tls_key: {tmp_path}/k does not exist or cannot be read",
        f"docker.hosts.a.tls_ca: {tmp_path}/ca does not exist or cannot be read",
    ]


def test_read_secret_file_when_not_utf8_then_says_so_without_contents(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xff" + CANARY.encode())

    with pytest.raises(SettingsError, match="is not UTF-8 text") as caught:
        read_secret_file(tmp_path / "t")
    assert CANARY not in str(caught.value)


def test_load_settings_when_not_told_otherwise_then_reads_the_process_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "REMEDIATOR_WORKERS", "7")

    assert load_settings().workers == 7


@pytest.mark.parametrize(
    "table",
    [
        Settings,
        AuthSettings,
        TokenSettings,
        BasicSettings,
        LabelMapSettings,
        DockerSettings,
        DockerHostSettings,
        PrometheusSettings,
        PrometheusServerSettings,
        FleetSettings,
        NotifySettings,
    ],
)
def test_every_setting_has_a_description(table: type[BaseModel]) -> None:
    assert [name for name, field in table.model_fields.items() if not field.description] == []


def test_load_when_the_file_lies_elsewhere_then_its_relative_paths_count_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "etc"
    site.mkdir()
    (site / "remediator.toml").write_text(
        """
        pause_file = "PAUSE"
        playbooks = ["mine", "/opt/theirs"]
        [auth]
        tokens = [{name = "am", roles = ["deliver"], file = "am.token"}]
        [docker.hosts.gpu-07]
        url = "tcp://gpu-07:2376"
        tls_ca = "ca.pem"
        [prometheus.servers.a]
        url = "http://a:9090"
        token_file = "prometheus.token"
        [notify.oncall]
        urls_file = "oncall.url"
        """
    )
    monkeypatch.chdir(tmp_path)
    settings = load_settings(
        Path("etc/remediator.toml"), {"REMEDIATOR_TLS_CERT": "c.pem", "REMEDIATOR_TLS_KEY": "k.pem"}
    )
    assert settings.store_path == site / "remediator.db"
    assert [path.resolve() for path in settings.playbooks] == [site / "mine", Path("/opt/theirs")]
    paths = [
        settings.pause_file,
        settings.auth.tokens[0].file,
        settings.docker.hosts["gpu-07"].tls_ca,
        settings.notify["oncall"].urls_file,
        settings.prometheus.servers["a"].token_file,
    ]
    assert [path.resolve() for path in paths if path] == [
        site / n for n in ("PAUSE", "am.token", "ca.pem", "oncall.url", "prometheus.token")
    ]
    assert (settings.tls_cert, settings.tls_key) == (Path("c.pem"), Path("k.pem"))


def test_load_when_the_file_lies_elsewhere_and_names_no_store_then_that_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("")
    settings = load_settings(tmp_path / "r.toml", {})
    assert (settings.store_path, settings.playbooks) == (tmp_path / "remediator.db", (tmp_path / "playbooks",))
    assert load_settings(tmp_path / "r.toml", {"REMEDIATOR_STORE_URL": "sqlite:////x/y.db"}).store_path == Path(
        "/x/y.db"
    )
