"""Options as GNU getopt_long_only takes them: ``-outfile x``, ``--out=x`` and ``-ox`` are one, anywhere on the line.

`argparse` reads a long option behind one dash as a cluster of short ones; so the line is brought into a form that it
reads as meant. Imports the standard library and diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lightnet.diagnostics import LightNetError


def canonical(argv: Sequence[str], options: Mapping[str, bool], short: Mapping[str, str]) -> list[str]:
    """`argv` with every option as ``--name`` or ``--name=value``, in front of the other arguments.

    `options` says of each long name whether it takes a value, `short` gives the long name of a letter. A long name may
    be cut short where that is unambiguous, and stand behind one dash where its first letter with nothing behind is no
    short option. ``--`` ends the options; ``-`` is an argument. Raises `LightNetError` for an unknown or ambiguous
    option, and for a value that is missing or not asked for.
    """
    found: list[str] = []
    others: list[str] = []
    line = iter(argv)
    for word in line:
        if word == "--":
            others += line
        elif word == "-" or not word.startswith("-"):
            others.append(word)
        elif word.startswith("--") or len(word) > 2 or word[1] not in short:
            found += _long(word, line, options, short)
        else:
            found += _cluster(word[1:], line, options, short)
    return [*found, "--", *others]


def _long(word: str, line: Iterator[str], options: Mapping[str, bool], short: Mapping[str, str]) -> list[str]:
    name, equals, value = word.lstrip("-").partition("=")
    matches = [name] if name in options else [o for o in options if o.startswith(name)] if name else []
    if not matches and not word.startswith("--") and word[1] in short:
        return _cluster(word[1:], line, options, short)
    if len(matches) != 1:
        what = f"is ambiguous: {', '.join(f'--{m}' for m in matches)}" if matches else "is unknown"
        raise LightNetError(f"option '{word}' {what}")
    return [_option(word, matches[0], value if equals else None, line, options)]


def _cluster(letters: str, line: Iterator[str], options: Mapping[str, bool], short: Mapping[str, str]) -> list[str]:
    """Short options in one word; the rest of the word is the value of the first that takes one."""
    found: list[str] = []
    for i, letter in enumerate(letters):
        if letter not in short:
            raise LightNetError(f"option '-{letter}' is unknown")
        rest = letters[i + 1 :]
        if options[short[letter]]:
            return [*found, _option(f"-{letter}", short[letter], rest or None, line, options)]
        found.append(f"--{short[letter]}")
    return found


def _option(word: str, name: str, value: str | None, line: Iterator[str], options: Mapping[str, bool]) -> str:
    if not options[name]:
        if value is not None:
            raise LightNetError(f"option '{word}' takes no value")
        return f"--{name}"
    if value is None:
        value = next(line, None)
        if value is None:
            raise LightNetError(f"option '{word}' needs a value")
    return f"--{name}={value}"
