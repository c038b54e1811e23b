"""Small modules with known groups."""

import torch
from torch import nn


def mlp():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class Tied(nn.Module):
    """A language model whose output layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.hidden = nn.Linear(4, 4, bias=False)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.hidden(self.embed(tokens))))


class Recurrent(nn.Module):
    """Only the last state of an LSTM is read, so its neurons permute."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Stateful(nn.Module):
    """A module with everything that a call can leave behind."""

    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
        self.norm = nn.BatchNorm1d(4)
        self.scale = torch.full((1,), 2.0)
        self.register_buffer("table", torch.ones(4), persistent=False)
        self.calls = 0
        self.last = None

    def forward(self, x, fail=False):
        self.calls += 1
        self.last = self.norm(self.layer(x)) * self.scale * self.table
        if fail:
            raise RuntimeError("as asked")
        return self.last.sum(-1)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        y = self.layer(x)
        if y.sum() > 0:
            y = 2 * y
        return y


class Routed(Branch):
    def forward(self, x):
        y = self.layer(x)
        chosen = (y[:, 0] > 0).nonzero()
        return y[chosen[:, 0]]


class Selected(Branch):
    def forward(self, x):
        y = self.layer(x)
        return y[y > 0]


class Overwritten(Branch):
    def forward(self, x):
        weight = self.layer.weight
        weight.set_(weight.clone())
        return x @ weight


class InPlace(Branch):
    """In-place writes to new tensors can be traced."""

    def forward(self, x):
        y = torch.zeros(x.shape[0], 3)
        y[:] = self.layer(x)
        y[0].mul_(2)
        return y.sum(1)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(2, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Embedding(9, 4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.q, self.k, self.v = (nn.Linear(4, 6, bias=False) for _ in range(3))
        self.o = nn.Linear(6, 4, bias=False)
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 4)

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.norm1(x)
        heads = [part(y).view(-1, 2, 3).transpose(0, 1) for part in (self.q, self.k, self.v)]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.o(mixed.transpose(0, 1).reshape(-1, 6))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.recur = nn.Linear(3, 5), nn.Linear(5, 5, bias=False)
        self.out = nn.Linear(5, 2, bias=False)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 5)
        for y in x:
            h = torch.tanh(self.read(y) + self.recur(h))
        return self.out(h)


MODULES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.zeros(2, 4)),
    "cnn": lambda: (Cnn(), torch.zeros(2, 4, 5, 5)),
    "block": lambda: (Block(), torch.zeros(5, dtype=torch.int32)),
    "rnn": lambda: (Rnn(), torch.zeros(4, 2, 3)),
}
"""The networks of `tests.graph.same_networks`, each as a module and its input."""
