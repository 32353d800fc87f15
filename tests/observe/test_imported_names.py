"""Functions of torch that a script imports by themselves: they are seen, and code that holds them still compiles."""

from pathlib import Path

from launching import answers, bare, clew_run, script, troubles

PROGRAM = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout, softmax

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(dropout(x, 0.5))

class Scripted(nn.Module):
    def forward(self, x):
        return softmax(dropout(x, 0.1, self.training), dim=-1)

scripted = torch.jit.script(Scripted().eval())
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 4), torch.arange(64) % 3
for epoch in range(4):
    model.train()
    for part in range(4):
        optimizer.zero_grad()
        cross_entropy(model(x[part::4]), y[part::4]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print((scripted(model(x)).argmax(1) == y).float().mean().item() >= 0)
"""


def test_a_name_imported_by_itself_is_seen_and_compiles(tmp_path: Path) -> None:
    ran = clew_run(tmp_path, "--quiet", script(tmp_path, PROGRAM))
    assert ran.status == 0, ran.err
    assert ran.out == "True\n" * 4
    (held,) = answers(tmp_path)
    (found,) = (answer for answer in held["answers"] if answer["test"] == "mode_in_validation")
    assert found.get("outcome") == "train", found
    assert [place["line"] for place in found["where"]] == [12]


COMPILED = """
import torch
from torch.nn import functional as F

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Scaled:
    act = torch.softmax

    def __call__(self, x):
        return self.act(x, -1)

def loss(x, y):
    out = model(x)
    total = torch.softmax(out, -1) + torch.sigmoid(out) + out.softmax(-1) + F.log_softmax(out, -1) + F.normalize(out)
    return F.cross_entropy(total + Scaled()(out), y) * torch.ones_like(out.argmax(1)).float().mean()

fast = torch.compile(loss, backend="aot_eager", fullgraph=True)
for _ in range(12):
    optimizer.zero_grad()
    fast(torch.randn(8, 4), torch.randint(0, 3, (8,))).backward()
    optimizer.step()
print("done")
"""


def test_a_compiled_loss_stays_in_one_piece(tmp_path: Path) -> None:
    """It is compiled while a step is being kept, and finds functions that stand for those it knows."""
    ran = clew_run(tmp_path, "--quiet", script(tmp_path, COMPILED))
    assert (ran.out, ran.status) == ("done\n", 0), ran.err


SCRIPTED = """
import torch
import torch.distributed.optim

def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2

@torch.jit.script
class Pair:
    def __init__(self, first: torch.Tensor):
        self.first = first

    def half(self) -> torch.Tensor:
        return halved(self.first)

def make():
    def of_three(x: torch.Tensor) -> torch.Tensor:
        return halved(x) * 3

    @torch.jit.script
    class Inner:
        def __init__(self, x: torch.Tensor):
            self.x = of_three(x)

    return torch.jit.script(of_three)

class Net(torch.nn.Module):
    def forward(self, x):
        return Pair(x).half()

def named(inp):
    alpha = inp * 2
    return alpha + 1

print(make()(torch.ones(2)), torch.jit.script(Net())(torch.ones(2)))
print(torch.jit.trace(named, torch.zeros(2)).graph)
"""


def test_a_scripted_class_finds_what_it_names(tmp_path: Path) -> None:
    name = script(tmp_path, SCRIPTED)
    ran, alone = clew_run(tmp_path, "--quiet", name), bare(tmp_path, name)
    assert (alone.status, alone.out[:29]) == (0, "tensor([1.5000, 1.5000]) tens"), alone.err
    assert (ran.status, ran.out) == (0, alone.out), ran.err


WHOLE = """
import torch
model = torch.nn.Linear(4, 3)
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(fast(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
    optimizer.step()
"""


def test_a_compiled_model_is_named_as_why_no_step_was_captured(tmp_path: Path) -> None:
    ran = clew_run(tmp_path, "--quiet", script(tmp_path, WHOLE))
    assert ran.status == 0, ran.err
    assert "train.py:4 compiles Linear, and compiled code cannot be captured" in troubles(tmp_path)
    assert "no backward call" not in troubles(tmp_path)
