"""The place that a finding leads with is the line whose change removes the fault."""

import json
import sys
from pathlib import Path

import pytest
import torch
from launching import clew_run, ended, script, start

from clew.app.cause_lines import Finder
from clew.app.data_lines import Reader
from clew.app.slices import Project
from clew.app.source_clues import source_clues
from clew.case.clues import answered
from clew.case.conduct import as_seen
from clew.case.weigh import Finding, Subject, Weighed, Weighing, weigh
from clew.exams.checks.causal_independence import _unmasked
from clew.exams.subject import Seen
from clew.knowledge import load
from clew.observe.watches._rl_lines import bounding, computing
from clew.records.clue import Clue
from clew.records.place import COMPUTED, Place, told

ATTENTION = """
import torch, torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.proj = h, nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.h, C // self.h).transpose(1, 2)
        k = k.view(B, T, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T, self.h, C // self.h).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * k.size(-1) ** -0.5
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))
"""
FAULTS = {
    "loss.wrong_dim": ("dim=-1)\n        return", "dim=-2)\n        return", "F.softmax(att"),
    "arch.batch_mixing": (".transpose(1, 2).reshape(B", ".contiguous().view(B", "return self.proj"),
}
SAID = {"loss.wrong_dim": "Take the last axis", "arch.batch_mixing": "values of different positions are mixed"}


def sees_future(line: int) -> Clue:
    test = load().tests["causal_independence"]
    return answered(
        test, (), "sees_future", where=(Place("attention.py", line),), says="earlier outputs move", source="exam"
    )


@pytest.mark.parametrize("cause", FAULTS)
def test_where_lint_knows_the_line_and_the_run_shows_the_consequence(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right, wrong, text = FAULTS[cause]
    source = ATTENTION.replace(right, wrong)
    Path("attention.py").write_text(source)
    line = next(number for number, held in enumerate(source.splitlines(), 1) if text in held)
    read, _ = source_clues(load(), ["attention.py"])
    (finding,) = weigh(load(), [*read, sees_future(9)]).findings
    assert (finding.cause, finding.where[0].line) == (cause, line)
    weighing, clues = weigh(load(), [*read, sees_future(9)]), [*read, sees_future(9)]
    held = as_seen(load(), weighing.findings[0], clues, weighing)
    assert SAID[cause] in held.gloss + held.mend + held.refute
    assert held.mend != load().causes[cause].mend
    Path("attention.py").write_text(ATTENTION)
    read, _ = source_clues(load(), ["attention.py"])
    (finding,) = weigh(load(), [*read, sees_future(9)]).findings
    assert finding.cause == "arch.causal_leak"


def decisive(cause: str) -> Clue:
    """A look that shows the mechanism of a cause."""
    for test in load().tests.values():
        for held in test.decisive:
            if held.cause == cause and test.by != "lint":
                return answered(test, (), held.outcome, source="observe")
    raise AssertionError(cause)


@pytest.mark.parametrize(
    ("cause", "consequence"),
    [
        ("train.clip_misplaced", "train.clip_always_active"),
        ("rl.terminal_bootstrap", "rl.misaligned_transition"),
        ("loss.wrong_dim", "arch.causal_leak"),
    ],
)
def test_a_consequence_is_no_second_finding(cause: str, consequence: str) -> None:
    kind = Subject(domain="rl" if cause.startswith("rl.") else "general")
    alone = weigh(load(), [decisive(consequence)], kind).findings
    assert [item.cause for item in alone] == [consequence]
    both = weigh(load(), [decisive(consequence), decisive(cause)], kind).findings
    assert [item.cause for item in both] == [cause]


def test_what_was_seen_goes_before_what_reads_like_it() -> None:
    seen, guess = Place("a.py", 45, role=COMPUTED), Place("a.py", 9, role="gamma is set here")
    assert told([guess], [seen]) == (seen, guess)
    plain, file = Place("a.py", 45), Place("run.yaml", 3, role="gamma is set here")
    assert told([plain, file], [plain]) == (plain, file)


def test_a_setting_leads_where_its_value_was_measured(tmp_path: Path) -> None:
    path = str(tmp_path / "a.py")
    settings = {str(tmp_path / "run.yaml"): ["agent:", "  gamma: 1.02", "  shuffle: false"]}
    finder = Finder({}, Project({path: ["GAMMA = 1.02"]}), {path: ["GAMMA = 1.02"]}, settings)
    finder.by_cause({}, {"rl.discounting": {1.02, 4.0}})
    assert [place.line for place in finder.known["rl.discounting"]] == [2, 1]
    assert [place.line for place in finder.known["data.not_shuffled"]] == [3]
    finder.by_cause({}, {"rl.discounting": {0.95}})
    assert finder.known["rl.discounting"] == ()


def test_joining_text_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ['text = "".join(lines)', "table = table.join(other)"]
    texts = {str(tmp_path / "a.py"): lines}
    found = Reader({"loss": [Place("a.py", 1)]}, texts).by_cause()["data.labels_misaligned"]
    assert found[0].line == 2
    alone = Reader({"loss": [Place("a.py", 1)]}, {str(tmp_path / "a.py"): lines[:1]}).by_cause()
    assert all("order" not in str(place.role) for place in alone["data.labels_misaligned"])


SHIFTED = """
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
lines = ["the cat sat on the mat\\n", "a dog ran to the cat\\n"] * 60
text = "".join(lines)
letters = sorted(set(text))
data = torch.tensor([letters.index(c) for c in text])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(32, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 32)

    def forward(self, x, targets):
        logits = self.head(self.cell(self.table(x))[0])
        loss = F.cross_entropy(LOGITS.reshape(-1, 32), TARGETS.reshape(-1))
        return logits, loss

model = Net()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(30):
    start = torch.randint(len(data) - 25, (16,))
    x, y = (torch.stack([data[i + by : i + by + 24] for i in start]) for by in (0, 1))
    _, loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_double_shift_is_named_at_the_loss(tmp_path: Path) -> None:
    source = SHIFTED.replace("LOGITS", "logits[:, :-1]").replace("TARGETS", "targets[:, 1:]")
    script(tmp_path, source)
    clew_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    first = json.loads((tmp_path / "out.json").read_text())["causes"][0]
    written = (tmp_path / "train.py").read_text().splitlines()
    assert first["id"] == "data.labels_misaligned"
    assert "targets[:, 1:]" in written[first["where"][0]["line"] - 1]


BOUND = """
import torch
from torch import nn
torch.manual_seed(0)
body, spread = nn.Linear(8, 4), nn.Linear(8, 4)
back = nn.Linear(4, 8)
optimizer = torch.optim.Adam([*body.parameters(), *spread.parameters(), *back.parameters()], 1e-3)

def bound(x):
    mu, lv = body(x), spread(x)
    out = back(mu + torch.exp(0.5 * lv) * torch.randn_like(mu))
    rec = nn.functional.mse_loss(out, x)
    kl = KL * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
    return rec SIGN kl, rec, kl

for step in range(40):
    loss, rec, kl = bound(torch.randn(32, 8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("factor", "sign", "line"), [("0.5", "+", "kl = "), ("-0.5", "-", "return rec")])
def test_a_divergence_of_the_wrong_sign_is_named_where_its_sign_is_made(
    factor: str, sign: str, line: str, tmp_path: Path
) -> None:
    script(tmp_path, BOUND.replace("KL", factor).replace("SIGN", sign))
    said = clew_run(tmp_path, "--no-exams", "--json", "out.json", "train.py").out
    first = json.loads((tmp_path / "out.json").read_text())["causes"][0]
    written = (tmp_path / "train.py").read_text().splitlines()
    assert first["id"] == "loss.wrong_sign"
    assert line in written[first["where"][0]["line"] - 1]
    assert "Change the sign of the divergence on this line" in said
    assert said.count("enters the loss with a minus") == 1
    assert "measured" not in said


FORECAST = """
import torch
from torch import nn
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 8, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0])

net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(30):
    w = torch.sin(torch.rand(32, 1, 1) * 6 + torch.arange(21)[None, :, None] / 3)
    loss = nn.functional.mse_loss(net(w[:, :-1]), w[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_layer_that_reads_both_ways_is_named_where_it_is_made(tmp_path: Path) -> None:
    script(tmp_path, FORECAST)
    command = (sys.executable, "-m", "clew", "run", "--budget", "60s", "--json", "out.json", "train.py")
    said = ended(start(command, tmp_path)).out
    first = json.loads((tmp_path / "out.json").read_text())["causes"][0]
    assert first["id"] == "arch.causal_leak", said
    assert "bidirectional=True" in (tmp_path / "train.py").read_text().splitlines()[first["where"][0]["line"] - 1]
    assert "Set bidirectional=False on this line" in " ".join(said.split())
    assert "measured" not in said


ENCODED = """
import torch
from sklearn.preprocessing import LabelEncoder
def table(names):
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
labels = LabelEncoder()
y_train = labels.fit_transform(train)
y_val = labels.fit_transform(val)
"""


def test_where_the_held_out_labels_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Reader({}, {str(tmp_path / "a.py"): ENCODED.splitlines()}).by_cause()["data.labels_encoded_apart"]
    assert found[0].line == 8


RL = ("reward_shift", "entropy_pull", "discount_in_targets", "terminal_handling")
VARIANTS = {
    "loss_input_kind=probabilities_into_logit_loss": ("sigmoid enters", "BCEWithLogitsLoss"),
    "tokens_as_targets=beyond_next": ("", "Shift once"),
    "evaluation_classes=renumbered": ("", "from class to number once"),
    "entropy_pull=punishes": ("", "sign of the entropy term"),
    "discount_in_targets=nothing_later": ("", "(1 - done)"),
    "reward_shift=shifted": ("the targets omit the reward", "Add the reward to the target on this line"),
    "clip_position=misplaced": ("gradients that are still to be divided by 65536", "unscale_(optimizer)"),
}


def seen_of(outcome: str, says: str) -> tuple[Weighing, list[Clue]]:
    test, _, name = outcome.partition("=")
    clues = [answered(load().tests[test], (), name, says=says, source="observe")]
    return weigh(load(), clues, Subject(domain="rl" if test in RL else "general")), clues


@pytest.mark.parametrize("outcome", VARIANTS)
def test_the_fix_is_that_of_what_was_seen(outcome: str) -> None:
    says, wanted = VARIANTS[outcome]
    weighing, clues = seen_of(outcome, says)
    (finding,) = weighing.findings
    assert wanted in as_seen(load(), finding, clues, weighing).mend


def test_every_variant_can_be_met_and_says_more_than_its_cause() -> None:
    """Each is chosen for one of its outcomes, or waits for its words; the first that fits wins."""
    for cause in load().causes.values():
        for one in cause.variants:
            assert one.refute != cause.refute or one.mend
            finding = Finding(cause.id, 0.9, (0,), ())
            test, _, outcome = one.seen[0].partition("=")
            clue = Clue(test, outcome, says=" ".join(one.words))
            held = as_seen(load(), finding, [clue], Weighing((finding,), (), 0.0, (weighed(clue),), {}, 0.0))
            assert held.refute == one.refute, (cause.id, one.seen, held.gloss)


def weighed(clue: Clue) -> Weighed:
    return Weighed(clue.test, clue.outcome, "seen", 1.0)


def test_without_the_case_the_cause_speaks_for_itself() -> None:
    weighing, clues = seen_of(
        "loss_input_kind=probabilities_into_logit_loss", "The output of softmax enters cross_entropy"
    )
    (finding,) = weighing.findings
    assert as_seen(load(), finding, clues, weighing) == load().causes["loss.double_softmax"]
    weighing, clues = seen_of("terminal_handling=bootstraps_over_terminal", "targets at true terminals")
    assert not any("GAE" in as_seen(load(), found, clues, weighing).mend for found in weighing.findings)


def test_the_line_that_makes_targets_without_a_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.py").write_text("\ntarget = a.gamma * tq(ns).max(1).values * (1 - d.float())\nloss = f(pred, target)\n")
    assert computing("targets", Place("d.py", 3))[0].line == 2
    Path("e.py").write_text("d = Categorical(pi(o))\npl = torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()\n")
    assert computing("policy loss", Place("e.py", 1))[0].line == 2


@pytest.mark.parametrize("masked", [False, True])
def test_attention_without_a_mask_is_named_at_its_softmax(masked: bool) -> None:
    scores = torch.ones(2, 4, 5, 5).softmax(-1)
    weights = scores.tril() if masked else scores
    seen = [Seen("b", kind, value) for kind, value in (("softmax", weights), ("matmul", torch.ones(2, 5, 8)))]
    assert _unmasked(seen, seen[1], 5) is (None if masked else seen[0])


MIXED = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(600, 20), torch.randint(5, (600,))

def shuffled(x, y):
    return x[torch.randperm(len(x))], y[torch.randperm(len(y))]

x, y = shuffled(x, y)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(12):
    for at in range(0, 500, 50):
        loss = nn.functional.cross_entropy(model(x[at : at + 50]), y[at : at + 50])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print("epoch", epoch, "val_acc", (model(x[500:]).argmax(1) == y[500:]).float().mean().item())
"""


def test_a_fault_that_stands_out_comes_with_its_line_and_fix(tmp_path: Path) -> None:
    script(tmp_path, MIXED)
    lines = clew_run(tmp_path, "--json", "out.json", "train.py").out.splitlines()
    table = json.loads((tmp_path / "out.json").read_text())
    assert (table["verdict"], table["causes"][0]["kind"]) == ("fault", "hypothesis")
    assert table["causes"][0]["fix"] == "Draw one permutation and index both with it."
    assert table["causes"][0]["where"][0]["line"] == 8
    assert any(line.startswith("train.py:8: labels do not belong") for line in lines)
    assert "  fix: Draw one permutation and index both with it." in lines


def test_a_scaler_fitted_on_held_out_rows_alone_is_no_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from sklearn.preprocessing import StandardScaler\nsv = StandardScaler().fit(Xva)\nXva = sv.transform(Xva)\n"
    Path("scale.py").write_text(text)
    read, _ = source_clues(load(), ["scale.py"])
    (one,) = (held for held in read if held.outcome != "absent")
    assert (one.test, one.where[0].line) == ("source_data_train_val_mismatch", 2)
    Path("again.py").write_text(
        "from sklearn.model_selection import train_test_split\nfrom sklearn.preprocessing import StandardScaler\n"
        "sc = StandardScaler()\nX_train, X_val, y_train, y_val = train_test_split(X, y)\n"
        "X_train = sc.fit_transform(X_train)\nX_val = sc.fit_transform(X_val)\nmodel.score(X_val, y_val)\n"
    )
    read, _ = source_clues(load(), ["again.py"])
    assert [held.test for held in read if held.outcome != "absent"] == ["source_data_leak_split"]


REFITTED = """
import numpy as np, torch
from torch import nn
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(0)
X = rng.normal(size=(1500, 12)) * rng.uniform(0.1, 50, 12) + 5
y = (X[:, 0] / X[:, 0].std() > X[:, 1] / X[:, 1].std()).astype(np.float32)
X_train, X_val, y_train, y_val = map(torch.tensor, train_test_split(X, y, test_size=0.2, random_state=0))
scaler = StandardScaler()
X_train = torch.tensor(scaler.fit_transform(X_train), dtype=torch.float32)
X_val = torch.tensor(scaler.fit_transform(X_val), dtype=torch.float32)
model = nn.Linear(12, 1)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
bce = nn.BCEWithLogitsLoss()
for epoch in range(6):
    for b in torch.randperm(len(X_train)).split(64):
        loss = bce(model(X_train[b]).squeeze(1), y_train[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print("epoch", epoch, "val_loss", bce(model(X_val).squeeze(1), y_val).item())
"""


def test_a_line_worth_a_look_is_the_line_of_a_fault_that_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text("from torch import nn\nmodel = nn.Sequential(nn.Linear(9, 5), nn.LogSoftmax(dim=0))\n")
    read, _ = source_clues(load(), ["m.py"])
    clues = [*read, answered(load().tests["softmax_axis"], (), "wrong", where=(Place("m.py", 9),), source="observe")]
    weighing = weigh(load(), clues)
    (finding,) = weighing.findings
    assert (finding.cause, finding.where[0].line) == ("loss.wrong_dim", 2)
    assert as_seen(load(), finding, clues, weighing).mend == "Take the last axis."


def test_what_lint_and_the_run_say_of_one_line_is_one_fault(tmp_path: Path) -> None:
    script(tmp_path, REFITTED)
    said = " ".join(clew_run(tmp_path, "--json", "out.json", "train.py").out.split())
    causes = json.loads((tmp_path / "out.json").read_text())["causes"]
    (one,) = (cause for cause in causes if cause["kind"] == "finding")
    assert (one["id"], one["where"][0]["line"]) == ("data.train_val_mismatch", 13)
    assert "scaler.transform(X_val)" in one["says"]
    assert said.count("CLW501") == 1


STEP = """
buf.add(obs, action, reward, following, FLAG)
obs, done = following, terminated or truncated
y = reward + gamma * MASK target(following).max(1).values
loss = mse_loss(value, y)
"""


@pytest.mark.parametrize(("mask", "line"), [("(1 - done) *", 2), ("not_done *", 2), ("done *", 4), ("", 4)])
def test_the_line_that_makes_targets_stop_at_an_end(
    mask: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"a{line}{len(mask)}.py"
    Path(name).write_text(STEP.replace("MASK", mask).replace("FLAG", "truncated"))
    assert bounding(Place(name, 5))[0].line == line


GAE = """
def collect(buffer):
    buffer["term"].append(terminated or truncated)

def advantages(buffer, t):
    alive = MASK
    delta = buffer["reward"][t] + gamma * alive[t] * buffer["next_value"][t] - buffer["value"][t]
"""


@pytest.mark.parametrize(("mask", "line"), [('(~buffer["term"]).float()', 3), ("torch.ones(9)", 7)])
def test_a_mask_may_be_made_on_another_line(
    mask: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"gae{line}.py").write_text(GAE.replace("MASK", mask))
    assert bounding(Place(f"gae{line}.py", 7))[0].line == line


PROBED = """
import torch
from torch import nn

class Probe:
    def __call__(self, module, inputs, output):
        self.seen = output.detach().mean()

model, probe = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), Probe()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(12):
    handle = model[0].register_forward_hook(probe)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("removed", [False, True])
def test_where_the_script_itself_registers_hooks(tmp_path: Path, removed: bool) -> None:
    """Python forgets which file the script was before clew reads it."""
    script(tmp_path, PROBED + "    handle.remove()\n" * removed)
    clew_run(tmp_path, "--json", "out.json", "train.py")
    clues = json.loads((tmp_path / "out.json").read_text())["clues"]
    (clue,) = (held for held in clues if held["test"] == "hooks_gathered")
    assert clue["outcome"] == ("as_many" if removed else "gathers")
    assert [place["line"] for place in clue["where"]] == ([] if removed else [12])


APART = """
import numpy as np, pandas as pd, torch
from torch.utils.data import DataLoader, TensorDataset
draw = np.random.default_rng(0)
words = np.array([f"game {letter}" for letter in "abcdefghijkl"])
table = pd.DataFrame({"game": draw.choice(words, 600), "rating": draw.normal(size=600)})
parts = table[:400], table[400:][table[400:].game != "game b"]

def encode(part, known):
    codes = pd.Categorical(part["game"]CATEGORIES).codes
    return torch.tensor(codes.astype("int64")), torch.tensor(part["rating"].to_numpy(), dtype=torch.float32)

def rmse(data):
    games, ratings = data
    with torch.no_grad():
        return (model(games)[:, 0] - ratings).square().mean().sqrt()

model = torch.nn.Embedding(12, 1)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
train, val = (encode(part, words) for part in parts)
for epoch in range(4):
    model.train()
    for games, ratings in DataLoader(TensorDataset(*train), 40, shuffle=True):
        loss = (model(games)[:, 0] - ratings).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    print(f"epoch {epoch} val_rmse {rmse(val):.4f}")
"""


@pytest.mark.parametrize("categories", ["", ", categories=known"])
def test_where_features_are_encoded_apart(tmp_path: Path, categories: str) -> None:
    script(tmp_path, APART.replace("CATEGORIES", categories))
    clew_run(tmp_path, "--json", "out.json", "train.py")
    first = json.loads((tmp_path / "out.json").read_text())["causes"][0]
    if categories:
        assert first["id"] != "data.train_val_mismatch"
    else:
        assert (first["id"], first["where"][0]["line"]) == ("data.train_val_mismatch", 10)


RESAMPLED = """
def oversample(table):
    extra = table.sample(9, replace=True)
    return pd.concat([table, extra])

def balanced(table):
    return oversample(table)

def main():
    table = read()
    table = HELPER(table)
    train, held = train_test_split(table)
    train = HELPER(train)
"""


@pytest.mark.parametrize("helper", ["oversample", "balanced"])
def test_the_call_before_the_split_is_named(helper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = RESAMPLED.replace("HELPER", helper).splitlines()
    path = str(tmp_path / "a.py")
    finder = Finder({}, Project({path: lines}), {path: lines}, {})
    finder.by_cause({"data.leak_split": (Place("a.py", 3), Place("a.py", 12))})
    assert [place.line for place in finder.known["data.leak_split"]] == [11]
    finder.by_cause({"data.leak_split": (Place("a.py", 11), Place("a.py", 12))})
    assert finder.known["data.leak_split"] == ()


WINDOWED = """
def window_mask(length):
    at = torch.arange(length)
    return LEAVES

def forward(self, x):
    scores, allowed = self.scores(x), window_mask(x.shape[1])
    return APPLIED
"""
APPLIED = (
    'scores.masked_fill(~allowed, float("-inf")).softmax(-1)',
    "F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)",
    "torch.where(allowed, scores, -1e9).softmax(-1)",
)


@pytest.mark.parametrize(
    ("leaves", "applied", "lines"),
    [("(at[:, None] - at).abs() < 4", applied, [4]) for applied in APPLIED]
    + [("torch.triu(at[:, None] * at, diagonal=2) == 0", APPLIED[0], [4])]
    + [("torch.tril(torch.ones(length, length)).bool()", applied, []) for applied in APPLIED],
)
def test_the_line_that_makes_the_mask(
    leaves: str, applied: str, lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, text = str(tmp_path / "a.py"), WINDOWED.replace("LEAVES", leaves).replace("APPLIED", applied).splitlines()
    finder = Finder({}, Project({path: text}), {path: text}, {})
    finder.by_cause({"arch.causal_leak": (Place("a.py", 8),)})
    assert [place.line for place in finder.known["arch.causal_leak"]] == lines
