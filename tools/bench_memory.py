"""Peak memory of compiling beside ONNX Runtime's: ``python tools/bench_memory.py [NETWORK…] [--json FILE]``.

For each network, the largest resident set (MB) of a fresh process that does one thing and ends: `lightnet.compile` and all that comes before the first
call; ``lightnet compile NET.onnx -o NET.lnx``; loading that file; `onnxruntime.InferenceSession`. All read the same ONNX file, on one thread.
Nothing is subtracted: Python, the imports (their floor is printed) and mapped files count. Behind them: the weights in the ONNX file, in ours, and ours in memory.
Networks are those of `tools/bench.py`, those of `benching/large_networks.py`, or paths of ONNX files; ``small``, ``large`` (default: both).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from machine import machine

HEAD = """
import sys
def peak():
    words = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(f"peak={words['VmHWM'].split()[0]}")
"""
#: What each process does.
TASKS = {
    "api": "import lightnet; e = lightnet.compile(sys.argv[1], threads=1); e.prepare(); peak(); print(f'static={e.program.memory[\"static\"]}')",
    "cli": "from lightnet.cli.lightnet import main; import atexit; atexit.register(peak); sys.exit(main(['compile', sys.argv[1], '-o', sys.argv[2], '--threads=1']))",
    "saved": "import lightnet; e = lightnet.load_executable(sys.argv[2]); peak()",
    "ort": "import onnxruntime as o; s = o.SessionOptions(); s.intra_op_num_threads = 1; s.log_severity_level = 3; k = o.InferenceSession(sys.argv[1], s); peak()",
    "floor": "import lightnet; lightnet.compile, lightnet.load; import llvmlite.binding; lightnet.compile(lightnet.loads("
             "'input(|dst=x|dtype=TL_FLOAT, dims=[4]); relu(src=x|dst=y|)', '.net')).prepare(); peak()",
    "ort floor": "import onnxruntime; peak()",
}  # fmt: skip


def run(task: str, *args: str) -> dict[str, int]:
    """The figures that a fresh process gives of itself. Raises RuntimeError with its last words where it fails."""
    root = str(Path(__file__).parents[1])
    env = {**os.environ, "LIGHTNET_CACHE": "off", "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", HEAD + TASKS[task], *args], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{task} {args}: {done.stderr[-800:]}")
    return {
        k: int(v)
        for k, v in (
            line.split("=") for line in done.stdout.splitlines() if "=" in line and line.split("=")[1].isdigit()
        )
    }


def measured(path: Path, folder: Path, tasks: Sequence[str]) -> dict[str, float]:
    """The row of one network: MB by task, and sizes of files in MB."""
    saved = str(folder / f"{path.stem}.lnx")
    row: dict[str, float] = {}
    for task in tasks:
        found = run(task, str(path), saved)
        row[task] = found["peak"] / 1024
        if "static" in found:
            row["static"] = found["static"] / 2**20
    row["onnx"] = (
        sum(p.stat().st_size for p in path.parent.glob(f"{path.stem}.*") if p.suffix in (".onnx", ".data")) / 2**20
    )
    if os.path.exists(saved):
        row["lnx"] = os.path.getsize(saved) / 2**20
        os.unlink(saved)
    return row


def made(name: str, folder: Path) -> Path:
    """The ONNX file of a network by name, written into `folder` if it is none that there is."""
    from benching.large_networks import LARGE

    path = folder / f"{name}.onnx"
    if name.endswith(".onnx"):
        return Path(name)
    if name in LARGE:
        if not path.exists():
            LARGE[name](path)
        return path
    from benching.networks import NETWORKS, prepare

    return Path(prepare(NETWORKS[name], name, reference=False).onnx)


def main() -> None:
    """Print the table."""
    from benching.large_networks import LARGE
    from benching.networks import NETWORKS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["small", "large"])
    parser.add_argument("--tasks", default="ort,api,cli,saved", help="which processes run")
    parser.add_argument("--folder", help="where large networks are kept (default: a folder that goes)")
    parser.add_argument("--json", help="a file for the figures")
    args = parser.parse_args()
    sets = {"small": NETWORKS, "large": LARGE}
    names = [n for name in args.networks for n in sets.get(name, [name])]
    print(machine("lightnet", "onnxruntime", "llvmlite", "xdsl"))
    print(
        f"floor: {run('floor')['peak'] / 1024:.0f} MB (Python, NumPy, xDSL, LLVM, one op), {run('ort floor')['peak'] / 1024:.0f} (import onnxruntime)"
    )
    print(
        f"{'':22s}{'ort':>6s}{'api':>6s}{'ratio':>6s}{'cli':>6s}{'ratio':>6s}{'saved':>6s}{'onnx':>6s}{'lnx':>6s}{'static':>7s}"
    )
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(args.folder or folder)
        kept.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = made(name, kept)
            row = rows[name] = measured(path, kept, args.tasks.split(","))
            if not args.folder and name in LARGE:
                for part in kept.glob(f"{path.stem}.*"):
                    part.unlink()
            ratios = {t: row[t] / row["ort"] if t in row and "ort" in row else float("nan") for t in ("api", "cli")}
            row |= {f"{t} ratio": r for t, r in ratios.items()}
            cells = [row.get(k, float("nan")) for k in ("ort", "api", "cli", "saved", "onnx", "lnx", "static")]
            print(
                f"{name:22s}{cells[0]:6.0f}{cells[1]:6.0f}{ratios['api']:6.2f}{cells[2]:6.0f}{ratios['cli']:6.2f}{cells[3]:6.0f}{cells[4]:6.0f}{cells[5]:6.0f}{cells[6]:7.0f}",
                flush=True,
            )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
