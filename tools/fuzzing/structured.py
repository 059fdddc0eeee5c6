"""Mutants of JSON documents and of protocol buffers: changes of values and fields at any depth."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from fuzzing.mutate import FLOATS, NUMBERS, Pool, of_bytes, of_text


def of_json(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A few changes of the values of a JSON document; sometimes of its text, and always where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return of_text(data, pool, rng)
    if rng.random() < 0.25:
        return of_text(data, pool, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        document = _changed(document, rng)
    return json.dumps(document, indent=rng.choice((None, 1))).encode()


def of_protobuf(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A few changes of the fields of a message at any depth; sometimes of its bytes."""
    if rng.random() < 0.15 or (message := _message(data)) is None:
        return of_bytes(data, pool, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change_field(message, pool, rng)
    return _written(message)


# -- JSON


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every value inside of a document as its container and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        _places(inner, found)
    return found


def _changed(document: Any, rng: random.Random) -> Any:
    places = _places(document, [])
    if not places:
        return rng.choice(([], {}, None, 1))
    container, key = rng.choice(places)
    value = container[key]
    match rng.randrange(6):
        case 0:
            del container[key]
        case 1:
            other, name = rng.choice(places)
            container[key] = copy.deepcopy(
                other.get(name) if isinstance(other, dict) else other[min(name, len(other) - 1)] if other else 0
            )
        case 2 if isinstance(container, list):
            container.insert(key, copy.deepcopy(value))
        case 2 | 3 if isinstance(value, int | float):
            container[key] = rng.choice(NUMBERS + FLOATS)
        case 3 | 4 if isinstance(value, str):
            container[key] = of_text(value.encode(), [json.dumps(document).encode()[:4096]], rng).decode(
                "utf-8", "replace"
            )
        case _:
            container[key] = rng.choice(
                (None, True, "", "x", [], {}, [value], {"name": value}, rng.choice(NUMBERS), 0.5)
            )
    return document


# -- protocol buffers: a message is a list of [field, wire type, value]; a value of bytes may be a message


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError


def _message(data: bytes) -> list[list[Any]] | None:
    """The fields of a message; None where the bytes are none."""
    fields, at = [], 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            kind, size = tag & 7, {1: 8, 5: 4}.get(tag & 7, 0)
            if tag >> 3 == 0 or kind not in (0, 1, 2, 5):
                return None
            if kind == 0:
                value, at = _varint(data, at)
                fields.append([tag >> 3, kind, value])
                continue
            if kind == 2:
                size, at = _varint(data, at)
            if at + size > len(data):
                return None
            fields.append([tag >> 3, kind, data[at : at + size]])
            at += size
    except (IndexError, ValueError):
        return None
    return fields


def _change_field(fields: list[list[Any]], pool: Pool, rng: random.Random) -> None:
    """One change, of a field here or inside of one."""
    if not fields:
        return
    at = rng.randrange(len(fields))
    number, kind, value = fields[at]
    if kind == 2 and value and rng.random() < 0.75 and (inner := _message(value)):
        _change_field(inner, pool, rng)
        fields[at][2] = _written(inner)
        return
    match rng.randrange(6):
        case 0:
            del fields[at]
        case 1:
            fields.insert(at, [number, kind, value])
        case 2:
            fields[at] = list(rng.choice(fields))
            fields[at][0] = rng.choice((number, fields[at][0]))
        case 3:
            fields[at][0] = rng.choice((number + 1, max(1, number - 1), 1, 20))
        case _ if kind == 0:
            fields[at][2] = rng.choice(NUMBERS) % 2**64
        case _ if kind == 2:
            fields[at][2] = rng.choice((of_text, of_bytes))(value, pool and [rng.choice(pool)[:256]], rng)
        case _:
            fields[at][2] = bytes(rng.randrange(256) for _ in value)


def _written(fields: list[list[Any]]) -> bytes:
    out = bytearray()
    for number, kind, value in fields:
        out += _encoded(number << 3 | kind)
        out += _encoded(value) if kind == 0 else (_encoded(len(value)) if kind == 2 else b"") + value
    return bytes(out)


def _encoded(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])
