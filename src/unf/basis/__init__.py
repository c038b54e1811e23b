"""Algorithm 1: partitions, terms, and the plan that runs them fast. No parameters, no arrays."""

from ._cost import CostReport, cost_report
from ._plan import Core, Plan, count_terms, make_plan
from ._terms import Term, terms
from ._views import View

__all__ = [
    "Core",
    "CostReport",
    "Plan",
    "Term",
    "View",
    "cost_report",
    "count_terms",
    "make_plan",
    "terms",
]
