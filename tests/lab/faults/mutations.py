"""Files and descriptions with something wrong in them."""

import json
import struct
from copy import deepcopy

from unf._arrays import _checksum

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 10**6, 2**31 - 1, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63)),
    *(10**30, 10**400, 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan")),
)
STRINGS = (
    *("", " ", "x", "a b", "float32", "float64", "object", "|O", "relu", "jnp", "unf", "0", "-1"),
    *("../../x", "/x", "a/../..", "..", "\0", "\n", "\ud800", "é" * 9, "x" * 5000, "(" * 3000),
    *("F64", "F8_E4M3", "F4", "BF16", "I8", "U64", "BOOL", "C64", "%s%n", "{0}", "__class__"),
)
BYTES = (
    *(b"", b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"9" * 30, b"-", b"1e999", b"NaN", b"null"),
    *(b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"\xc3\x28", b"\xef\xbb\xbf", b"(", b"]", b"}"),
)


def changed_bytes(rng, data, start=0):
    """The bytes with a few places behind `start` altered, put in, taken out, or the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        i = min(start + rng.randrange(max(len(out) - start, 1)), len(out))
        j = min(i + rng.choice((1, 1, 2, 8, 60)), len(out))
        match rng.randrange(7):
            case 0 | 1 if i < len(out):
                out[i] ^= 1 << rng.randrange(8)
            case 2 if i < len(out):
                out[i] = rng.randrange(256)
            case 3:
                del out[i:j]
            case 4:
                out[i:i] = rng.choice(BYTES)
            case 5:
                out[i:j] = out[j : j + j - i]
            case 6:
                del out[i:]
    return bytes(out)


def changed_value(rng, value):
    """Something else than a value of JSON, often much like it."""
    kind = rng.randrange(6)
    if kind == 0 or value is None:
        return rng.choice((*NUMBERS, None, True, False, [], {}, [[]], {"": None}))
    if kind == 1:
        return rng.choice(STRINGS)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, value * 1000, [value], str(value)))
    if isinstance(value, str):
        text = list(value or "x")
        i = rng.randrange(len(text))
        text[i : i + rng.randrange(3)] = rng.choice(("", "(", "]", " ", "+", "9", ".", "a", "\0"))
        return "".join(text)
    if isinstance(value, list) and value:
        out = [deepcopy(x) for x in value]
        i = rng.randrange(len(out))
        match rng.randrange(5):
            case 0:
                del out[i]
            case 1:
                out.insert(i, deepcopy(rng.choice(out)))
            case 2:
                out.append(rng.choice(NUMBERS))
            case 3:
                rng.shuffle(out)
            case 4:
                out = out * 40
        return out
    if isinstance(value, dict) and value:
        out = deepcopy(value)
        key = rng.choice(list(out))
        match rng.randrange(4):
            case 0:
                del out[key]
            case 1:
                out[rng.choice(STRINGS)] = out.pop(key)
            case 2:
                out[rng.choice(STRINGS)] = deepcopy(out[key])
            case 3:
                out = list(out.items())
        return out
    return deep(rng.choice((50, 500, 5000)))


def deep(levels):
    """Lists in lists; few levels enough that Python itself can write them."""
    value = []
    for _ in range(min(levels, 300)):
        value = [value]
    return value


def changed_json(rng, value):
    """The same tree with one to three nodes altered; the tree itself is left as it is."""
    value = deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed_node(rng, value)
    return value


def _changed_node(rng, value):
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return changed_value(rng, value)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    value[key] = _changed_node(rng, value[key])
    return value


def unpacked(data):
    """The header and the numbers of a safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def packed(header, numbers, length=None):
    """A safetensors file; `length` is what it says its header's length is."""
    text = (header if isinstance(header, str) else dumps(header)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text) if length is None else length) + text + numbers


def sealed(data):
    """The file with the checksum that it would have been written with, if it can have one."""
    try:
        header, numbers = unpacked(data)
        header["__metadata__"]["sum"] = _checksum(data)
        return packed(header, numbers)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return data


def dumps(value):
    """As JSON, with numbers that Python would rather not print."""
    return json.dumps(value, ensure_ascii=False)


def changed_file(rng, data):
    """A file of `write_arrays` with something altered; most often the checksum is made to fit."""
    altered = _changed_file(rng, data)
    return altered if rng.random() < 0.1 else sealed(altered)


def _changed_file(rng, data):
    header, numbers = unpacked(data)
    match rng.randrange(6):
        case 0:
            return changed_bytes(rng, data, rng.choice((0, 0, 0, 8, len(data) - len(numbers))))
        case 1:
            return packed(changed_json(rng, header), numbers)
        case 2:
            name = rng.choice([name for name in header if name != "__metadata__"])
            header[name] = changed_json(rng, header[name])
            return packed(header, numbers)
        case 3:
            length = rng.choice((0, 1, 7, 10**8, 10**8 + 1, 2**31, 2**63, 2**64 - 1, len(data)))
            return packed(header, numbers, length)
        case _:
            text = header["__metadata__"]["unf"]
            if rng.random() < 0.2:
                altered = changed_bytes(rng, text.encode()).decode("utf-8", "replace")
            else:
                altered = dumps(_changed_description(rng, json.loads(text)))
            header["__metadata__"]["unf"] = altered
            return packed(header, numbers)


def _changed_description(rng, description):
    """The description altered; half of the time in the JSON that is a string within it."""
    inner = [name for name, x in description.items() if isinstance(x, str) and x[:1] == "{"]
    if inner and rng.random() < 0.5:
        name = rng.choice(inner)
        return description | {name: dumps(changed_json(rng, json.loads(description[name])))}
    return changed_json(rng, description)
