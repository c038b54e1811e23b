"""Reports: one page of HTML about a run, with its charts, figures and configuration.

unf.lab.report.write("out/zoo")  # out/zoo/report.html
"""

from ._errors import ReportError
from ._report import render, write

__all__ = ["ReportError", "render", "write"]
