"""Runs FileCheck tests in process: the RUN lines of a file, as lit would, without a Python start-up for
each command.

    // RUN: ln-opt %s --pass=plan | filecheck %s
    // RUN: not ln-opt %s --pass=nothing 2>&1 | filecheck %s --check-prefix=ERR

Our tools and `filecheck` are called as functions, with stdin, stdout and stderr replaced; any other command
is a child process. Understood: pipes, `&&`, `;`, redirections, `not`, `env A=B`, quotes, and the
substitutions %s %S %p %t %T %%. As in lit, a pipe fails if any command of it does. Beyond lit, a test fails
when it has no RUN line, when a directive (`// CHECK-NEXT:`, `// FOO:`) has a prefix that no RUN line reads,
or when it holds `expected-error` comments and no RUN line verifies them: such lines look like tests and are
none.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

SUFFIXES = (".mlir", ".net", ".json", ".py")
TOOLS = {
    "ln-opt": "lightnet.cli.ln_opt:main",
    "lightnet": "lightnet.cli.lightnet:main",
    "il2json": "lightnet.cli.il2json:main",
    "genwts": "lightnet_export.genwts:main",
}
FILECHECK = ("filecheck", "FileCheck")
#: Upper-case words that start a comment and are no directives.
NO_PREFIX = {"RUN", "COM", "REQUIRES", "TODO", "FIXME", "NOTE", "XXX", "SPDX-LICENSE-IDENTIFIER"}
TIMEOUT_S = 120

_RUN = re.compile(r"\bRUN:(.*)$")
_REQUIRES = re.compile(r"\bREQUIRES:(.*)$", re.MULTILINE)
_SUFFIX = r"(?:-(?:DAG|COUNT-\d+|NOT|EMPTY|NEXT|SAME|LABEL))?(?:\{LITERAL\})?"
_DIRECTIVE = re.compile(rf"^\s*(?://|#)\s*([A-Z][A-Z0-9_-]*?|(?i:check[\w -]*?)){_SUFFIX}:", re.MULTILINE)
_EXPECTED = re.compile(r"//.*\bexpected-(error|note)")
_TOKEN = re.compile(
    r"\s+|(?P<op>2>&1|&>|2>>|2>|>>|>|<|\|\||\||&&|;)|(?P<word>(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s|&;<>\"'\\])+)"
)


class TestFailure(Exception):
    """A test that failed; the text says which command, with its output."""

    __test__ = False  # pytest would collect it


@dataclass
class Command:
    """One command of a pipe: words (`not` and `env` taken off) and redirections."""

    words: list[str] = field(default_factory=list)
    inverted: bool = False
    env: dict[str, str] = field(default_factory=dict)
    stdin: str | None = None
    stdout: tuple[str, bool] | None = None  # path, append
    stderr: tuple[str, bool] | None = None
    merged: bool = False  # 2>&1 after (or without) a redirection of stdout
    swapped: bool = False  # 2>&1 before one: stderr goes into the pipe, stdout to the file


def collect(root: Path) -> list[Path]:
    """The test files below `root`, in order; folders called Inputs hold no tests."""
    files = (f for f in root.rglob("*") if f.suffix in SUFFIXES and not f.name.startswith("lit."))
    return sorted(f for f in files if "Inputs" not in f.parts and "__pycache__" not in f.parts)


def missing_features(path: Path) -> list[str]:
    """What the REQUIRES lines of a test ask for and this machine lacks: names of Python modules, or
    `linux`.
    """
    words = [w.strip() for line in _REQUIRES.findall(path.read_text("utf-8")) for w in line.split(",")]
    return [w for w in words if w and not _available(w)]


def _available(feature: str) -> bool:
    if feature == "linux":
        return sys.platform == "linux"
    try:
        import_module(feature)
    except ImportError:
        return False
    return True


def run_file(path: Path) -> None:
    """Run one test file. Raises `TestFailure`."""
    text = path.read_text("utf-8")
    lines = run_lines(text)
    if not lines:
        raise TestFailure(f"{path}: no RUN line")
    with tempfile.TemporaryDirectory() as tmp:
        scripts = [(line, list(parse(substitute(line, path, tmp), line))) for line in lines]
        check_directives(path, text, [c for _, script in scripts for _, pipe in script for c in pipe])
        with chdir(tmp):
            for line, script in scripts:
                run_script(line, script)


def run_lines(text: str) -> list[str]:
    """The commands of the RUN lines; a line that ends in a backslash goes on in the next RUN line."""
    commands: list[str] = []
    joining = False
    for line in text.splitlines():
        if (match := _RUN.search(line)) is None:
            continue
        part = match[1].strip()
        if joining:
            commands[-1] += " " + part.removesuffix("\\").strip()
        else:
            commands.append(part.removesuffix("\\").strip())
        joining = part.endswith("\\")
    return commands


def substitute(line: str, path: Path, tmp: str) -> str:
    values = {"%": "%", "s": str(path), "S": str(path.parent), "p": str(path.parent), "T": tmp,
              "t": f"{tmp}/{path.name}.tmp"}  # fmt: skip
    return re.sub(r"%([%sSptT])(?![\w])", lambda m: values[m[1]], line)


# -- the shell ---------------------------------------------------------------------------------------------


def parse(text: str, line: str) -> Iterator[tuple[str, list[Command]]]:
    """The pipes of a command line, each with the operator before it (``;`` or ``&&``)."""
    if "`" in text or "$(" in text or "||" in text:
        raise TestFailure(f"RUN line uses shell syntax that this runner does not know: {line}")
    operator, pipe, words = ";", [], Command()
    pos, pending = 0, None
    while pos < len(text):
        token = _TOKEN.match(text, pos)
        if token is None:
            raise TestFailure(f"RUN line cannot be parsed: {line}")
        pos = token.end()
        if token["word"]:
            pending = _word(words, pending, _unquote(token["word"]))
        elif token["op"] == "|":
            pipe.append(_finished(words, line))
            words = Command()
        elif token["op"] in ("&&", ";"):
            yield operator, [*pipe, _finished(words, line)]
            operator, pipe, words = token["op"], [], Command()
        elif token["op"] == "2>&1":
            words.merged = True
        elif token["op"]:
            pending = token["op"]
    if words.words or pipe:
        yield operator, [*pipe, _finished(words, line)]


def _word(command: Command, redirection: str | None, word: str) -> None:
    if redirection is None:
        command.words.append(word)
    elif redirection == "<":
        command.stdin = word
    elif redirection.startswith("2"):
        command.stderr = (word, redirection == "2>>")
    else:
        command.stdout = (word, redirection == ">>")
        command.swapped, command.merged = command.merged, redirection == "&>"


def _unquote(word: str) -> str:
    def plain(m: re.Match[str]) -> str:
        if m[0][0] == "'":
            return m[0][1:-1]
        return re.sub(r"\\(.)", r"\1", m[0][1:-1] if m[0][0] == '"' else m[0])

    return re.sub(r"\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.", plain, word)


def _finished(command: Command, line: str) -> Command:
    while command.words and command.words[0] in ("not", "env"):
        prefix = command.words.pop(0)
        command.inverted ^= prefix == "not"
        while prefix == "env" and command.words and "=" in command.words[0]:
            key, _, value = command.words.pop(0).partition("=")
            command.env[key] = value
    if not command.words:
        raise TestFailure(f"RUN line has an empty command: {line}")
    return command


def run_script(line: str, script: list[tuple[str, list[Command]]]) -> None:
    """Run the pipes of one RUN line; each must succeed."""
    for _, pipe in script:
        data, log = b"", []
        for command in pipe:
            status, data, err = run_command(command, data)
            log.append(f"$ {' '.join(command.words)}  (status {status})\n{err.decode('utf-8', 'replace')}")
            if (status != 0) is not command.inverted:
                shown = data.decode("utf-8", "replace")[:4000]
                raise TestFailure(f"RUN: {line}\n" + "\n".join(log) + f"\nstdout:\n{shown}")


def run_command(command: Command, data: bytes) -> tuple[int, bytes, bytes]:
    """(exit status, stdout, stderr); what is redirected goes to its file."""
    if command.stdin is not None:
        data = Path(command.stdin).read_bytes()
    name = Path(command.words[0]).name
    call: Callable[[Command, bytes], tuple[int, bytes, bytes]] = _child
    if name in TOOLS or name in FILECHECK:
        call = _in_process
    status, out, err = call(command, data)
    if command.stdout is not None:
        out = _redirect(out, command.stdout)
    if command.swapped:
        out, err = err, b""
    if command.stderr is not None:
        err = _redirect(err, command.stderr)
    return status, out, err


def _redirect(data: bytes, target: tuple[str, bool]) -> bytes:
    with open(target[0], "ab" if target[1] else "wb") as f:
        f.write(data)
    return b""


def _child(command: Command, data: bytes) -> tuple[int, bytes, bytes]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        done = subprocess.run(
            command.words,
            input=data,
            env={**os.environ, "PATH": path, **command.env},
            timeout=TIMEOUT_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if command.merged else subprocess.PIPE,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise TestFailure(f"cannot run {command.words[0]}: {e}") from e
    return done.returncode, done.stdout, done.stderr or b""


def _in_process(command: Command, data: bytes) -> tuple[int, bytes, bytes]:
    name = Path(command.words[0]).name
    with _streams(data, command) as (out, err):
        try:
            if name in FILECHECK:
                from filecheck.main import main

                status = main(list(command.words))
            else:
                module, _, attribute = TOOLS[name].partition(":")
                status = getattr(import_module(module), attribute)(command.words[1:])
        except SystemExit as e:
            status = e.code if isinstance(e.code, int | None) else 1
        except Exception:
            # An exception that leaves a tool is a crash: no test may expect it with `not`.
            raise TestFailure(f"{' '.join(command.words)} crashed:\n{traceback.format_exc()}") from None
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return status or 0, out.getvalue(), b"" if err is out else err.getvalue()


@contextmanager
def _streams(data: bytes, command: Command) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Replace the standard streams and the environment. stdin is a real file: tools read its descriptor."""
    out = io.BytesIO()
    err = out if command.merged else io.BytesIO()
    saved = sys.stdin, sys.stdout, sys.stderr
    old_env = {key: os.environ.get(key) for key in command.env}
    with tempfile.TemporaryFile() as stdin:
        stdin.write(data)
        stdin.seek(0)
        os.environ.update(command.env)
        sys.stdin = io.TextIOWrapper(stdin, encoding="utf-8")
        sys.stdout, sys.stderr = (io.TextIOWrapper(s, "utf-8", write_through=True) for s in (out, err))
        wrappers = sys.stdin, sys.stdout, sys.stderr
        try:
            yield out, err
        finally:
            for wrapper in wrappers:
                wrapper.flush() if wrapper.writable() else None
                wrapper.detach()
            sys.stdin, sys.stdout, sys.stderr = saved
            for key, value in old_env.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


# -- lines that look like tests and are none ---------------------------------------------------------------


def check_directives(path: Path, text: str, commands: list[Command]) -> None:
    """Refuse directives that no `filecheck` of the RUN lines reads. Raises `TestFailure`."""
    read = {p for c in commands if Path(c.words[0]).name in FILECHECK for p in prefixes(c.words[1:])}
    for match in _DIRECTIVE.finditer(text):
        if match[1] not in read and match[1] not in NO_PREFIX:
            line = text.count("\n", 0, match.start(1)) + 1
            raise TestFailure(f"{path}:{line}: no RUN line reads the prefix of '{match[0].strip()}'")
    present = {match[1] for match in _DIRECTIVE.finditer(text)}
    for prefix in sorted(read - present):
        raise TestFailure(f"{path}: a RUN line reads the prefix {prefix}, which no line has")
    verified = any("--verify-diagnostics" in c.words for c in commands)
    if not verified and (match := _EXPECTED.search(text)) is not None:
        line = text.count("\n", 0, match.start()) + 1
        raise TestFailure(f"{path}:{line}: an expectation, but no RUN line has --verify-diagnostics")


def prefixes(words: list[str]) -> list[str]:
    """The check prefixes of a `filecheck` command."""
    found: list[str] = []
    for i, word in enumerate(words):
        match = re.fullmatch(r"--?check-prefix(?:es)?(?:=(.*))?", word)
        if match is not None:
            value = match[1] if match[1] is not None else "".join(words[i + 1 : i + 2])
            found += value.split(",")
    return found or ["CHECK"]
