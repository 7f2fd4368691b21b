"""The page on which people answer: what it shows to whom, what it takes, and that no label is more than text on it."""

import io
import threading
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from ruamel.yaml import YAML

from plans import NOW, a_plan, a_step
from recording_app import RecordingApp
from remediator.core.event import Event, EventType, RecordedEvent, utc_text
from remediator.core.plan import Plan, Runs, pack_plan
from remediator.core.playbook import Approval
from remediator.core.run import question_data
from remediator.engine.question import newest_question, why_not
from remediator.errors import RequestError, StoreUnavailableError
from remediator.settings import load_settings
from remediator.web.app import create_app
from remediator.web.approval import is_page, shown

PATH = "/runs/11111111-2222-5333-8444-555555555555/approval"
OPERATE, VIEW, DELIVER = ({"token": f"tok-{role}-1234567"} for role in ("operate", "view", "deliver"))
ASKS = Approval(ask=("oncall", "ml-platform"), expires=timedelta(minutes=30))
YES = {**OPERATE, "answer": "approve", "reason": "a quiet hour", "question": "3", "by": ""}
ROWS = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "hostile_labels.yaml")


class Parsed(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.fields: dict[str, str | None] = {}
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        named = dict(attrs)
        if tag == "input" and named.get("name"):
            self.fields[str(named["name"])] = named.get("value", "")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def a_question(plan: Plan, *, key: str = "rung.0", rung: int = 0, answered: str = "", after: str = "0s") -> Any:
    """As the engine answers: the run, what it asks, and why no answer can be given."""
    target = {"ref": "docker:gpu-07/trainer-0", "uid": "c1", "owner": "", "state": "running"}
    verdict = {
        "word": "allow",
        "asks": True,
        "rung": rung,
        "tripped": [],
        "waits_for": [],
        "targets": [target],
        "affects": [],
    }
    happened: list[tuple[EventType, str, Any]] = [
        (EventType.PLAN_MADE, "engine", {"plan": pack_plan(plan)}),
        (EventType.VERDICT_GIVEN, "engine", verdict),
        (EventType.APPROVAL_ASKED, "engine", question_data(key, ASKS, rung)),
    ]
    if answered:
        happened.append((EventType.APPROVAL_GIVEN, answered, {"key": key, "reason": "mine"}))
    recorded = [
        RecordedEvent(
            seq=seq,
            prev_hash="",
            hash="",
            event=Event(type=kind, at=NOW, actor=actor, run_id=plan.run_id, n=seq, data=data),
        )
        for seq, (kind, actor, data) in enumerate(happened, 1)
    ]
    run, asked = newest_question(recorded, (), NOW)
    return run, asked, why_not(run, asked, NOW)


@pytest.fixture
def asking(engine: RecordingApp) -> RecordingApp:
    """The engine, with a run that asks."""
    engine.answers["question"] = a_question(a_plan(approval=ASKS, owner="ml-platform"))
    return engine


# -- who sees it


def test_page_when_opened_then_it_asks_who_you_are_and_says_and_changes_nothing(
    client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.get(PATH + "?token=tok-operate-1234567", headers={"Authorization": "Bearer tok-operate-1234567"})

    page = Parsed(answer.text)
    assert (answer.status_code, answer.mimetype) == (200, "text/html")
    assert page.fields == {"token": "", "username": "", "password": ""}
    assert ("form", (("method", "post"), ("autocomplete", "off"))) in page.tags
    assert asking.calls == []
    assert client.get("/runs/no-such-run/approval").data == answer.data


@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"token": "tok-operate-1234568"}, id="another token"),
        pytest.param({"token": "", "username": "am", "password": "wrong"}, id="another password"),
        pytest.param(
            {"token": "x", "username": "am", "password": "pa:ss wörd"}, id="a token that is none beside a user"
        ),
        pytest.param({**YES, "token": "nobody's"}, id="an answer with another token"),
    ],
)
def test_page_when_a_stranger_signs_in_then_401_as_the_api_and_counted(
    form: dict[str, str], client: FlaskClient, asking: RecordingApp, log: io.StringIO
) -> None:
    # What a browser sends by itself counts for nothing: any page could make it send that.
    answer = client.post(PATH, data=form, headers={"Authorization": "Bearer tok-operate-1234567"})

    assert answer.status_code == 401
    assert answer.headers.getlist("WWW-Authenticate") == ['Bearer realm="remediator"']
    assert "is not known" in Parsed(answer.text).text
    assert asking.calls == []
    assert asking.metrics.auth_failures.labels("unauthenticated")._value.get() == 1
    assert '"reason": "unauthenticated"' in log.getvalue()
    assert not any(form[name] in log.getvalue() for name in ("token", "password") if len(form.get(name, "")) > 1)


@pytest.mark.parametrize(
    "form", [VIEW, DELIVER, {"username": "am", "password": "pa:ss wörd"}, {**YES, **VIEW}], ids=str
)
def test_page_when_the_role_is_missing_then_403_and_nothing_is_shown(
    form: dict[str, str], client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.post(PATH, data=form)

    assert answer.status_code == 403
    assert "it needs the role operate" in Parsed(answer.text).text
    assert asking.calls == []
    assert asking.metrics.auth_failures.labels("forbidden")._value.get() == 1


def test_page_when_a_user_with_a_password_signs_in_then_it_shows_what_is_asked(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pa:ss wörd\n")
    basic = {"username": "eve", "roles": ["operate"], "password_file": tmp_path / "password"}
    engine = RecordingApp(load_settings(environ={}, overrides={"auth": {"basic": [basic]}}))
    engine.answers["question"] = a_question(a_plan(approval=ASKS))

    client = create_app(engine).test_client()  # type: ignore[arg-type]
    form = {"username": "eve", "password": "pa:ss wörd"}
    answer = client.post(PATH, data=form)
    page = Parsed(answer.text)
    client.post(PATH, data={**YES, "token": "", **form})

    assert answer.status_code == 200
    assert {name: page.fields.get(name) for name in ("token", "username", "password")} == {"token": None, **form}
    assert engine.calls[-1] == ("approve", "11111111-2222-5333-8444-555555555555", "eve", "a quiet hour", 3)


# -- what it shows


def test_page_when_signed_in_then_it_says_what_is_done_to_what_and_why_and_until_when(
    client: FlaskClient, asking: RecordingApp
) -> None:
    page = Parsed(client.post(PATH, data=OPERATE).text)

    for part in (
        "restart-on-leak",
        "host gpu-07",
        "restart container trainer-0 on gpu-07 (disruptive)",
        "docker:gpu-07/trainer-0 (state running)",
        "its playbook asks before it acts",
        "oncall, ml-platform",
        f"No answer is a no at {NOW + ASKS.expires:%Y-%m-%d %H:%M:%S} UTC",
        "alertname GPUMemoryLeakSlope",
        "Owner ml-platform",
    ):
        assert part in page.text
    assert page.fields == {"token": "tok-operate-1234567", "question": "3", "by": ""}
    assert [call[0] for call in asking.calls] == ["question"]


@pytest.mark.parametrize(
    ("plan", "key", "rung", "says", "not_said"),
    [
        pytest.param(
            a_plan(steps=(a_step("a", rung=1, describes="the first"), a_step("b", rung=2, describes="the second"))),
            "rung.2",
            2,
            ["this is rung 2 of 2", "the second"],
            "the first",
            id="one rung of a ladder",
        ),
        pytest.param(
            a_plan(steps=(a_step("a", describes="the first"), a_step("b", describes="the second", approval=ASKS))),
            "steps.b",
            0,
            ["asks before the step b", "the second"],
            "the first",
            id="one step",
        ),
        pytest.param(
            a_plan(
                steps=(
                    a_step("a", describes="the first", runs=Runs.NO),
                    a_step("b", describes="the second", runs=Runs.LATE, condition='steps.a.outcome != ""'),
                )
            ),
            "rung.0",
            0,
            ["the second", 'only if steps.a.outcome != "" , decided then'],
            "the first",
            id="steps that may not run",
        ),
    ],
)
def test_page_when_it_asks_for_a_part_then_that_is_what_it_shows(
    plan: Plan, key: str, rung: int, says: list[str], not_said: str, client: FlaskClient, engine: RecordingApp
) -> None:
    engine.answers["question"] = a_question(plan, key=key, rung=rung)

    text = Parsed(client.post(PATH, data=OPERATE).text).text

    assert all(part in text for part in says), text
    assert not_said not in text


def test_page_when_it_is_answered_already_then_it_says_by_whom_and_takes_no_answer(
    client: FlaskClient, engine: RecordingApp
) -> None:
    engine.answers["question"] = a_question(a_plan(), answered="bob")

    page = Parsed(client.post(PATH, data=OPERATE).text)

    assert f"This run was already approved by bob at {utc_text(NOW)}: mine." in page.text
    assert not any(tag in ("form", "button") for tag, _ in page.tags)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_page_when_a_label_is_hostile_then_it_is_text(
    row: dict[str, Any], client: FlaskClient, engine: RecordingApp
) -> None:
    def tags(text: str, name: str) -> tuple[Any, str]:
        plan = a_plan(
            playbook="p",
            per={name: text},
            owner=text,
            steps=(a_step(describes=text, params={"container": text}),),
            context={"labels": {name: text}, "annotations": {name: text}},
        )
        engine.answers["question"] = a_question(plan)
        answer = client.post(PATH, data=OPERATE)
        assert answer.status_code == 200
        return Parsed(answer.text).tags, answer.text

    text = row["text"] * row.get("times", 1)
    told, page = tags(text, text)

    assert told == tags("plain", "plain")[0]
    assert len(page) < 60_000
    seen = "".join(Parsed(page).texts)
    assert shown(text) in seen
    assert all(char.isprintable() or char == "\n" for char in seen)


# -- what it takes


@pytest.mark.parametrize(("word", "act", "says"), [("approve", "approve", "Approved"), ("deny", "deny", "Denied")])
def test_answer_when_given_then_the_engine_gets_it_and_the_page_says_what_was_recorded(
    word: str, act: str, says: str, client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.post(PATH, data={**YES, "answer": word, "by": "alice"})

    who = "alice (token operate-bot)"
    assert asking.calls == [(act, "11111111-2222-5333-8444-555555555555", who, "a quiet hour", 3)]
    assert answer.status_code == 200
    text = Parsed(answer.text).text
    assert all(part in text for part in (says, f"By {who}", "Why a quiet hour", "Recorded."))
    assert "tok-operate" not in answer.text


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"reason": " \n"}, "reason: say why; it must not be empty"),
        ({"reason": "x" * 1001}, "reason: String should have at most 1000 characters"),
        ({"by": "a\nb"}, "by: String should match pattern"),
        ({"question": "x"}, "question: Input should be a valid integer"),
        ({"question": "9" * 5000}, "question: Input should be a valid integer"),
        ({"question": "9" * 16}, "question: Input should be less than 9007199254740992"),
        ({"question": ""}, "question: Input should be a valid integer"),
    ],
)
def test_answer_when_it_does_not_fit_then_422_and_the_question_again(
    more: dict[str, str], says: str, client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.post(PATH, data={**YES, **more})

    assert answer.status_code == 422
    assert f"Not done: {says}" in Parsed(answer.text).text
    assert [call[0] for call in asking.calls] == ["question"]
    assert Parsed(answer.text).fields["token"] == "tok-operate-1234567"


def test_answer_when_somebody_was_faster_then_409_and_says_so(client: FlaskClient, asking: RecordingApp) -> None:
    asking.answers["approve"] = RequestError("run 1 was already denied by bob", http_status=409)
    asking.answers["question"] = a_question(a_plan(), answered="bob")

    answer = client.post(PATH, data=YES)

    assert answer.status_code == 409
    assert "Not done: run 1 was already denied by bob" in Parsed(answer.text).text


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (RequestError("there is no run 1", http_status=404), 404, "there is no run 1"),
        (StoreUnavailableError("disk full"), 503, "the store is away; nothing was recorded"),
        (RuntimeError("secret detail"), 500, "internal error; the engine's log has it"),
    ],
)
@pytest.mark.parametrize("form", [OPERATE, YES], ids=["shown", "answered"])
def test_page_when_the_engine_cannot_then_says_so_in_words(
    form: dict[str, str], error: Exception, status: int, says: str, client: FlaskClient, asking: RecordingApp
) -> None:
    asking.answers |= {"question": error, "approve": error}

    answer = client.post(PATH, data=form)

    assert answer.status_code == status
    assert Parsed(answer.text).text.endswith(says) or says in Parsed(answer.text).text
    assert "secret detail" not in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"&".join([b"a=1"] * 17), 400, id="too many fields"),
        pytest.param(b"\xff\xfe%ff=%00&token=%ff", 401, id="no text"),
        pytest.param(b'{"token": "tok-operate-1234567"}', 401, id="JSON"),
        pytest.param(b"token=tok-operate-1234567&answer=perhaps&reason=x&question=3", 400, id="another answer"),
        pytest.param(b"token=tok-operate-1234567&token=x&answer=&answer=approve", 200, id="the first of two counts"),
    ],
)
def test_page_when_the_form_is_another_then_it_is_not_taken(
    body: bytes, status: int, client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.post(PATH, data=body, content_type="application/x-www-form-urlencoded")

    assert answer.status_code == status
    assert {call[0] for call in asking.calls} <= {"question"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_page_when_answered_then_no_script_frame_or_cache_has_it(
    method: str, client: FlaskClient, asking: RecordingApp
) -> None:
    answer = client.open(PATH, method=method, data=OPERATE if method == "POST" else None)

    policy = answer.headers["Content-Security-Policy"]
    assert {part.split()[0]: part.split()[1:] for part in policy.split(";")} == {
        "default-src": ["'none'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "style-src": [policy.rpartition(" ")[2]],
    }
    assert policy.rpartition(" ")[2].startswith("'sha256-")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    tags = Parsed(answer.text).tags
    assert not [tag for tag, _ in tags if tag in ("script", "img", "a", "link", "iframe", "object")]
    assert not [name for _, attributes in tags for name, _ in attributes if name in ("style", "src", "href", "action")]
    assert not [name for _, attributes in tags for name, _ in attributes if name.startswith("on")]


# -- without tokens


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://127.0.0.1:9095", "Host": "127.0.0.1:9095"}, 200),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://localhost"}, 403),
        ({"Origin": "http://localhost:8080"}, 403),
        ({"Origin": "http://rebound.example", "Host": "rebound.example"}, 403),
    ],
    ids=str,
)
def test_open_page_when_another_page_posts_then_403(
    headers: dict[str, str], status: int, open_client: FlaskClient, open_engine: RecordingApp
) -> None:
    open_engine.answers["question"] = a_question(a_plan())
    form = {**YES, "token": "", "by": "alice"}

    assert open_client.post(PATH, data=form, headers=headers).status_code == status
    who = [call[2] for call in open_engine.calls]
    assert who == (["alice (no token)"] if status == 200 else [])
    assert "No token is configured" in open_client.get(PATH).text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/runs/1/approval", True),
        ("runs/1/approval/", True),
        ("/runs//approval", True),
        ("/api/v1/runs/1/approval", False),
        ("/runs/1/approve", False),
        ("/runs/1/2/approval", False),
        ("/", False),
    ],
)
def test_is_page_when_asked_then_only_of_the_page(path: str, expected: bool) -> None:
    assert is_page(path) is expected


def test_shown_when_a_letter_cannot_be_seen_then_it_is_written_out() -> None:
    assert shown("a\u202eb\x00\n\u200b") == "a\\u202eb\\x00\\n\\u200b"
    assert shown("x" * 1001) == "x" * 999 + "…"
    assert shown("<b>") == "<b>"


@pytest.fixture
def draining_client(asking: RecordingApp) -> FlaskClient:
    draining = threading.Event()
    draining.set()
    return create_app(asking, draining=draining).test_client()  # type: ignore[arg-type]


def test_answer_when_the_engine_is_stopping_then_503_and_it_is_not_taken(
    draining_client: FlaskClient, asking: RecordingApp
) -> None:
    answer = draining_client.post(PATH, data=YES)

    assert answer.status_code == 503
    assert asking.calls == []
