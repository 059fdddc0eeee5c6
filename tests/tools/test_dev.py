"""What each command of `tools/dev.py` starts."""

from __future__ import annotations

import sys
from pathlib import Path

import dev
import pytest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that a command starts, by the word that tells them apart."""
    words: list[str] = []

    def note(program: str, *arguments: str, **_: str) -> None:
        words.append(Path(arguments[0]).stem if program == "python" else program)

    monkeypatch.setattr(dev, "setup", lambda: words.append("setup"))
    monkeypatch.setattr(dev, "run", note)
    monkeypatch.setattr(dev, "begin", lambda *arguments, waits=False: note(*arguments) or (lambda: None))
    monkeypatch.setenv("LIGHTNET_SAMPLE", "2026-11-22")
    return words


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("setup", ["setup"]),
        ("demo", ["setup", "squeezedet"]),
        ("docs", ["setup", "docs"]),
        ("check", ["setup", "check_types", "docs", "ruff", "ruff", "pytest"]),
        ("suites", ["setup", "check_types", "conformance"]),
        ("tests", ["setup", "fuzz", "fuzz", "pytest"]),
        ("test", ["setup", "check_types", "conformance", "fuzz", "fuzz", "pytest"]),
        ("full", ["setup", "check_types", "conformance", "fuzz", "fuzz", "pytest"]),
    ],
)
def test_a_command_starts_what_it_says(
    command: str, programs: list[str], started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["dev.py", command])
    dev.main()
    assert started == programs
