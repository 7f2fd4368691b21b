"""``# remediator: allow CODE reason``: advice that somebody has looked at and decided against.

Takes the advice and the files' comments, gives the advice that is left and what is wrong with such comments. Must
never: let a comment without a reason, or one that means nothing, pass in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from remediator.core.units import cut
from remediator.engine.lint.advice import Lint, LintCode
from remediator.errors import PlaybookError, PlaybookSchemaError
from remediator.loading.comments import Comment, read_comments
from remediator.loading.read import suggest

_SIGN = re.compile(r"remediator:\s*allow\b(?P<rest>.*)", re.DOTALL)
_MARK = "remediator:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allow:
    """One comment that allows.

    Attributes:
        line: of what it is about: its own, or the one below where it stands alone.
    """

    code: LintCode
    line: int
    comment: Comment


def apply_allows(
    lints: Iterable[Lint], sources: Mapping[str, str], whole: Collection[str], looked_for: Collection[LintCode]
) -> tuple[list[Lint], list[PlaybookError]]:
    """Take out what is allowed.

    Args:
        lints: all there is.
        sources: file → its text.
        whole: files of which everything was looked at: only there an allow can be unused,
        looked_for: and only of these codes.

    Returns:
        What is left, with every allow that allowed nothing, by file and line; and comments that say nothing clear.
    """
    left = list(lints)
    problems: list[PlaybookError] = []
    for file, source in sources.items():
        if _MARK not in source:
            continue
        allows, wrong = _read_allows(file, source)
        problems += wrong
        wanted = {(allow.code, allow.line) for allow in allows}
        used = {(lint.code, lint.line) for lint in left if lint.file == file} & wanted
        left = [lint for lint in left if lint.file != file or (lint.code, lint.line) not in wanted]
        left += [
            _unused(file, allow)
            for allow in allows
            if file in whole and allow.code in looked_for and (allow.code, allow.line) not in used
        ]
    order = {file: place for place, file in enumerate(sources)}
    left.sort(key=lambda lint: (order.get(lint.file, -1), lint.line, lint.column, lint.code))
    return left, problems


def _unused(file: str, allow: _Allow) -> Lint:
    return Lint(
        code=LintCode.UNUSED_ALLOW,
        message=f"there is no {allow.code} in line {allow.line} to allow; remove the comment",
        file=file,
        line=allow.comment.line,
        column=allow.comment.column,
    )


def _read_allows(file: str, source: str) -> tuple[list[_Allow], list[PlaybookError]]:
    comments = read_comments(source)
    alone = {comment.line for comment in comments if comment.is_alone and _SIGN.match(comment.text)}
    allows: list[_Allow] = []
    problems: list[PlaybookError] = []
    for comment in comments:
        found = _SIGN.match(comment.text)
        if found is None:
            continue
        word, _, reason = found["rest"].strip().partition(" ")
        message = _what_is_wrong(word, reason.strip())
        if message:
            problems.append(PlaybookSchemaError(message, file=file, line=comment.line, column=comment.column))
            continue
        line = comment.line
        while line in alone:  # several stand one above the other
            line += 1
        allows.append(_Allow(code=LintCode(word), line=line, comment=comment))
    return allows, problems


def _what_is_wrong(word: str, reason: str) -> str:
    codes = [code.value for code in LintCode if code is not LintCode.UNUSED_ALLOW]
    if not word:
        return "say which advice and why: # remediator: allow CODE reason"
    if word.rstrip(",") in codes and (word.endswith(",") or reason.split(" ")[0].strip(",") in codes):
        return "one comment allows one code; write one comment for each, each on a line of its own"
    if word == LintCode.UNUSED_ALLOW:
        return "unused-allow cannot be allowed; remove the comment that allows nothing"
    if word not in codes:
        return f"there is no advice with the code {cut(word, 80)!r}{suggest(word, codes)}"
    if not reason:
        return f"say why: # remediator: allow {word} reason"
    return ""
