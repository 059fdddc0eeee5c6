"""Options of targets at the command line: those that their runtimes say (`ir/runtime.Option`), of our own targets or of
the one that is named, a plugin's too. Imports no xDSL unless a plugin's target is named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import RUNTIMES, runtime_of
from lightnet.ir.runtime import Option, Runtime

#: The target where nobody names one.
DEFAULT = "cpu"
#: The attribute of the arguments that has what is given: values by name.
GIVEN = "own_options"


class _Own(argparse.Action):
    """Keeps the value of a target's option."""

    def __init__(self, option_strings: Sequence[str], dest: str, option: Option, **rest: Any):
        self.option = option
        how = {"nargs": 0} if option.type is bool else {"metavar": option.metavar, "type": option.type}
        super().__init__(option_strings, GIVEN, default=argparse.SUPPRESS, **how, **rest)

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        value = True if self.option.type is bool else values
        setattr(namespace, GIVEN, {**getattr(namespace, GIVEN, {}), self.option.name: value})


def add_target(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    tool: str,
    argv: Sequence[str] | None,
    help: str,
    default: str | None = DEFAULT,
) -> None:
    """The option ``--target``, and those of `tool` that targets have of their own. Where `argv` names a target, the
    help shows its options alone; an option of another one is accepted here and refused by the compiler, which knows
    better what to say."""
    parser.add_argument("-t", "--target", metavar="NAME", default=default, help=help)
    parser.set_defaults(**{GIVEN: {}})
    named, runtime = _named(argv or ())
    runtimes = {**{name: RUNTIMES.get(name) for name in RUNTIMES}, **({named: runtime} if named and runtime else {})}
    rows: dict[str, dict[str, Option]] = {}
    for target, found in runtimes.items():
        for option in found.options:
            if tool in option.tools:
                rows.setdefault(option.flag, {})[target] = option
    for flag, by_target in rows.items():
        is_shown = runtime is None or named in by_target
        own = by_target.get(named or "") or next(iter(by_target.values()))
        texts = [
            f"{target}: {option.help}" for target, option in by_target.items() if runtime is None or target == named
        ]
        parser.add_argument(flag, action=_Own, option=own, help="; ".join(texts) if is_shown else argparse.SUPPRESS)


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The options of targets that the arguments give."""
    return dict(getattr(args, GIVEN, {}))


def _named(argv: Sequence[str]) -> tuple[str | None, Runtime | None]:
    """The target that arguments name, and its runtime, if both are known: plugins are loaded for that."""
    from lightnet.cli.network import add_load

    scan = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    scan.add_argument("-t", "--target")
    add_load(scan)
    try:
        found, _ = scan.parse_known_args([word for word in argv if word not in ("-h", "--help")])
    except (argparse.ArgumentError, SystemExit):
        return None, None  # the tool's own parser says what is wrong
    if found.target is None or found.target in RUNTIMES:
        return found.target, RUNTIMES.get(found.target) if found.target else None
    from lightnet.plugins import hold, release

    try:
        hold(found.load)  # for the tool, which loads it in a moment
        return found.target, runtime_of(found.target)
    except LightNetError:
        release()
        return None, None  # the tool meets what is wrong with it, too
