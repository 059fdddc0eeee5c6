"""The type checker, under a ceiling that may only fall: ``python tools/check_types.py [--record]``.

Runs mypy (its settings stand in pyproject.toml, its cache in .mypy_cache) and counts errors by part: a folder of the package, the files beside
them, or a package that stands beside. More than ``tools/type_ceilings.json`` has for a part is a failure, and its errors are shown; ``--record`` lowers the ceilings to what is there
now, and raises none.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tools" / "type_ceilings.json"
#: Errors of a part that are shown.
SHOWN = 40

_ERROR = re.compile(r"(?:lightnet|(?P<beside>lightnet_\w+))[/\\](?:(?P<part>\w+)[/\\])?[^:]*:\d+.*: error: ")


def errors() -> dict[str, list[str]]:
    """The lines of errors by part; ``.`` are the files beside the folders."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        sys.exit(f"mypy failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return by_part(done.stdout)


def by_part(text: str) -> dict[str, list[str]]:
    """The lines that mypy prints, by part."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if (match := _ERROR.match(line)) is not None:
            found[match["beside"] or match["part"] or "."].append(line)
    return dict(found)


def above(found: dict[str, list[str]], ceilings: dict[str, int]) -> list[str]:
    """The complaints: a line a part with more errors than it may have, and those errors."""
    lines = []
    for part, texts in sorted(found.items()):
        if len(texts) > (most := ceilings.get(part, 0)):
            lines += [
                f"{part}: {len(texts)} errors of types, and there may be {most}:",
                *(f"  {t}" for t in texts[:SHOWN]),
            ]
    return lines


def lowered(found: dict[str, list[str]], ceilings: dict[str, int]) -> dict[str, int]:
    """The ceilings for what is there now, none of which is higher; a part without errors needs none."""
    return {part: least for part, most in sorted(ceilings.items()) if (least := min(most, len(found.get(part, ()))))}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="lower the ceilings to what there is now")
    args = parser.parse_args()
    found, ceilings = errors(), json.loads(CEILINGS.read_text("utf-8"))
    if args.record:
        CEILINGS.write_text(json.dumps(lowered(found, ceilings), indent=2) + "\n", "utf-8")
    elif wrong := above(found, ceilings):
        sys.exit("\n".join(wrong))
    count, most = sum(map(len, found.values())), sum(ceilings.values())
    print(f"types: {count} errors, and there may be {most}" + (", which --record lowers" if count < most else ""))


if __name__ == "__main__":
    main()
