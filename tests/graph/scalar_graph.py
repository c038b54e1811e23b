"""The computation graph of single numbers, and the order of its automorphism group.

An independent way to the symmetries of a tiny network: evaluate its jaxpr on arrays whose
entries are vertices, one for each number ever computed, equal numbers once. Sums, products and
maxima do not care for the order of what goes in; everything else does. An automorphism that
keeps inputs and outputs in place, and each parameter's entries among themselves, is a
permutation of weights that leaves the function alone.
"""

from collections import Counter
from math import factorial, prod
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
import pynauty

from unf import WeightSpace

COMMUTATIVE = {"add": "sum", "mul": "mul", "max": "max", "add_any": "sum"}
ORDERED = {
    "sub", "div", "exp", "tanh", "sin", "log", "neg", "sqrt", "rsqrt", "logistic", "pow", "gt",
    "ge", "lt", "le", "eq", "select_n", "integer_pow", "square", "stop_gradient", "erf", "cos",
    "convert_element_type", "abs", "sign", "log1p", "expm1",
}  # fmt: skip


class ScalarGraph:
    """Vertices keyed by what they compute."""

    def __init__(self) -> None:
        self.index: dict[tuple, int] = {}
        self.keys: list[tuple] = []

    def vertex(self, *key: Any) -> int:
        if key not in self.index:
            self.index[key] = len(self.keys)
            self.keys.append(key)
        return self.index[key]

    def array(self, kind: str, shape: tuple[int, ...], *label: Any) -> np.ndarray:
        flat = [self.vertex(kind, *label, i) for i in range(int(np.prod(shape)))]
        return np.array(flat, dtype=object).reshape(shape)

    def constant(self, values: Any) -> np.ndarray:
        values = np.asarray(values)
        flat = [self.vertex("constant", float(v)) for v in values.ravel()]
        return np.array(flat, dtype=object).reshape(values.shape)

    def unordered(self, kind: str, operands: list[int]) -> int:
        counts: Counter[int] = Counter()
        for operand in operands:
            if self.keys[operand][0] == kind:
                counts.update(dict(self.keys[operand][1]))
            else:
                counts[operand] += 1
        if len(counts) == 1 and sum(counts.values()) == 1:
            return next(iter(counts))
        if kind == "max":
            counts = Counter(dict.fromkeys(counts, 1))
        return self.vertex(kind, tuple(sorted(counts.items())))

    def ordered(self, kind: str, *operands: int) -> int:
        return self.vertex(kind, *operands)

    # --- evaluating a jaxpr ----------------------------------------------------------------

    def run(self, jaxpr: Any, consts: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
        environment = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        environment.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> np.ndarray:
            return self.constant(atom.val) if isinstance(atom, jex.Literal) else environment[atom]

        for eqn in jaxpr.eqns:
            results = self.equation(eqn, [read(atom) for atom in eqn.invars])
            environment.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
        name, params = eqn.primitive.name, eqn.params
        for key in ("jaxpr", "call_jaxpr"):
            if key in params and name != "scan":
                inner = params[key]
                consts = getattr(inner, "consts", ())
                return self.run(getattr(inner, "jaxpr", inner), consts, operands)
        if name == "scan":
            return self.scan(params, operands)
        shape = eqn.outvars[0].aval.shape
        if name in COMMUTATIVE or name in ORDERED:
            return [self.elementwise(name, params, operands, shape)]
        if name in ("reduce_sum", "reduce_max"):
            return [self.reduce("sum" if name == "reduce_sum" else "max", operands[0], params)]
        if name == "split":
            ends = np.cumsum(params["sizes"])[:-1]
            return np.split(operands[0], ends, axis=params["axis"])
        return [self.structural(name, params, operands, shape)]

    def scan(self, params: dict, operands: list[np.ndarray]) -> list[np.ndarray]:
        consts, carry = params["num_consts"], params["num_carry"]
        fixed, state, rows = (
            operands[:consts], operands[consts : consts + carry], operands[consts + carry :]
        )  # fmt: skip
        body, collected = params["jaxpr"], []
        positions = range(params["length"])
        for i in reversed(positions) if params["reverse"] else positions:
            results = self.run(body.jaxpr, body.consts, [*fixed, *state, *(x[i] for x in rows)])
            state = results[:carry]
            collected.append(results[carry:])
        if params["reverse"]:
            collected.reverse()
        return [*state, *(np.stack(column) for column in zip(*collected, strict=True))]

    def elementwise(self, name, params, operands, shape) -> np.ndarray:
        wide = [np.broadcast_to(x, shape).ravel() for x in operands]
        kind = name if name != "integer_pow" else f"pow{params['y']}"
        if name in COMMUTATIVE:
            found = [
                self.unordered(COMMUTATIVE[name], list(row)) for row in zip(*wide, strict=True)
            ]
        else:
            found = [self.ordered(kind, *row) for row in zip(*wide, strict=True)]
        return np.array(found, dtype=object).reshape(shape)

    def reduce(self, kind: str, x: np.ndarray, params: dict) -> np.ndarray:
        axes = params["axes"]
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = x.transpose(*kept, *axes).reshape(*[x.shape[i] for i in kept], -1)
        found = [self.unordered(kind, list(row)) for row in rows.reshape(-1, rows.shape[-1])]
        return np.array(found, dtype=object).reshape(rows.shape[:-1])

    def structural(self, name, params, operands, shape) -> np.ndarray:
        x = operands[0] if operands else None
        if name == "transpose":
            return x.transpose(params["permutation"])
        if name in ("reshape", "squeeze", "expand_dims"):
            return x.reshape(shape)
        if name == "broadcast_in_dim":
            aligned = [1] * len(shape)
            for size, target in zip(x.shape, params["broadcast_dimensions"], strict=True):
                aligned[target] = size
            return np.broadcast_to(x.reshape(aligned), shape)
        if name == "concatenate":
            return np.concatenate(operands, axis=params["dimension"])
        if name == "slice":
            strides = params["strides"] or [1] * x.ndim
            limits = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
            return x[tuple(slice(*limit) for limit in limits)]
        if name == "dot_general":
            return self.dot(x, operands[1], params["dimension_numbers"])
        raise NotImplementedError(name)

    def sum_of_products(self, row: np.ndarray, column: np.ndarray) -> int:
        pairs = zip(row, column, strict=True)
        return self.unordered("sum", [self.unordered("mul", [a, b]) for a, b in pairs])

    def dot(self, x: np.ndarray, y: np.ndarray, numbers: Any) -> np.ndarray:
        (x_sum, y_sum), (x_batch, y_batch) = numbers
        x_free = [i for i in range(x.ndim) if i not in (*x_sum, *x_batch)]
        y_free = [i for i in range(y.ndim) if i not in (*y_sum, *y_batch)]
        batch = [x.shape[i] for i in x_batch]
        left = x.transpose(*x_batch, *x_free, *x_sum)
        right = y.transpose(*y_batch, *y_free, *y_sum)
        shape = (*batch, *[x.shape[i] for i in x_free], *[y.shape[i] for i in y_free])
        left = left.reshape(prod(batch), -1, prod(x.shape[i] for i in x_sum))
        right = right.reshape(prod(batch), -1, prod(y.shape[i] for i in y_sum))
        found = [
            self.sum_of_products(row, column)
            for rows, columns in zip(left, right, strict=True)
            for row in rows
            for column in columns
        ]
        return np.array(found, dtype=object).reshape(shape)

    # --- automorphisms ---------------------------------------------------------------------

    def num_automorphisms(self, outputs: list[np.ndarray]) -> int:
        """Automorphisms that keep inputs, outputs and the order of ordered operands."""
        edges: dict[int, list[int]] = {}
        colors: dict[tuple, set[int]] = {}
        depths: list[int] = []
        count = len(self.keys)

        def extra(color: tuple, *neighbours: int) -> None:
            nonlocal count
            colors.setdefault(color, set()).add(count)
            edges[count] = list(neighbours)
            count += 1

        for vertex, key in enumerate(self.keys):
            operands = self.operands(key)
            # Depth in the colour tells operands from results, so edges need no direction.
            depths.append(1 + max((depths[x] for x, _ in operands), default=-1))
            for operand, mark in operands:
                if mark == 1:
                    edges.setdefault(vertex, []).append(operand)
                else:
                    extra(("mark", mark, depths[vertex]), vertex, operand)
            leaf = {"parameter": key[:2], "input": key, "constant": key}
            color = leaf.get(key[0], (key[0], depths[vertex]))
            colors.setdefault(color, set()).add(vertex)
        for i, vertex in enumerate(v for array in outputs for v in array.ravel()):
            extra(("output", i), vertex)
        ordered = [colors[color] for color in sorted(colors, key=repr)]
        graph = pynauty.Graph(count, adjacency_dict=edges, vertex_coloring=ordered)
        _, mantissa, exponent, _, _ = pynauty.autgrp(graph)
        return round(mantissa * 10**exponent)

    def operands(self, key: tuple) -> list[tuple[int, int]]:
        """What goes into a vertex, marked by how often or at which place; 1 needs no mark."""
        if key[0] in ("parameter", "input", "constant"):
            return []
        if key[0] in ("sum", "mul", "max"):
            return list(key[1])
        return [(operand, place + 1) for place, operand in enumerate(key[1:])]


def count_symmetries(fn: Any, params: Any, *inputs: Any) -> int:
    """The number of permutations of weights that leave the scalar computation as it is."""
    closed = jax.make_jaxpr(fn)(params, *inputs)
    graph = ScalarGraph()
    leaves = jax.tree.leaves(params)
    operands = [graph.array("parameter", x.shape, i) for i, x in enumerate(leaves)]
    operands += [graph.array("input", x.shape, i) for i, x in enumerate(jax.tree.leaves(inputs))]
    outputs = graph.run(closed.jaxpr, closed.consts, operands)
    return graph.num_automorphisms(outputs)


def group_order(space: WeightSpace) -> int:
    """The number of elements of a weight space's group, wreath products included."""
    order = 1
    for name, size in space.sizes.items():
        parents = name.split(".")[:-1]
        copies = prod(space.axis_sizes[".".join(parents[: i + 1])] for i in range(len(parents)))
        order *= factorial(size) ** copies
    return order
