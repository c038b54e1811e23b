"""Pictures of weight spaces, terms and layers, as SVG and HTML in strings."""

from ._coefficients import draw_coefficients
from ._notebook import to_html
from ._space import draw_space
from ._terms import draw_terms

__all__ = ["draw_coefficients", "draw_space", "draw_terms", "to_html"]
