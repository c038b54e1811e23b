"""`LearnedOptimizer`: a learned optimizer for PyTorch's training loops."""

import os
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from ..nn import TiedLinear
from ..optim import Theta, learned_optimizer, load
from ..optim._theta import DECAYS, unit_of
from ..optim._transformation import LearnedState
from ..spec import SpecError, WeightSpace
from ..spec._space import check_is_space
from ._arrays import copy_to_torch, lend

METHODS = ("learned", "sgd", "none")


class LearnedOptimizer(torch.optim.Optimizer):
    """A learned optimizer as a `torch.optim.Optimizer` (§4.2).

        m^γ ← γ m^γ + g  for γ₀ and each γᵢ
        W ← W − lr α (m^γ₀ + β f(W, g, {m^γᵢ}, t))

    `unf.optim.Form` has the formula of adaptive steps.
    One update reads all learned parameters together. Parameters without a gradient count as
    having gradient zero, and stay as they are.

    >>> import jax, torch, unf.torch
    >>> net, x = torch.nn.Linear(3, 4), torch.ones(1, 3)
    >>> theta = unf.optim.init_theta("tied", key=jax.random.key(0))
    >>> space = unf.torch.infer(net, x)
    >>> optimizer = LearnedOptimizer(net.named_parameters(), theta, space=space)
    >>> net(x).sum().backward()
    >>> optimizer.step()

    Args:
        params: `module.named_parameters()`, or groups of them. An equivariant θ needs the names;
            for others, tensors are enough. The groups' option `method` is "learned", "sgd"
            (W ← W − lr g) or "none" (skipped).
        theta: coefficients, or the name or file of a learned optimizer.
        lr: a factor of every update, which PyTorch's schedulers can change.
        space: the module's weight space, `unf.torch.infer(module, *inputs)`, which a "tied" θ
            needs; `unf.optim.Theta.on` says which ones fit other kinds. Leaves that are not
            learned, such as running statistics, are left out.
        method: the method of groups that do not say theirs.

    Raises:
        ValueError: if there is no such optimizer, or a group's method is unknown.
        SpecError: if a "tied" θ has no weight space; at the first step, if the parameters differ
            from the weight space.
    """

    def __init__(
        self,
        params: Iterable[Any],
        theta: Theta | str | os.PathLike,
        lr: float = 1.0,
        *,
        space: WeightSpace | None = None,
        method: str = "learned",
    ):
        self.theta = load(theta) if isinstance(theta, str | os.PathLike) else theta
        learned_optimizer(self.theta)  # checks its type
        if space is not None:
            check_is_space(space)
        elif isinstance(self.theta.head, TiedLinear):
            raise SpecError(
                "a tied optimizer needs the weight space of the parameters",
                remedy="LearnedOptimizer(module.named_parameters(), theta, "
                "space=unf.torch.infer(module, *inputs))",
            )
        self.space = space
        self._bound: tuple[set[str], Theta] | None = None
        super().__init__(params, {"lr": lr, "method": method})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; see `torch.optim.Optimizer`."""
        method = param_group.get("method", self.defaults["method"])
        if method not in METHODS:
            raise ValueError(f"a group's method is {method!r}; expected one of {METHODS}")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters, and return what `closure` returns, if there is one.

        Args:
            closure: computes the loss again, and its gradients.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["method"] == "sgd":
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad, alpha=-group["lr"])
        self._learned_step()
        return loss

    def _learned_step(self) -> None:
        params = self._learned()
        if all(p.grad is None for p, _ in params.values()):
            return
        for p, _ in params.values():
            if not self.state[p]:
                self.state[p].update(self._initial_state(p))
        states = {name: self.state[p] for name, (p, _) in params.items()}
        step: Any = np.int32(max(int(state["step"]) for state in states.values()))
        memory = {
            part: {name: lend(state[part]) for name, state in states.items()}
            for part in next(iter(states.values()))
            if part != "step"
        }
        gradients = {name: _gradient(p) for name, (p, _) in params.items()}
        weights = {name: lend(p) for name, (p, _) in params.items()}
        theta = self._theta_on(params)
        before = LearnedState(step, **{"momenta": None, **memory})
        steps, new = _update(theta, gradients, before, weights)
        for name, (p, lr) in params.items():
            change = copy_to_torch(steps[name])  # waits until nothing reads the parameters
            states[name]["step"] = states[name]["step"] + 1
            states[name] |= {part: copy_to_torch(getattr(new, part)[name]) for part in memory}
            if p.grad is not None:
                p.add_(change.to(p.device, p.dtype), alpha=lr)

    def _initial_state(self, p: Tensor) -> dict[str, Tensor]:
        wide = torch.promote_types(p.dtype, torch.float32)
        state = {"step": torch.zeros((), dtype=torch.int32)}
        state["nominal"] = torch.zeros_like(p, dtype=wide)
        if self.theta.reads_momenta:
            state["momenta"] = p.new_zeros((*p.shape, len(DECAYS)), dtype=wide)
        if self.theta.form.is_adaptive:
            state["squares"] = torch.zeros_like(p, dtype=wide)
            state["units"] = copy_to_torch(unit_of(jnp.asarray(lend(p.to(wide)))))
        return state

    def _learned(self) -> dict[str, tuple[Tensor, float]]:
        """The parameters that θ updates, with their learning rates, by name."""
        found = {}
        for group in self.param_groups:
            if group["method"] != "learned":
                continue
            names = group.get("param_names")
            if names is None:
                if self.space is not None or self.theta.space is not None:
                    raise SpecError(
                        "this optimizer has a weight space, so it needs the parameters' names",
                        expected="module.named_parameters()",
                        got="parameters without names",
                    )
                names = [f"{len(found) + i:06}" for i in range(len(group["params"]))]
            pairs = zip(names, group["params"], strict=True)
            found |= {name: (p, group["lr"]) for name, p in pairs}
        return found

    def _theta_on(self, names: Collection[str]) -> Theta:
        """θ on the part of the weight space with these names, made anew when they change."""
        if self.space is None:
            return self.theta
        if self._bound is None or self._bound[0] != set(names):
            self._bound = set(names), self.theta.on(_part(self.space, names))
        return self._bound[1]


@eqx.filter_jit
def _update(theta: Theta, gradients: dict, state: LearnedState, params: dict) -> Any:
    return learned_optimizer(theta).update(gradients, state, params)


def _part(space: WeightSpace, names: Collection[str]) -> WeightSpace:
    """The space of the parameters with these names, without its other leaves."""
    paths = [leaf.path for leaf in space.leaves]
    for name in names:
        if name not in paths:
            near = get_close_matches(name, paths, n=3, cutoff=0)
            raise SpecError(
                "the weight space has no such parameter",
                path=name,
                expected=f"names of the space's leaves, such as {near}",
                remedy="pass the names and the space of one module: module.named_parameters() and "
                "unf.torch.infer(module, *inputs)",
            )
    others = [path for path in paths if path not in names]
    return space.drop(*others) if others else space


def _gradient(p: Tensor) -> Any:
    if p.grad is None:
        return lend(torch.zeros_like(p))
    if p.grad.is_sparse:
        raise ValueError("a gradient is sparse; use sparse=False in the embedding")
    return lend(p.grad)
