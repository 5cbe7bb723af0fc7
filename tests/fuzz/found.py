"""Inputs that a fuzzer found, each of which once was an error of the interpreter; they are tried first.

Those of `checkpoint.json` and its neighbours are in `tests/unit/workspace/stored/test_record.py`.
"""

from __future__ import annotations

from fuzz.target import SEPARATOR

_LATE, _EARLY = b'"9999-12-31T23:59:59.999999-23:59"', b'"0001-01-01T00:00:00+23:59"'
_GIT = (b"ref: refs/heads/main", b"", b"", b"1" * 40, b"")
_RUN = b'"session_id": "0190f3a5-7c1e-7e6a-8000-000000000001", "files_discovered": 1, "project_path": "/p"'
_JOURNAL = (
    b'{"verb": "restore", "target": "a1", "safety": "a2", "paths": %s, "made": ["b"], "keep_new": true, "stage":'
    b' ".holdfast-restore-0123abcd", "root": %s, "inode": 1, "root_mtime_ns": 2, "touch_ns": %s, "done": false}'
)
_SESSION = (
    b'{"format": 2, "sessions": {"a s": {"agent": "a", "session": "s", "at": %s, "seen": %s, "told": [], "open": [],'
    b' "background": [], "turns": [{"turn": %s, "sub_ids": []}]}}, "fired": {}, "branch": %s}'
)
_FINDING = (
    b'secrets.json\n--part--\n{"found": [{"id": %s, "kind": "k", "path": "p", "line": 1, "masked": "m", "checkpoint":'
    b' "a1", "blobs": %s, "start": 0, "end": 1}], "pending": %s, "skipped": []}'
)
_ODD_VERSIONS = (
    b'{"v": 1, "id": "1ef", "ts": "2026-01-01T00:00:00+00:00", "channel_values": {}, "channel_versions":'
    b' {"a": "1", "b": 2}}'
)
_DELTA = b'{"type": "file-history-delta", "messageId": "m1", "trackingPath": {}, "backup": {"backupFileName": null}}\n'
_SNAPSHOT = (
    b'{"type": "file-history-snapshot", "messageId": "m1", "snapshot": {"messageId": "m1", "timestamp": %s,'
    b' "trackedFileBackups": {"a": {"backupFileName": null}}}}\n'
)
_PACK = (
    b"PA\xbd\xb3\x00\x00\x00\x02\x00\x00\x00\xe7\xe8\xc63\xaa-\xf3"
    + b"\xf5" * 64
    + b"\x1a\xcd\xdega]\x03j\xe7h\xc0\xd2"
)

FOUND: dict[str, list[bytes]] = {
    "checkpoint_part": [
        b"".join(
            [
                b"files\n--part--\n100644 .h",
                b"oldfastignore\x009{Jv$\xe3t\x00^\xa2",
                b"part--\n100644 .holdfasti",
                b"gnonner\x00-!\xcb\xaf7up\xcc\xe3\xc9\x10\xb1\x9d\xf7A\xbf",
                b"LD\x02L",
            ]
        ),
        b"".join(
            [
                b"files\n--part--\n100644 .h",
                b"oldfastignore\x009{Jv$\xe3_\xa6\x05c",
                b"\xa9\xc0;\x12\x13\xd9?{eF1 0644 a.txt\x00^",
                b'\xa2\xedAo\xbdJL\xbe"{u\xfe%]\xd7\xfak\xd4\xd640000',
                b" inner\x00-!\xcb\xaf7up\xcc\x0c6\xefN\x9d\xf7A\xbfL",
                b"D\x02L",
            ]
        ),
    ],
    "agent_sessions": [_SESSION % (b'"1"', b"[]", b'"t"', b'""')],
    "claude_code_history": [_SNAPSHOT % _LATE, _SNAPSHOT % b"1" + _DELTA],
    "codeweaver_file": [b'{%s, "start_time": %s, "last_checkpoint": %s}' % (_RUN, _LATE, _LATE)],
    "flow_metadata": [
        b"\x95\x93\xb32026-01-01T00:00:00\x00\x91/\xa4node\x01\x91\xa3tag\x81\xa1a\x01",
        b"\x95\x01\xa4node\x01\x91\xa3tag\x81\xa1a\x01",
    ],
    "git_commit": [b"tree %s\nparent %s\n\n" % (b"1" * 40, b"\xcf" * 40)],
    "git_refs": [SEPARATOR.join((*_GIT, b"a\0b", b"")), SEPARATOR.join((*_GIT, b"a" * 300, b""))],
    "index_shapes": [b"2", b'{"dense": ""}', b'{"dense": {}}', b'{"dense": [Infinity, "float32"]}'],
    "langgraph_tables": [SEPARATOR.join((b"json", _ODD_VERSIONS, b"{}"))],
    "llmfy_row": [SEPARATOR.join((b"2026-01-01 00:00:00", b'["a"]', b"\xff\xfe\0"))],
    "own_file": [
        _FINDING % (b'"i"', b"[[]]", b"[]"),
        _FINDING % (b'"i"', b"[]", b'"\\ud800"'),
        _FINDING % (b'"i"', b"[]", b"[[]]"),
        _FINDING.replace(b'"path": "p"', b'"path": "p", "state": []') % (b'"i"', b"[]", b"[]"),
        b'thinning.json\n--part--\n{"at": "2026-01-01T00:00:00+00:00", "over_bytes": [[]]}',
    ],
    "pack": [_PACK],
    "packed_refs": [b"%s refs/tags/a\0b\n" % (b"1" * 40)],
    "purge_journal": [
        b'{"paths": -1, "objects": [], "secrets": [["00", 1, 2]]}',
        b'{"paths": ["a"], "objects": [], "secrets": [["00", Infinity, 2]]}',
    ],
    "restore_journal": [
        _JOURNAL % (b"-1", b'"/p"', b"null"),
        _JOURNAL % (b'["a"]', b"-1", b"null"),
        _JOURNAL % (b'["a"]', b'"/p"', b"[[]]"),
    ],
    "rollback_journal": [b'{"verb": "rollback", "target": "a1", "after": Infinity, "move": null}'],
    "serde_shown": [b"\xd6\xff\x93\x00\x0b\x00", b"\x81\x92\xcb\x7f\xf8\x00\x00\x00\x00\x00#\x01#"],
    "skill_record": [
        b'{"id": "checkpoint-1", "name": "n", "description": "", "timestamp": %s, "git_state": {}}' % each
        for each in (_LATE, _EARLY)
    ],
    "store_owner": [b'{"format": Infinity, "workspace": "/p"}'],
    "training_folder": [
        SEPARATOR.join((b"", b"", b"", b'{"created_at": %s}' % each, b"\x80\x04}.")) for each in (_LATE, _EARLY)
    ],
    "training_marker": [b'.holdfast/pins.json\n--part--\n{"schema_version": 1, "steps": [Infinity]}'],
    "training_state": [
        b'{"schema_version": 1, "state": {"$dict": [["w", {"$tensor": {"names": ["w"], "kind": "numpy"}}], ["view",'
        b' {"$tensor": {"of": "w", "kind": "numpy", "offset": 1180591620717411303424, "shape": [2], "stride": [1]}}]]}}'
    ],
    "turn_log": [b'{"number": Infinity, "changed": true}'],
}
"""By target."""
