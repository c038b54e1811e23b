"""Where a result comes from: versions, machine and date."""

import datetime
import platform

import jax

from .._version import __version__


def provenance() -> dict[str, str]:
    """Versions, machine and date, to store with a result."""
    return {
        "unf": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "date": datetime.date.today().isoformat(),
    }
