"""`unf data` and `unf doctor`: datasets, versions and devices of this installation."""

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
from tyro.conf import Positional, arg

from ..._progress import say
from ..._version import __version__
from ..data._catalogue import catalogue, prepare
from ..data._images import DATASETS
from ..data._text import TEXTS, UNITS
from ._command import Command, Data, one_of, print_json, with_flags

_NAMES = (*(name for name, file in DATASETS.items() if file), *TEXTS)
_PACKAGES = (
    "jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "safetensors", "jinja2",
    "matplotlib", "scikit-learn", "tensorboardX", "tensorstore", "tokenizers", "tqdm", "tyro",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Prepare(Command):
    """Make a small prepared file from the official files of a dataset.

    Examples:
        unf data prepare fashion-mnist --data downloads --out prepared
        unf data prepare lm1b --unit subwords --vocabulary 4096 --data downloads --out prepared
    """

    name: Annotated[Positional[str], one_of(_NAMES)]  # Which dataset.
    data: Data = None  # Folder with the official files; the variable UNF_DATA by default.
    out: Annotated[Path, arg(metavar="DIR")]  # Folder for the prepared file.
    unit: Annotated[str, one_of(tuple(UNITS))] = "bytes"  # What texts are divided into.
    vocabulary: int = 4096  # The largest number of subwords.

    def run(self) -> None:
        """Prepare the dataset, and print where the file is."""
        say(f"preparing {self.name} …")
        print(prepare(self.name, self.data, self.out, unit=self.unit, vocabulary=self.vocabulary))


@dataclass(frozen=True, kw_only=True)
class DataInfo(Command):
    """List the datasets that are there, and what is in them.

    Examples:
        unf data info --data downloads
        UNF_DATA=prepared unf data info
    """

    data: Data = None  # Folder to look in; the variable UNF_DATA by default.
    json: bool = False  # Print JSON, for scripts.

    def run(self) -> int:
        """List everything; returns 1 if a file is damaged."""
        entries = catalogue(self.data)
        if self.json:
            print_json({e.name: {**e._asdict(), "path": e.path and str(e.path)} for e in entries})
        else:
            width = max(len(entry.name) for entry in entries)
            for entry in entries:
                source = entry.path or ("built in" if entry.status == "found" else "")
                print(f"{entry.name:{width}}  {entry.status:7}  {source}".rstrip())
                print(f"{'':{width}}  {with_flags(entry.note, {'data'})}")
        return int(any(entry.status == "damaged" for entry in entries))


@dataclass(frozen=True, kw_only=True)
class Doctor(Command):
    """Show versions, devices, memory and datasets of this installation.

    Examples:
        unf doctor
        unf doctor --json > report.json
    """

    json: bool = False  # Print JSON, for scripts and bug reports.

    def run(self) -> None:
        """Print all of it."""
        found = {
            "unf": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "devices": [_device(device) for device in jax.devices()],
            "processes": jax.process_count(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "free_disk_bytes": shutil.disk_usage(".").free,
            "data_folder": os.environ.get("UNF_DATA"),
            "data": {entry.name: f"{entry.status}: {entry.note}" for entry in catalogue()},
        }
        print_json(found) if self.json else _show(found)


def _device(device: Any) -> dict[str, Any]:
    stats = device.memory_stats() or {}
    return {"id": device.id, "kind": device.device_kind, "memory_bytes": stats.get("bytes_limit")}


def _show(found: dict[str, Any]) -> None:
    print(f"unf {found['unf']}, Python {found['python']}, {found['system']}")
    print(", ".join(f"{name} {version}" for name, version in found["packages"].items()))
    for device in found["devices"]:
        room = f", {device['memory_bytes'] / 2**30:.1f} GiB" if device["memory_bytes"] else ""
        print(f"device {device['id']}: {device['kind']}{room}")
    free, memory = (found[key] / 2**30 for key in ("free_disk_bytes", "memory_bytes"))
    print(f"{found['cores']} cores, {memory:.1f} GiB of memory, {free:.1f} GiB of disk free here")
    print(f"datasets in {found['data_folder'] or 'no folder: UNF_DATA is not set'}")
    for name, note in found["data"].items():
        print(f"  {name}: {'missing (see unf data info)' if note.startswith('missing') else note}")
