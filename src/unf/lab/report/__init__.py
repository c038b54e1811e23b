"""Reports: one page of HTML about a run, with its charts, tables and configuration.

from unf.lab import report
report.write("out/zoo")  # out/zoo/report.html
"""

from ._page import render, write
from ._runs import ReportError

__all__ = ["ReportError", "render", "write"]
