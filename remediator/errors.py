"""Every exception of the project. A class exists only if somebody catches it.

::

    RemediatorError
    ├─ SettingsError
    ├─ PlaybookError            file, line, column; collected, all at once
    │  ├─ PlaybookSyntaxError · PlaybookSchemaError · MatcherSyntaxError · TemplateError
    │  └─ UnknownActionError · DuplicatePlaybookError · ParamsError
    ├─ PlaybooksRefusedError    the files have problems: all of them, one line each
    ├─ MissingValueError        a template names a label that the alert has not: the plan is refused
    ├─ DeliveryError            carries .http_status
    │  └─ UnauthenticatedError 401 · ForbiddenError 403 · PayloadTooLargeError 413 ·
    │     DecodeError 400 · UnsupportedVersionError 400
    ├─ RequestError             a person asked for what cannot be done: carries .http_status
    ├─ StoryError               a playbook test asks for what cannot be; begins with file:line
    ├─ ReplayError              a replay met an error that nobody foresaw: its answer cannot be trusted
    ├─ UnreachableError         a command cannot reach the engine or a file it needs: exit code 3
    ├─ GpuError                 the GPU driver, asked
    │  ├─ GpuDriverError        there is none, or it answers nobody here: .is_absent
    │  └─ GpuLostError          this GPU is gone (fallen off the bus, being reset); others may be well
    ├─ ActionError              .reason (closed enum), .target
    │  ├─ TransientActionError  worth another attempt; .retry_after_s
    │  ├─ PermanentActionError  TargetNotFoundError · AccessDeniedError · InvalidTargetError · ConflictError
    │  └─ UnknownEffectError    the change may have happened
    └─ StoreError               StoreUnavailableError (→ 503) · SchemaVersionError · RunLostError · StoreInUseError
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a step, a run or a plan ended as it did, or waits. Closed: metrics and tests count on it."""

    # of an act
    NONE = "none"
    TARGET_NOT_FOUND = "target_not_found"
    ACCESS_DENIED = "access_denied"
    INVALID_TARGET = "invalid_target"
    CONFLICT = "conflict"
    TRANSIENT = "transient"
    UNKNOWN_EFFECT = "unknown_effect"
    UNEXPECTED = "unexpected"
    NOTIFY = "notify"
    REPLACED = "replaced"
    ALREADY_SO = "already_so"
    DID_NOT_HAPPEN = "did_not_happen"
    CONDITION = "condition"
    # of a verdict
    COOLDOWN = "cooldown"
    MAX_RUNS = "max_runs"
    CONCURRENCY = "concurrency"
    BUSY_TARGET = "busy_target"
    PAUSED = "paused"
    PROTECTED = "protected"
    UNKNOWN_HOST = "unknown_host"
    MISSING_LABEL = "missing_label"
    BAD_PARAMS = "bad_params"
    NO_TARGET = "no_target"
    SEVERAL_TARGETS = "several_targets"
    TARGET_CHANGED = "target_changed"
    UNREACHABLE = "unreachable"
    NOT_KNOWN_TO_FIRE = "not_known_to_fire"
    SILENCED = "silenced"
    INHIBITED = "inhibited"
    ALERTMANAGER_AWAY = "alertmanager_away"
    BREAKER = "breaker"
    MAX_TARGETS = "max_targets"
    MAX_DISRUPTIVE_ACTS = "max_disruptive_acts"
    REQUIRE = "require"
    """A condition that must hold is false."""
    REQUIRE_UNKNOWN = "require_unknown"
    """… has no value, or no Prometheus answered."""
    REQUIRE_LABEL = "require_label"
    FLEET_UNKNOWN = "fleet_unknown"
    # of a run's end
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED_BY_PERSON = "cancelled_by_person"
    SETTLED_BY_PERSON = "settled_by_person"
    PLAYBOOK_GONE = "playbook_gone"
    PLAYBOOK_EDITED = "playbook_edited"
    PLAYBOOK_DISABLED = "playbook_disabled"
    MODE_OBSERVE = "mode_observe"
    DENIED = "denied"
    APPROVAL_EXPIRED = "approval_expired"
    NOT_VERIFIED = "not_verified"
    """What a step's ``verify`` asks for did not come."""
    DID_NOT_HELP = "did_not_help"
    """A condition of ``verify`` was not met within its time."""
    NO_VALUE = "no_value"
    """Nobody knows whether it helped."""
    DRIFTED = "drifted"
    """Others changed what we had left."""
    STEP_FAILED = "step_failed"
    STILL_FIRING = "still_firing"
    FIRED_AGAIN = "fired_again"


class RemediatorError(Exception):
    """Root of all exceptions here. The message says what happened and what to do."""


class SettingsError(RemediatorError):
    """The settings file, the environment or a command's options are wrong."""


class PlaybookError(RemediatorError):
    """Something is wrong in a playbook or policy file.

    Attributes:
        file: path as the user gave it, or "" when not from a file.
        line: 1-based, 0 when unknown.
        column: 1-based, 0 when unknown.
        message: what is wrong, and what to write instead.
    """

    def __init__(self, message: str, *, file: str = "", line: int = 0, column: int = 0) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        super().__init__(self.located())

    def located(self) -> str:
        """``file:line:column: message``, as editors jump to it."""
        if not self.file:
            return self.message
        return f"{self.file}:{self.line}:{self.column}: {self.message}"

    def at(self, file: str, line: int, column: int) -> PlaybookError:
        """The same problem with its place."""
        return type(self)(self.message, file=file, line=line, column=column)


class PlaybookSyntaxError(PlaybookError):
    """Not YAML as we read it (YAML 1.2, no anchors, no duplicate keys)."""


class PlaybookSchemaError(PlaybookError):
    """A key or value that the format does not have, or that does not act in this version."""


class MatcherSyntaxError(PlaybookError):
    """Not one Alertmanager matcher."""


class TemplateError(PlaybookError):
    """A template or an ``if`` expression that is not allowed."""


class UnknownActionError(PlaybookError):
    """A step names an action that does not exist."""


class DuplicatePlaybookError(PlaybookError):
    """Two documents bear one playbook name."""


class ParamsError(PlaybookError):
    """A step's params do not fit its action."""


class PlaybooksRefusedError(RemediatorError):
    """The playbooks cannot be put in force.

    Attributes:
        problems: every one, ``file:line:column: text``.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join([*problems, "run 'remediator check' after mending them"]))


class MissingValueError(RemediatorError):
    """A template needs a value that this alert has not, or has empty.

    Attributes:
        name: what is missing, as the template writes it (``labels.pod``).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} is missing or empty; add it to the alert rule or write a default(...)")


class DeliveryError(RemediatorError):
    """A delivery that a retry cannot mend."""

    http_status = 400


class UnauthenticatedError(DeliveryError):
    """No token, or none that we know."""

    http_status = 401


class ForbiddenError(DeliveryError):
    """A known token without the needed role."""

    http_status = 403


class PayloadTooLargeError(DeliveryError):
    """The body is above the limit."""

    http_status = 413


class DecodeError(DeliveryError):
    """The body is not an Alertmanager webhook body."""


class UnsupportedVersionError(DecodeError):
    """A webhook version other than "4", or a custom payload."""


class RequestError(RemediatorError):
    """A person or script asked for something that cannot be done.

    Attributes:
        http_status: 404 unknown, 409 not in this state, 422 not valid.
    """

    def __init__(self, message: str, *, http_status: int = 422) -> None:
        self.http_status = http_status
        super().__init__(message)


class StoryError(RemediatorError):
    """A story of a playbook test asks for what cannot be; the message begins with ``file:line``."""


class ReplayError(RemediatorError):
    """The engine met an error that nobody foresaw while it decided anew: what it decided cannot be trusted."""


class UnreachableError(RemediatorError):
    """A command cannot reach the running engine, or read a file that it needs: exit code 3."""


class GpuError(RemediatorError):
    """The GPU driver did not give what it was asked for. The message says what to do."""


class GpuDriverError(GpuError):
    """The driver as a whole does not answer: no library, no kernel module, not allowed.

    Attributes:
        is_absent: there is no driver at all on this machine, which a machine without GPUs is right about.
    """

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent


class GpuLostError(GpuError):
    """One GPU no longer answers, or its handle is no longer good: devices are to be listed anew."""


class ActionError(RemediatorError):
    """What an action or a client raises about the world.

    Attributes:
        reason: closed enum, used as a metric label.
        target: what was to be touched, "" when not known.
        after: what is known of the state after it, JSON; empty when nothing is.
    """

    reason: Reason = Reason.UNEXPECTED

    def __init__(self, message: str, *, target: str = "", reason: Reason | None = None) -> None:
        self.target = target
        self.after: Mapping[str, Any] = {}
        if reason is not None:
            self.reason = reason
        super().__init__(message)


class TransientActionError(ActionError):
    """It did not happen, and another attempt may work.

    Attributes:
        retry_after_s: seconds that the other side asked us to wait, None when it did not say.
    """

    reason = Reason.TRANSIENT

    def __init__(
        self, message: str, *, target: str = "", reason: Reason | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, target=target, reason=reason)
        self.retry_after_s = retry_after_s


class PermanentActionError(ActionError):
    """It did not happen, and another attempt would fail the same way."""

    reason = Reason.INVALID_TARGET


class TargetNotFoundError(PermanentActionError):
    """The target does not exist."""

    reason = Reason.TARGET_NOT_FOUND


class AccessDeniedError(PermanentActionError):
    """We may not."""

    reason = Reason.ACCESS_DENIED


class InvalidTargetError(PermanentActionError):
    """The target exists and this action cannot be done on it."""

    reason = Reason.INVALID_TARGET


class ConflictError(PermanentActionError):
    """The other side says that the target's state forbids it."""

    reason = Reason.CONFLICT


class UnknownEffectError(ActionError):
    """The request was sent and no answer came: the change may have happened."""

    reason = Reason.UNKNOWN_EFFECT


class StoreError(RemediatorError):
    """The store."""


class StoreUnavailableError(StoreError):
    """The store cannot commit now (disk full, read-only, locked, corrupt, stopping): 503, try again."""


class SchemaVersionError(StoreError):
    """The file was written by a newer version, or is not ours."""


class StoreInUseError(StoreError):
    """Another engine holds this file.

    Attributes:
        pid: of the holder, 0 when not known.
    """

    def __init__(self, message: str, *, pid: int = 0) -> None:
        self.pid = pid
        super().__init__(message)


class RunLostError(StoreError):
    """Somebody else wrote the run's next event first: this worker must stop touching it."""
