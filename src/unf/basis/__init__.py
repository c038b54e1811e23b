"""Algorithm 1: partitions, terms, and the plan that runs them fast. No parameters, no arrays."""

from ._cost import Cost, CostReport, core_parameters, cost_report
from ._picture import picture
from ._plan import Core, Plan, Port, Stack, count_terms, make_plan, views_used
from ._spread import Cut, spread_axes, spread_blocks
from ._terms import Term, core_terms, terms
from ._views import Step, View, constant_view

__all__ = [
    "Core",
    "Cost",
    "CostReport",
    "Cut",
    "Plan",
    "Port",
    "Stack",
    "Step",
    "Term",
    "View",
    "constant_view",
    "core_parameters",
    "core_terms",
    "cost_report",
    "count_terms",
    "make_plan",
    "picture",
    "spread_axes",
    "spread_blocks",
    "terms",
    "views_used",
]
