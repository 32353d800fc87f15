"""Functions of torch that a script imports by themselves: they are seen, and code that holds them still compiles."""

from pathlib import Path

from launching import answers, clew_run, script

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
