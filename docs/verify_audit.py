#!/usr/bin/env python3
"""Check remediator's audit log with Python's standard library alone, and without a line of the engine's own code.

FILE is an export (remediator audit export) or a copy of the database; SEQ:HASH a head that was kept elsewhere.
Exit code 0: all fits; 1: changed, the first event that does not fit is named; 2: FILE cannot be read.

    body(seq) = the event in canonical JSON (RFC 8785), with "seq" and "prev_hash" = hash(seq - 1) inside
    hash(seq) = SHA-256("remediator-audit-v1\n" + hash(seq - 1) + "\n" + body(seq))
    hash(0)   = SHA-256(log_id); an export does not carry the log_id
"""

import argparse
import hashlib
import json
import re
import sqlite3
from pathlib import Path

COLUMNS = ["seq", "at", "type", "actor", "run_id", "n", "delivery_id", "episode_id", "subject_id"]
COLUMNS += ["playbook", "target", "outcome", "fingerprint", "prev_hash"]


def canonical(value):
    """RFC 8785, for what an event may hold: text, whole numbers below 2**53, true, false, lists and maps."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str) or value is True or value is False or (isinstance(value, int) and abs(value) < 2**53):
        return json.dumps(value, ensure_ascii=False)
    raise ValueError("no value of an event")


def once(pairs):
    """A JSON object in which no key is twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def of_export(lines):
    """Each line's columns (an export has none), body and hash; an empty body for what is no line of an export."""
    for line in lines:
        try:
            row = json.loads(line.decode(), object_pairs_hook=once)
            yield {}, row["body"].encode() if set(row) == {"body", "hash"} else b"", row["hash"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield {}, b"", ""


def of_database(db):
    """Each row's columns, body and hash."""
    db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    rows = db.cursor()
    rows.row_factory = sqlite3.Row
    for row in rows.execute("SELECT * FROM audit ORDER BY seq"):
        yield {name: row[name] for name in COLUMNS}, row["body"] if isinstance(row["body"], bytes) else b"", row["hash"]


def check(expected, previous, columns, body, digest):
    """What is wrong with the event that should have this number and follow this hash; "" when nothing is."""
    try:
        fields = json.loads(body.decode())
        is_canonical = isinstance(fields, dict) and canonical(fields).encode() == body
    except (ValueError, RecursionError):
        is_canonical = False
    if not is_canonical:
        return "it is not an event as the engine writes it"
    if type(fields.get("seq")) is not int or fields["seq"] != expected or columns.get("seq", expected) != expected:
        return "another event stands here, or it is missing"
    if not isinstance(fields.get("prev_hash"), str) or previous not in ("", fields["prev_hash"]):
        return "it does not follow the event before it"
    covered = f"remediator-audit-v1\n{fields['prev_hash']}\n".encode() + body
    if digest != hashlib.sha256(covered).hexdigest():
        return "its hash is of something else"
    return "".join(f"its column {name} says otherwise. " for name in columns if columns[name] != fields.get(name))


def verify(events, previous="", head=None):
    """The number and hash of the last event that fits; and of what does not fit or is missing, number and why."""
    seq = 0
    for columns, body, digest in events:
        problem = check(seq + 1, previous, columns, body, digest)
        if not problem and head is not None and head[0] == seq + 1 and head[1] != digest:
            problem = "it is not the event whose head was kept: all was written anew, from here or from before"
        if problem:
            return seq, previous, min(seq + 1, columns.get("seq", seq + 1)), problem
        seq, previous = seq + 1, digest
    if head is not None and head[0] > seq:
        return seq, previous, seq + 1, f"the log ends here, and event {head[0]} was kept: the end was cut off"
    return seq, previous, None, ""


def verify_file(path, head=None):
    """As ``verify``, of an export or a database."""
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            file.seek(0)
            return verify(of_export(file), head=head)
    db = sqlite3.connect(Path(path).absolute().as_uri() + "?mode=ro", uri=True)
    (log_id,) = db.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
    return verify(of_database(db), hashlib.sha256(log_id.encode()).hexdigest(), head)


def head_of(text):
    """A kept head as a number and a hash."""
    found = re.fullmatch("([1-9][0-9]*):([0-9a-f]{64})", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError("write SEQ:HASH, as remediator audit verify printed it")
    return int(found[1]), found[2]


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--head", metavar="SEQ:HASH", type=head_of)
    given = parser.parse_args()
    try:
        seq, digest, bad, problem = verify_file(given.file, given.head)
    except (OSError, sqlite3.Error, TypeError) as error:
        parser.error(f"cannot read {given.file}: {error}")
    if seq == 0 and bad is None:
        parser.error(f"there is no event in {given.file}")
    print(f"intact: {seq} events\nhead {seq}:{digest}" if bad is None else f"CHANGED: event {bad}: {problem}")
    raise SystemExit(bad is not None)


if __name__ == "__main__":
    main()
