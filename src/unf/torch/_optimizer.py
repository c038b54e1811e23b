"""`LearnedOptimizer`: a learned optimizer for PyTorch's training loops."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import numpy as np
import torch
from torch import Tensor

from ..optim import Theta, learned_optimizer, load
from ..optim._theta import DECAYS
from ..optim._transformation import LearnedState
from ..spec import SpecError
from ._arrays import copy_to_torch, lend

METHODS = ("learned", "sgd", "none")


class LearnedOptimizer(torch.optim.Optimizer):
    """A learned optimizer as a `torch.optim.Optimizer` (§4.2).

        m^γ ← γ m^γ + g  for γ₀ and each γᵢ
        W ← W − lr α (m^γ₀ + β f(W, g, {m^γᵢ}, t))

    One update reads all learned parameters together. Parameters without a gradient count as
    having gradient zero, and stay as they are.

    >>> import torch, unf.torch
    >>> net = torch.nn.Linear(3, 4)
    >>> optimizer = LearnedOptimizer(net.named_parameters(), "deepset-mlp-fashion-mnist")
    >>> net(torch.ones(1, 3)).sum().backward()
    >>> optimizer.step()

    Args:
        params: `module.named_parameters()`, or groups of them. An equivariant θ needs the names,
            and a weight space with exactly these leaves; for others, tensors are enough. The
            groups' option `method` is "learned", "sgd" (W ← W − lr g) or "none" (skipped).
        theta: coefficients, or the name or file of a learned optimizer.
        lr: a factor of every update, which PyTorch's schedulers can change.

    Raises:
        ValueError: if there is no such optimizer, or a group's method is unknown.
        SpecError: at the first step, if parameters differ from θ's weight space.
    """

    def __init__(
        self,
        params: Iterable[Any],
        theta: Theta | str | os.PathLike,
        lr: float = 1.0,
        *,
        method: str = "learned",
    ):
        self.theta = load(theta) if isinstance(theta, str | os.PathLike) else theta
        learned_optimizer(self.theta)  # checks its type
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
        nominal = {name: lend(state["nominal"]) for name, state in states.items()}
        momenta = None
        if self.theta.head is not None:
            momenta = {name: lend(state["momenta"]) for name, state in states.items()}
        gradients = {name: _gradient(p) for name, (p, _) in params.items()}
        weights = {name: lend(p) for name, (p, _) in params.items()}
        steps, new = _update(self.theta, gradients, LearnedState(step, nominal, momenta), weights)
        for name, (p, lr) in params.items():
            change = copy_to_torch(steps[name])  # waits until nothing reads the parameters
            states[name]["step"] = states[name]["step"] + 1
            states[name]["nominal"] = copy_to_torch(new.nominal[name])
            if new.momenta is not None:
                states[name]["momenta"] = copy_to_torch(new.momenta[name])
            if p.grad is not None:
                p.add_(change.to(p.device, p.dtype), alpha=lr)

    def _initial_state(self, p: Tensor) -> dict[str, Tensor]:
        wide = torch.promote_types(p.dtype, torch.float32)
        state = {"step": torch.zeros((), dtype=torch.int32)}
        state["nominal"] = torch.zeros_like(p, dtype=wide)
        if self.theta.head is not None:
            state["momenta"] = p.new_zeros((*p.shape, len(DECAYS)), dtype=wide)
        return state

    def _learned(self) -> dict[str, tuple[Tensor, float]]:
        """The parameters that θ updates, with their learning rates, by name."""
        found = {}
        for group in self.param_groups:
            if group["method"] != "learned":
                continue
            names = group.get("param_names")
            if names is None:
                if self.theta.space is not None:
                    raise SpecError(
                        "this optimizer has a weight space, so it needs the parameters' names",
                        expected="module.named_parameters()",
                        got="parameters without names",
                    )
                names = [f"{len(found) + i:06}" for i in range(len(group["params"]))]
            pairs = zip(names, group["params"], strict=True)
            found |= {name: (p, group["lr"]) for name, p in pairs}
        return found


@eqx.filter_jit
def _update(theta: Theta, gradients: dict, state: LearnedState, params: dict) -> Any:
    return learned_optimizer(theta).update(gradients, state, params)


def _gradient(p: Tensor) -> Any:
    if p.grad is None:
        return lend(torch.zeros_like(p))
    if p.grad.is_sparse:
        raise ValueError("a gradient is sparse; use sparse=False in the embedding")
    return lend(p.grad)
