"""A service under load while everything around it goes wrong: ``python tools/soak.py --minutes 10``.

Eight clients ask `lightnet serve` for a perceptron while, every second, its `.lnx` is replaced by that of other weights (by a rename, or written
in place), or is cut short, and loaded again; while the server's files may not grow (as on a full disk) and its descriptors run out, in turns; and
while some requests are malformed. The same happens in turns to ONNX Runtime behind the same application. Every answer is compared with the
perceptron in float64: with either weights, as a load may lie between question and answer.

Prints what was answered, both servers' latencies, and their ratio; exits with 1 where an answer was wrong or a server died. Linux; needs the extras
`serve` and `onnx`, and onnxruntime for the comparison (`--no-peer` leaves it out).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from soaking.clients import Client, ask  # noqa: E402
from soaking.network import DIMS, reference, serve_peer, weights, write_network  # noqa: E402

SAMPLES = 64
#: What the servers lack, in turns, and for how many seconds.
PHASES, PHASE_SECONDS = ("nothing", "disk", "nothing", "descriptors"), 4


# -- servers and what happens to them


@dataclass
class Server:
    """A server in a process of its own, the file that it loads, and the contents that the file may get."""

    name: str
    command: list[str]
    file: Path
    contents: list[bytes]
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    crashes: int = 0
    cpu: float = 0.0

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self.file.write_bytes(self.contents[0])
        self.log = self.file.with_name(f"{self.name}.log")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(self.log, "ab") as log:
            position = log.tell()
            self.process = subprocess.Popen(self.command, stderr=log, env=env)
        for _ in range(1200):
            if found := re.search(r"on http://[\d.]+:(\d+)", self.log.read_bytes()[position:].decode()):
                self.port = int(found[1])
                self.memory = self.rss()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"{self.name} does not start: {self.log.read_text()[-2000:]}")

    def check(self) -> None:
        """Count a crash, and start again after it."""
        if self.process.poll() is not None:
            self.crashes += 1
            print(f"{self.name} ended with {self.process.returncode}: {self.log.read_text()[-2000:]}", file=sys.stderr)
            self.start()

    def limit(self, phase: str) -> None:
        """Take from the process what it lacks from now on."""
        pid, (_, most_files) = self.process.pid, resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            files = len(os.listdir(f"/proc/{pid}/fd"))
            few = files + 1 if phase == "descriptors" else min(1024, most_files)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, most_files))
            size = 4096 if phase == "disk" else resource.RLIM_INFINITY
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        except (ProcessLookupError, FileNotFoundError):
            pass  # `check` counts it

    def replace(self, in_place: bool, rng: random.Random) -> None:
        """Replace the file, and load it: by other weights, or by what is damaged, which must be refused."""
        content = rng.choice(self.contents)
        damaged = rng.random() < 0.25
        if damaged:
            content = content[: rng.randrange(len(content))]
        if in_place:
            with open(self.file, "r+b") as file:
                file.write(content)
                file.truncate()
        else:
            other = self.file.with_suffix(".new")
            other.write_bytes(content)
            os.replace(other, self.file)
        try:
            status, _ = ask(self.connection(), "/v2/repository/models/net/load", b"", {})
            self.counts[f"load {'of a damaged file ' if damaged else ''}{status}"] += 1
        except (OSError, HTTPException):
            self.counts["load: no connection"] += 1

    def connection(self) -> HTTPConnection:
        """A new connection."""
        return HTTPConnection("127.0.0.1", self.port, timeout=20)

    def rss(self) -> int:
        """KiB of memory."""
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])  # type: ignore[index]

    def cpu_seconds(self) -> float:
        """The processor's time that the process has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(
    server: Server,
    seconds: float,
    args: argparse.Namespace,
    rng: random.Random,
    x: np.ndarray,
    answers: list[np.ndarray],
) -> None:
    """Clients on one server for some seconds, and what happens to it meanwhile."""
    began, cpu = time.monotonic(), server.cpu_seconds()
    clients = [Client(server.connection, began + seconds, k, x, answers) for k in range(args.clients)]
    for client in clients:
        client.start()
    while (now := time.monotonic() - began) < seconds:
        server.limit(PHASES[int(now / PHASE_SECONDS) % len(PHASES)])
        server.replace(in_place=args.replace == "both" and rng.random() < 0.5, rng=rng)
        server.check()
        time.sleep(1)
    server.limit("nothing")
    for client in clients:
        client.join()
        server.counts += client.counts
        server.seconds += client.seconds
    server.check()
    server.cpu += server.cpu_seconds() - cpu


def report(servers: list[Server]) -> bool:
    """Print what there was; whether all of it was right."""
    right = True
    for server in servers:
        p50, p99 = np.percentile(server.seconds or [np.nan], [50, 99]) * 1e3
        print(f"\n{server.name}: {len(server.seconds)} answers, p50 {p50:.2f} ms, p99 {p99:.2f} ms, {1e3 * server.cpu / max(len(server.seconds), 1):.2f} ms "
              f"of CPU an answer, memory {server.memory / 1024:.0f} -> {server.rss() / 1024:.0f} MiB, {server.crashes} crashes")  # fmt: skip
        for what, count in sorted(server.counts.items()):
            print(f"  {what:32} {count}")
        bad = server.crashes or any(
            what.isupper() or what.startswith(("WRONG", "MALFORMED", "REFUSED")) or what.endswith(" 500")
            for what in server.counts
        )
        print(f"  {'wrong answers':32} {server.counts['WRONG']}")
        right &= not bad and bool(server.seconds)
    if len(servers) == 2:
        ours, peer = (np.percentile(s.seconds or [np.nan], [50, 99]) for s in servers)
        print(f"\n{servers[0].name} / {servers[1].name}: p50 {ours[0] / peer[0]:.2f}, p99 {ours[1] / peer[1]:.2f}, CPU an answer "
              f"{servers[0].cpu / max(len(servers[0].seconds), 1) / (servers[1].cpu / max(len(servers[1].seconds), 1)):.2f}")  # fmt: skip
    return right


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10, help="for how long, of each server (10)")
    parser.add_argument("--clients", type=int, default=8, help="how many clients ask at a time (8)")
    parser.add_argument("--seed", type=int, default=None, help="of what happens (default: drawn, and printed)")
    parser.add_argument(
        "--replace", choices=["rename", "both"], default="both", help="how files are replaced: both is also in place"
    )
    parser.add_argument("--no-peer", action="store_true", help="leave ONNX Runtime out")
    parser.add_argument("--serve-peer", metavar="MODEL.onnx", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.serve_peer:
        serve_peer(args.serve_peer)
        return 0
    seed = args.seed if args.seed is not None else random.randrange(10**6)
    print(
        f"seed {seed}, {args.clients} clients, {args.minutes:g} minutes of each server, files replaced by {args.replace}",
        flush=True,
    )
    rng, matrices = random.Random(seed), [weights(1), weights(2)]
    x = np.random.default_rng(seed).normal(size=(SAMPLES, DIMS[0])).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        kept = [Path(folder) / f"kept{k}" for k in range(2)]
        for path, of in zip(kept, matrices):
            write_network(path, of)
        lnx, model = Path(folder) / "net.lnx", Path(folder) / "net.onnx"
        command = [sys.executable, "-m", "lightnet.cli.lightnet", "serve", str(lnx), "--port", "0", "--batch-delay", "1", "--workers", "2", "--control",
                   "--timeout", "10", "--log-level", "error"]  # fmt: skip
        servers = [Server("lightnet", command, lnx, [p.with_suffix(".lnx").read_bytes() for p in kept])]
        if not args.no_peer:
            command = [sys.executable, __file__, "--serve-peer", str(model)]
            servers.append(Server("onnxruntime", command, model, [p.with_suffix(".onnx").read_bytes() for p in kept]))
        answers = [reference(x, of) for of in matrices]
        try:
            for server in servers:
                server.start()
            seconds = min(len(PHASES) * PHASE_SECONDS, args.minutes * 60)
            for _ in range(max(1, round(args.minutes * 60 / seconds))):
                for server in servers:
                    turn(server, seconds, args, rng, x, answers)
            right = report(servers)
            for server in servers:
                server.process.terminate()
                stopped = server.process.wait(60)
                print(f"{server.name} stopped with {stopped}")
                right &= stopped == 0
        finally:
            for server in servers:
                if hasattr(server, "process") and server.process.poll() is None:
                    server.process.kill()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
