"""The page in the browser in use: what an hour of it takes of the server's memory.

    python benchmarks/ui_use.py                                  # an hour, four requests a second
    python benchmarks/ui_use.py --seconds 300 --rate 10 --seed 7 # shorter, with the random choices of an earlier run

A server shows a folder with 10,000 checkpoints, one in which an agent and a person work, one with hostile and large
content, a flow store with states of a million entries, a training run and an index. This program uses it as browsers
do: it follows links of the pages it gets, opens them as JSON, too, keeps event streams open, opens large states piece
by piece, searches, measures, verifies, takes back, undoes, marks and forks, while a thread saves, at times in bursts.

Printed: every minute the memory of the server (resident, and its peak in that minute), descriptors and threads; at the
end requests by kind with their times and the highest memory while one of the kind was answered. The kernel counts the
peak (VmHWM, reset for every request), so that none between two looks is missed. Exit status 1 if a request failed
unexpectedly or the peak is above the goal. Everything is in a temporary folder and on loopback; it ends by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

sys.path.insert(0, str(Path(__file__).parent))
from holdfast.adapters.agents.hook import HookCall, handle_event
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.workspace import Workspace
from upkeep import generate

GOAL_MIB = 150
HOLDFAST = (sys.executable, "-m", "holdfast.cli")
KNOWN_MAX = 400
"""Addresses that are remembered of each kind."""
LINK = re.compile(rb'(?:href|data-lazy|data-tree|data-rows|src|data-poll)="(/[^"]*)"')
READ_MAX = 4 << 20
PREPARED = "prepared"
STREAMS = 4
TABS = 2
"""That ask for pages beside the first, each a quarter as often."""
SLOW = {"search", "usage", "verify", "plan of an index", "compare of tensors", "large state", "search of an index"}
"""Kinds that are asked for only so often as people do."""
CONFIGURATION = """\
[index]
include = ["*.md"]

[index.embed.dense]
model = "holdfast-hashed-words"
"""


def main() -> None:
    """Prepare, start the server, use it, print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=4, help="requests a second, besides events")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the large states")
    parser.add_argument("--folder", type=Path, help="an empty folder, or one of an earlier run; it is kept")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-ui-use-"))
        area = Area(Path(folder).resolve(), options.checkpoints, options.entries)
        if not (area.folder / PREPARED).exists():
            area.prepare()
        with area.server() as (process, address):
            use = Use(area, process.pid, address, random.Random(options.seed))
            use.go_on(options.seconds, options.rate)
            died = process.poll() is not None
        print("\n".join(use.lines()))
    sys.exit(died or bool(use.failures) or use.memory.peak_kib > GOAL_MIB << 10)


# what is shown


class Area:
    """Everything that the server shows, in one folder."""

    def __init__(self, folder: Path, checkpoints: int, entries: int) -> None:
        self.folder, self.checkpoints, self.entries = folder, checkpoints, entries
        (folder / "home").mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "HOLDFAST_", "XDG_"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environ = kept | {
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        self.many = folder / "many" / "project"
        self.shop, self.hostile, self.lab = folder / "shop", folder / "hostile", folder / "lab"
        self.flow, self.run = f"sqlite:///{folder / 'state.db'}", folder / "runs" / "base"
        self.transcript = folder / "home" / ".claude" / "projects" / "shop" / "session-1.jsonl"

    def prepare(self) -> None:
        for make in (self._many, self._shop, self._hostile, self._flow, self._training, self._index):
            began = time.monotonic()
            make()
            print(f"prepared {make.__name__[1:]} in {time.monotonic() - began:.0f} s", flush=True)
        (self.folder / PREPARED).touch()

    @contextlib.contextmanager
    def server(self) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        named = [self.many, self.shop, self.hostile, self.flow, self.run, self.lab / ".holdfast-index"]
        process = subprocess.Popen(
            [*HOLDFAST, "ui", "--no-open", *map(str, named)],
            cwd=self.lab,
            env=self.environ,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()

    def open(self, folder: Path) -> Workspace:
        return Workspace(folder, environ=self.environ, home=self.folder / "home", on_unknown="tagged")

    def _many(self) -> None:
        generate(
            self.folder / "many", self.checkpoints, store=None, environ=self.environ, home=self.folder / "home"
        ).close()

    def _shop(self) -> None:
        for name in ("src", "tests", "docs"):
            (self.shop / name).mkdir(parents=True)
        for number in range(60):
            (self.shop / "src" / f"module_{number}.py").write_text(_module(number, 0))
        (self.shop / "docs" / "cart.png").write_bytes(_picture())
        with contextlib.closing(self.open(self.shop)) as ws:
            ws.save("before the agent", name="baseline")
        self.transcript.parent.mkdir(parents=True)
        self.tell("SessionStart", source="startup")
        for number in range(30):
            self.turn(number, files=50 if number % 10 == 5 else 3)

    def turn(self, number: int, files: int) -> None:
        """A turn of the agent: a prompt, a tool that changes files, a reply."""
        prompt = f"Change {files} modules, please ({number})."
        self._say("user", prompt)
        self.tell("UserPromptSubmit", prompt=prompt)
        use = f"toolu_{number}_{os.urandom(4).hex()}"
        about = {"command": f"python change.py {number}"}
        self._say("assistant", [{"type": "tool_use", "id": use, "name": "Bash", "input": about}])
        self.tell("PreToolUse", tool_name="Bash", tool_input=about, tool_use_id=use)
        for at in range(files):
            (self.shop / "src" / f"module_{(number * 7 + at) % 60}.py").write_text(_module(at, number + 1))
        self._say("user", [{"type": "tool_result", "tool_use_id": use, "content": "done\n" * files}])
        self.tell("PostToolUse", tool_name="Bash", tool_input=about, tool_use_id=use)
        self._say("assistant", [{"type": "text", "text": f"{files} modules are changed."}])
        self.tell("Stop")

    def tell(self, event: str, **fields: Any) -> None:
        fields |= {"hook_event_name": event, "session_id": "session-1", "cwd": str(self.shop)}
        data = json.dumps(fields | {"transcript_path": str(self.transcript)}).encode()
        handle_event(HookCall("claude-code", "", data, str(self.shop), os.getpid(), time.time() + 60, self.environ))

    def _say(self, role: str, content: Any) -> None:
        line = {"type": role, "cwd": str(self.shop), "uuid": os.urandom(8).hex()}
        with self.transcript.open("a") as file:
            file.write(json.dumps(line | {"message": {"role": role, "content": content}}) + "\n")

    def _hostile(self) -> None:
        folder = self.hostile
        folder.mkdir()
        names = ["\n" * 255, "\u202egnp.exe", "\x1b[31mred", "<script>alert(1)", "a b&c='d'\"e", "\udcff"]
        for name in names:
            (folder / name).write_text("<img src=x onerror=alert(1)>\x1b]0;title\x07\u202e\n" * 20)
        lines = [f"line {number} of a large file\n" for number in range(180_000)]
        (folder / "large.txt").write_text("".join(lines))
        (folder / "long-line.txt").write_text("x" * 3_000_000)
        (folder / "picture.png").write_bytes(_picture())
        (folder / "many-hunks.txt").write_text("".join(lines[:40_000]))
        with (folder / "huge.bin").open("wb") as file:
            block = random.Random(1).randbytes(1 << 20)
            for number in range(100):
                file.write(number.to_bytes(4) + block[4:])
        with contextlib.closing(self.open(folder)) as ws:
            ws.save("</title><script>alert(2)</script>\u202e\x1b[2J")
            (folder / "large.txt").write_text("".join(line.upper() for line in lines))  # a diff of 5 MB on each side
            hunks = [line if at % 9 else f"changed {at}\n" for at, line in enumerate(lines[:40_000])]
            (folder / "many-hunks.txt").write_text("".join(hunks))
            (folder / "long-line.txt").write_text("y" * 3_000_000)
            for name in names:
                (folder / name).write_text("other\n")
            ws.save("everything is different")
            for number in range(20):
                (folder / f"own-{number % 5}.txt").write_text(f"{number}\n" * 500)
                ws.save(f"small {number}")

    def _flow(self) -> None:
        noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
        with open_states(self.flow) as states:
            for session in range(40):
                for step in range(1, 13):
                    parent = f"s{step - 1}" if step > 1 else None
                    told = CheckpointMetadata(
                        f"s{step}", f"support-{session}", noon + timedelta(seconds=step), "plan", step, parent_id=parent
                    )
                    messages = [{"role": "user", "content": f"message {each} \u202e<b>" * 9} for each in range(step)]
                    states.save(Checkpoint(told, {"messages": messages, "done": step > 6}))
            states.fork("support-1", "s5", into="support-1-cheaper")
            rows: list[Any] = list(range(self.entries))
            states.save(Checkpoint(CheckpointMetadata("n1", "numbers", noon, "read", 1), {"rows": rows}))
            rows[1000] = "another"
            told = CheckpointMetadata("n2", "numbers", noon + timedelta(seconds=9), "read", 2, parent_id="n1")
            states.save(Checkpoint(told, {"rows": rows}))
            names = {f"key {number}": {"text": f"value {number}"} for number in range(self.entries // 2)}
            states.save(Checkpoint(CheckpointMetadata("m1", "names", noon, "read", 1), names))

    def _training(self) -> None:
        code = (
            "import sys, math, torch; from holdfast.training import save_checkpoint\n"
            "for step in range(10, 2010, 10):\n"
            "    loss = 2.5 * math.exp(-step / 900) + 0.3\n"
            "    save_checkpoint(sys.argv[1], step, {'embed': torch.ones(50_000), 'head': torch.ones(500) * step},\n"
            "        metrics={'loss': loss, 'accuracy': 1 - loss / 3}, best_key='loss', rng=False)\n"
        )
        subprocess.run([sys.executable, "-c", code, str(self.run)], env=self.environ, check=True)

    def _index(self) -> None:
        docs = self.lab / "docs"
        docs.mkdir(parents=True)
        (self.lab / "holdfast.toml").write_text(CONFIGURATION)
        for number in range(200):
            (docs / f"page-{number}.md").write_text(f"# Page {number}\n\n" + f"Kelp and tide {number}. " * 60)
        self.apply_index()

    def apply_index(self) -> None:
        call = [*HOLDFAST, "index", "apply", "--yes"]
        subprocess.run(call, cwd=self.lab, env=self.environ, check=True, capture_output=True)


def _module(number: int, version: int) -> str:
    lines = [f"def function_{at}(value):\n    return value * {at} + {number}\n\n" for at in range(40)]
    lines[(version * 3) % 40] = f"def changed_{version}(value):\n    return 'version {version}'\n\n"
    return "\n".join(lines)


def _picture() -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((40, 110, 90)) * 96 for _ in range(48))
    header = struct.pack(">IIBBBBB", 96, 48, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# how it is used


@dataclass
class Seen:
    """What was seen of one kind of request."""

    times: list[float] = field(default_factory=list)
    largest: int = 0
    peak_kib: int = 0


class Memory:
    """The memory of a process, and of those that it started."""

    def __init__(self, pid: int) -> None:
        self._pid, self._lock = pid, threading.Lock()
        self.peak_kib = self.minute_kib = self.children_kib = 0

    def resident_kib(self) -> int:
        return self._of("VmRSS")

    def take_peak(self) -> int:
        """The peak since this was asked last."""
        with self._lock:
            found = self._of("VmHWM")
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")
            self.peak_kib, self.minute_kib = max(self.peak_kib, found), max(self.minute_kib, found)
        return found

    def look_at_children(self) -> None:
        """The memory of the processes that answer what is large; they end by themselves."""
        total = 0
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{self._pid}/task"):
                for child in Path(f"/proc/{self._pid}/task/{task}/children").read_text().split():
                    with contextlib.suppress(OSError, IndexError):
                        pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
                        total += pages * os.sysconf("SC_PAGE_SIZE") >> 10
        self.children_kib = max(self.children_kib, total)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._pid}/fd"))

    def threads(self) -> int:
        return self._of("Threads")

    def _of(self, name: str) -> int:
        text = Path(f"/proc/{self._pid}/status").read_text()
        return int(text.partition(f"\n{name}:")[2].split()[0])


class Client:
    """One connection after the other, with the cookie that the token became."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self._cookie, self.csrf = parts.netloc, "", ""
        status, headers, _ = self._ask("GET", f"{parts.path}?{parts.query}")
        assert status == 303, status
        self._cookie = headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> tuple[int, bytes, int]:
        """The status, the beginning of the body, and the body's size."""
        status, headers, body = self._ask("GET", path)
        return status, body, headers["size"]

    def post(self, path: str, fields: list[tuple[str, str]]) -> tuple[int, bytes]:
        body = urlencode([("csrf", self.csrf), *fields])
        status, _, text = self._ask("POST", path, body)
        return status, text

    def stream(self, path: str, is_over: Callable[[], bool], hear: Callable[[], None]) -> None:
        """Hear the events of a stream until it is to end."""
        connection = http.client.HTTPConnection(self.host, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"cookie": self._cookie})
            answer = connection.getresponse()
            while not is_over():
                try:
                    line = answer.readline()
                except OSError:
                    break
                if not line:
                    break
                if line.startswith(b"data:"):
                    hear()

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any], bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=600)
        with contextlib.closing(connection):
            headers = {"cookie": self._cookie} if self._cookie else {}
            if body is not None:
                headers |= {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{self.host}"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text, size = answer.read(READ_MAX), 0
            while more := answer.read(1 << 20):
                size += len(more)
            return answer.status, {**{k.lower(): v for k, v in answer.getheaders()}, "size": len(text) + size}, text


class Use:
    """What browsers ask for, at random."""

    def __init__(self, area: Area, pid: int, address: str, chance: random.Random) -> None:
        self._area, self._chance = area, chance
        self.memory = Memory(pid)
        self._client = Client(address)
        self._known: dict[str, dict[str, None]] = {}
        self._seen: dict[str, Seen] = {}
        self.failures: list[str] = []
        self._until = 0.0
        self._saved = self._events = self._forks = 0
        self._last_rows: dict[str, float] = {}
        self._lock = threading.RLock()
        self._keys = self._find_keys()
        self._began = time.monotonic()

    def go_on(self, seconds: float, rate: float) -> None:
        """Use the server for this long."""
        self._began = time.monotonic()
        self._until = self._began + seconds
        others = [threading.Thread(target=self._save, daemon=True), threading.Thread(target=self._watch, daemon=True)]
        others += [threading.Thread(target=self._browse, args=(rate / 4,), daemon=True) for _ in range(TABS)]
        others += [threading.Thread(target=self._listen, args=(at,), daemon=True) for at in range(STREAMS)]
        for each in others:
            each.start()
        next_slow = self._began + 5
        while (now := time.monotonic()) < self._until:
            if now >= next_slow:
                next_slow = now + 10
                self._chance.choice([self._slow, self._take_back, self._large_state, self._fork])()
            else:
                self._follow()
            time.sleep(max(0.0, 1 / rate - (time.monotonic() - now)))
        for each in others:
            each.join(30)

    def lines(self) -> Iterator[str]:
        yield f"{'kind':<24}{'requests':>9}{'median':>9}{'longest':>9}{'largest':>10}{'memory':>10}"
        for kind, seen in sorted(self._seen.items(), key=lambda each: -each[1].peak_kib):
            times = f"{statistics.median(seen.times) * 1000:>6.0f} ms{max(seen.times) * 1000:>6.0f} ms"
            sizes = f"{seen.largest / 1024:>6,.0f} KiB{seen.peak_kib / 1024:>6.1f} MiB"
            yield f"{kind:<24}{len(seen.times):>9,}{times}{sizes}"
        total = sum(len(each.times) for each in self._seen.values())
        yield f"{total:,} requests, {self._events:,} events, {self._saved:,} checkpoints saved, {self._forks} forks"
        yield f"peak of the server {self.memory.peak_kib / 1024:.1f} MiB (goal {GOAL_MIB})"
        yield f"largest sum of the processes that it starts for a while: {self.memory.children_kib / 1024:.0f} MiB"
        yield f"unexpected answers: {len(self.failures)}"
        yield from self.failures[:20]

    def _tell_minute(self, minute: int) -> None:
        self.memory.take_peak()
        peak, self.memory.minute_kib = self.memory.minute_kib, 0
        with self._lock:
            count = sum(len(each.times) for each in self._seen.values())
        print(
            f"minute {minute:>2}: {self.memory.resident_kib() / 1024:6.1f} MiB, peak {peak / 1024:6.1f} MiB, "
            f"{self.memory.descriptors()} descriptors, {self.memory.threads()} threads, {count:,} requests",
            flush=True,
        )

    # pages

    def _find_keys(self) -> dict[str, str]:
        body = self._ask("home", "/home")
        keys = {}
        for path in re.findall(rb'href="(/[wl]/[^"/?]+)', body):
            name = path.decode()
            keys[name] = name
        found = {}
        for part in ("project", "shop", "hostile", "state-db", "base", "holdfast-index"):
            found[part] = next(name for name in keys if part in name)
        for name in found.values():
            self._ask("first", name + "/timeline" if name.startswith("/w/") else name)
        return found

    def _ask(self, kind: str, path: str) -> bytes:
        self.memory.take_peak()
        began = time.perf_counter()
        try:
            status, body, size = self._client.get(path)
        except OSError as error:
            self.failures.append(f"{type(error).__name__} of GET {path}: {error}")
            return b""
        self._note(kind, time.perf_counter() - began, size)
        is_old = status == 404 and ("ref=" in path or "/plan?" in path)  # deleted, or taken back, since it was shown
        if status >= 500 or (status == 404 and not is_old):
            self.failures.append(f"{status} of GET {path}: {body[-300:]!r}")
        if b'name="csrf"' in body and not self._client.csrf:
            self._client.csrf = re.search(rb'name="csrf" value="([^"]+)"', body)[1].decode()  # type: ignore[index]
        self._learn(body)
        return body

    def _post(self, kind: str, path: str, fields: list[tuple[str, str]], *, expected: tuple[int, ...]) -> bytes:
        self.memory.take_peak()
        began = time.perf_counter()
        status, body = self._client.post(path, fields)
        self._note(kind, time.perf_counter() - began, len(body))
        if status not in expected:
            self.failures.append(f"{status} of POST {path}: {body[-300:]!r}")
        return body

    def _note(self, kind: str, seconds: float, size: int) -> None:
        with self._lock:
            seen = self._seen.setdefault(kind, Seen())
            seen.times.append(seconds)
            seen.largest = max(seen.largest, size)
            seen.peak_kib = max(seen.peak_kib, self.memory.take_peak())

    def _learn(self, body: bytes) -> None:
        with self._lock:
            self._remember(LINK.findall(body))

    def _remember(self, links: list[bytes]) -> None:
        for link in links:
            path = html.unescape(link.decode("utf-8", "replace"))
            kind = self._kind(path)
            known = self._known.setdefault(kind, {})
            if len(known) >= KNOWN_MAX:
                known.pop(self._chance.choice(list(known)[:20]))
            known[path] = None

    def _kind(self, path: str) -> str:
        parts = urlsplit(path).path.split("/")
        is_json = path.partition("?")[0].endswith(".json")
        last = parts[3].removesuffix(".json") if len(parts) > 3 else ""
        if parts[1] == "l":
            if "numbers" in path or "names" in path:
                return "large state"
            if last in ("search", "plan"):
                return f"{last} of an index"
            if last == "compare" and "/base-" in path:
                return "compare of tensors"
            last = f"location {last}".strip()
        return (last or parts[1]) + (" as JSON" if is_json else "")

    def _follow(self) -> None:
        with self._lock:
            kinds = [each for each in self._known if each.removesuffix(" as JSON") not in SLOW and "usage" not in each]
            kinds = [each for each in kinds if "verify" not in each]
            kind = self._chance.choice(kinds)
            path = self._chance.choice(list(self._known[kind]))
        self._ask(kind, path)

    def _slow(self) -> None:
        """What takes seconds: searching, measuring, verifying, comparing tensors, a plan."""
        keys, chance = self._keys, self._chance
        work = chance.randrange(7)
        if work == 0:
            text = chance.choice(["changed_3", "version 7", "nothing has this", "line 17"])
            key = keys[chance.choice(["shop", "shop", "hostile", "project"])]
            self._until_done("search", f"{key}/search?q={quote(text)}")
        elif work == 1:
            self._until_done("usage", f"{keys[chance.choice(['shop', 'hostile', 'project'])]}/usage")
        elif work == 2:
            key = keys[chance.choice(["state-db", "base", "holdfast-index"])]
            self._ask("location usage", f"{key}/usage")
        elif work == 3:
            key = keys[chance.choice(["state-db", "base", "holdfast-index"])]
            self._post("verify", f"{key}/start-verify", [], expected=(303,))
            self._until_done("verify", f"{key}/verify")
        elif work == 4:
            a, b = sorted(chance.sample(range(10, 2010, 10), 2))
            self._ask("compare of tensors", f"{keys['base']}/compare?a={a}&b={b}")
        elif work == 5:
            self._ask("search of an index", f"{keys['holdfast-index']}/search?q=tide+{chance.randrange(200)}")
        else:
            self._post("plan of an index", f"{keys['holdfast-index']}/start-plan", [], expected=(303,))
            self._until_done("plan of an index", f"{keys['holdfast-index']}/plan")

    def _until_done(self, kind: str, path: str) -> None:
        """Ask again once a second while the page says that the work goes on, as its script does."""
        body = self._ask(kind, path)
        for _ in range(120):
            found = re.search(rb'data-poll="([^"]+)"', body)
            if not found or time.monotonic() > self._until:
                return
            time.sleep(1)
            body = self._ask(kind, html.unescape(found[1].decode()))

    def _large_state(self) -> None:
        """Open a state of a million entries piece by piece; compare; as JSON."""
        key, chance = self._keys["state-db"], self._chance
        session, ref = chance.choice([("numbers", "n1"), ("numbers", "n2"), ("names", "m1")])
        at = f"session={session}&ref={ref}"
        start = chance.randrange(self._area.entries // 2)
        inner = "&at=0" if session == "numbers" else ""
        for path in (
            f"{key}?session={session}",
            f"{key}/checkpoint?{at}",
            f"{key}/state?{at}{inner}",
            f"{key}/state?{at}{inner}&start={start}",
            f"{key}/compare?session=numbers&a=n1&b=n2",
            f"{key}/{chance.choice(['checkpoint', 'state'])}.json?{at}",
        ):
            self._ask("large state", path)

    def _take_back(self) -> None:
        """Take back something of a turn, undo it, perhaps do it again; mark something as reviewed."""
        key = self._keys["shop"]
        turns = [path for path in self._known.get("turn", ()) if path.startswith(f"{key}/turn/")]
        if not turns:
            return
        turn = self._chance.choice(turns[-40:])
        body = self._ask("turn", turn)
        plans = [html.unescape(each.decode()) for each in re.findall(rb'href="(/w/[^"]+/plan\?[^"]+)"', body)]
        if plans:
            path, _, query = self._chance.choice(plans).partition("?")
            told = json.loads(self._ask("plan as JSON", f"{path}.json?{query}") or b"{}")
            digest = told.get("plan", {}).get("digest", "")
            fields = [*parse_qsl(query, keep_blank_values=True), ("digest", digest)]
            if digest:
                self._post("take back", f"{key}/apply.json", fields, expected=(200, 400, 404, 409))
        for verb in ("undo", "redo", "undo")[: self._chance.randrange(1, 4)]:
            page = self._ask("timeline", f"{key}/timeline")
            found = re.search(rb'/%s"[^>]*>.*?name="digest" value="([^"]+)"' % verb.encode(), page, re.DOTALL)
            if found:
                self._post(verb, f"{key}/{verb}.json", [("digest", found[1].decode())], expected=(200, 400, 404, 409))
        forms = re.findall(rb'name="ref" value="([^"]+)">\s*<input type="hidden" name="mark" value="([^"]+)"', body)
        if forms:
            ref, mark = (html.unescape(each.decode()) for each in self._chance.choice(forms))
            fields = [("ref", ref), ("mark", mark), ("reviewed", "1")]
            self._post("review", f"{key}/review.json", fields, expected=(200, 404))

    def _fork(self) -> None:
        self._forks += 1
        fields = [("session", "support-2"), ("ref", "s5"), ("into", f"support-2-{os.getpid()}-{self._forks}")]
        self._post("fork", f"{self._keys['state-db']}/fork.json", fields, expected=(200,))

    # beside it

    def _save(self) -> None:
        """An agent and a person work: a save every few seconds, and sometimes many at once."""
        chance, number = random.Random(1), 30
        while time.monotonic() < self._until:
            number += 1
            try:
                if number % 5 == 0:
                    self._area.turn(number, files=3)
                elif number % 97 == 0:
                    (self._area.lab / "docs" / f"page-{chance.randrange(200)}.md").write_text(f"Tide {number}. " * 80)
                    self._area.apply_index()
                else:
                    with contextlib.closing(self._area.open(self._area.shop)) as ws:
                        for _ in range(100 if number % 20 == 0 else 1):
                            path = self._area.shop / "src" / f"module_{chance.randrange(60)}.py"
                            path.write_text(_module(number, chance.randrange(1 << 30)))
                            ws.save(f"step {number}")
                            self._saved += 1
            except Exception as error:
                self.failures.append(f"saving: {type(error).__name__}: {error}")
            time.sleep(3)

    def _listen(self, at: int) -> None:
        """A tab that hears of new checkpoints, and is closed and opened again."""
        chance, key = random.Random(at), self._keys["project" if at == 0 else "shop"]
        while time.monotonic() < self._until:
            end = min(time.monotonic() + chance.uniform(20, 120), self._until)
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._client.stream(f"{key}/events", lambda: time.monotonic() > end, partial(self._hear, key))  # noqa: B023

    def _hear(self, key: str) -> None:
        """As the page's script: after an event it asks for its rows, at most once a second."""
        with self._lock:
            self._events += 1
            is_due = time.monotonic() - self._last_rows.get(key, 0) >= 1
            if is_due:
                self._last_rows[key] = time.monotonic()
        if is_due:
            self._ask("rows", f"{key}/timeline?fragment=1")

    def _browse(self, rate: float) -> None:
        """Another tab: its requests and those of the first are answered at the same time."""
        while time.monotonic() < self._until:
            self._follow()
            time.sleep(1 / rate)

    def _watch(self) -> None:
        minute = 1
        while (now := time.monotonic()) < self._until:
            if now >= self._began + 60 * minute:
                self._tell_minute(minute)
                minute += 1
            self.memory.look_at_children()
            time.sleep(0.2)
        self._tell_minute(minute)


if __name__ == "__main__":
    main()
