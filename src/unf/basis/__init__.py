"""Algorithm 1: partitions, terms, and the plan that runs them fast. No parameters, no arrays."""

from ._plan import Core, Plan, Port, Stack, count_terms, make_plan

__all__ = ["Core", "Plan", "Port", "Stack", "count_terms", "make_plan"]
