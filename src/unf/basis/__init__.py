"""Algorithm 1: partitions, terms, and the plan that runs them fast. No parameters, no arrays."""

from ._cost import CostReport, cost_report
from ._plan import Plan, count_terms, make_plan
from ._terms import Term, terms

__all__ = ["CostReport", "Plan", "Term", "cost_report", "count_terms", "make_plan", "terms"]
