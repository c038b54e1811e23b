"""Datasets: images and text, from prepared arrays, official files or packages."""

from ._catalogue import Entry, catalogue
from ._images import DATASETS, load_images
from ._prepare import prepare
from ._text import TEXTS, UNITS, load_text
from ._types import DataError, Images, MissingDataError, Text

__all__ = [
    "DATASETS",
    "TEXTS",
    "UNITS",
    "DataError",
    "Entry",
    "Images",
    "MissingDataError",
    "Text",
    "catalogue",
    "load_images",
    "load_text",
    "prepare",
]
