"""`unf doctor`: versions, devices, memory, data: what to look at first when something fails."""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from typing import Any

import jax

from .._version import __version__
from ..data import catalogue
from ._options import Help

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "safetensors")
EXTRAS = {
    "zoo": ("tensorstore", "sklearn"),
    "plots": ("matplotlib",),
    "text": ("tokenizers",),
    "tensorboard": ("tensorboardX",),
}
_WARN_FREE = 2**30


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="versions, devices, memory and data of this installation",
        description="What is installed, which devices JAX sees, which data are found.",
        epilog="examples:\n  unf doctor\n  unf doctor --json > report.json\n",
        formatter_class=Help,
    )
    parser.add_argument("--json", action="store_true", help="for scripts and bug reports")
    parser.set_defaults(run=_run)


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
        "free_disk_bytes": shutil.disk_usage(".").free,
        "data_folder": os.environ.get("UNF_DATA"),
        "data": {entry.name: f"{entry.status}: {entry.note}" for entry in catalogue()},
    }


def _run(options: argparse.Namespace) -> int:
    found = examine()
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    print(f"unf {found['unf']}, Python {found['python']}, {found['system']}")
    print(", ".join(f"{name} {version}" for name, version in found["packages"].items()))
    for extra, missing in found["extras"].items():
        remedy = f"pip install 'universal-neural-functionals[{extra}]'"
        without = f"without {', '.join(missing)}; run: {remedy}"
        print(f"extra [{extra}]: {without if missing else 'installed'}")
    for device in found["devices"]:
        limit = device["memory_bytes"]
        memory = f", {limit / 2**30:.1f} GiB" if limit else ""
        print(f"device {device['id']}: {device['kind']}{memory}")
    free = found["free_disk_bytes"]
    low = " (little: zoos and checkpoints need room)" if free < _WARN_FREE else ""
    print(f"{found['cores']} cores, {free / 2**30:.1f} GiB free here{low}")
    print(f"data in {found['data_folder'] or 'no folder: UNF_DATA is not set'}")
    for name, note in found["data"].items():
        print(f"  {name}: {'missing' if note.startswith('missing') else note}")
    if any(note.startswith("missing") for note in found["data"].values()):
        print("  how to get what is missing: unf data info")
    return 0


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(device: Any) -> dict[str, Any]:
    stats = device.memory_stats() or {}
    return {"id": device.id, "kind": device.device_kind, "memory_bytes": stats.get("bytes_limit")}
