"""`unf doctor`: versions, devices, memory, data: what to look at first when something fails."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from typing import Any

import jax

from ..._version import __version__
from .._option import option
from ..data import catalogue
from ._command import Command
from ._shared import print_json

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "safetensors")
EXTRAS = {
    "zoo": ("tensorstore", "sklearn"),
    "plots": ("matplotlib",),
    "text": ("tokenizers",),
    "tensorboard": ("tensorboardX",),
    "completion": ("shtab",),
}
_WARN_FREE = 2**30


@dataclass(frozen=True, kw_only=True)
class Doctor(Command):
    """Show versions, devices, memory and data of this installation."""

    examples = "  unf doctor\n  unf doctor --json > report.json\n"
    json: bool = option(False, "for scripts and bug reports", passing=True)

    def run(self) -> int:
        """Print all of it."""
        found = examine()
        print_json(found) if self.json else _show(found)
        return 0


def examine() -> dict[str, Any]:
    """Everything that the command shows."""
    return {
        "unf": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "extras": {
            extra: [name for name in names if importlib.util.find_spec(name) is None]
            for extra, names in EXTRAS.items()
        },
        "devices": [_device(device) for device in jax.devices()],
        "processes": jax.process_count(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "free_disk_bytes": shutil.disk_usage(".").free,
        "data_folder": os.environ.get("UNF_DATA"),
        "data": {entry.name: f"{entry.status}: {entry.note}" for entry in catalogue()},
    }


def _show(found: dict[str, Any]) -> None:
    print(f"unf {found['unf']}, Python {found['python']}, {found['system']}")
    print(", ".join(f"{name} {version}" for name, version in found["packages"].items()))
    for extra, missing in found["extras"].items():
        remedy = f"pip install 'universal-neural-functionals[{extra}]'"
        without = f"without {', '.join(missing)}; run: {remedy}"
        print(f"extra [{extra}]: {without if missing else 'installed'}")
    for device in found["devices"]:
        limit = device["memory_bytes"]
        room = f", {limit / 2**30:.1f} GiB" if limit else ""
        print(f"device {device['id']}: {device['kind']}{room}")
    free, memory = found["free_disk_bytes"], found["memory_bytes"]
    low = " (little: zoos and checkpoints need room)" if free < _WARN_FREE else ""
    room = f"{memory / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB free here{low}"
    print(f"{found['cores']} cores, {room}")
    print(f"data in {found['data_folder'] or 'no folder: UNF_DATA is not set'}")
    for name, note in found["data"].items():
        print(f"  {name}: {'missing' if note.startswith('missing') else note}")
    if any(note.startswith("missing") for note in found["data"].values()):
        print("  how to get what is missing: unf data info")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(device: Any) -> dict[str, Any]:
    stats = device.memory_stats() or {}
    return {"id": device.id, "kind": device.device_kind, "memory_bytes": stats.get("bytes_limit")}


COMMANDS: dict[str, type[Command]] = {"doctor": Doctor}
