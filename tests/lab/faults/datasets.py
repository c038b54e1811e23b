"""Small archives and files of arrays."""

import io
import tarfile
import zipfile

import numpy as np


def tar(members):
    """An archive that is not compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), {"comment": "x"}
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def npz(**arrays):
    """The members of a file of arrays."""
    members = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        members[f"{name}.npy"] = buffer.getvalue()
    return members


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
