"""Small images and text: built in, from prepared arrays, or from official files."""

from ._catalogue import catalogue, prepare
from ._files import DataError, MissingDataError
from ._images import DATASETS, Images, load_images
from ._text import TEXTS, UNITS, Text, load_text

__all__ = [
    "DATASETS",
    "TEXTS",
    "UNITS",
    "DataError",
    "Images",
    "MissingDataError",
    "Text",
    "catalogue",
    "load_images",
    "load_text",
    "prepare",
]
