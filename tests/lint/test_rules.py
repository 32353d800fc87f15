"""Every rule fires on at least three spellings of its fault and keeps silent on at least three look-alikes.

The snippets stand in `snippets/`: what comes before the first `===` is put before each of them.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from lint_cases import lint

from clew.knowledge.base import load as knowledge
from clew.lint.registry import HEADINGS, load

SNIPPETS = Path(__file__).parent / "snippets"


class Snippet(NamedTuple):
    code: str
    fires: bool
    number: int
    text: str


def snippets() -> list[Snippet]:
    found = []
    for path in sorted(SNIPPETS.glob("*.txt")):
        prelude, *parts = path.read_text().split("\n=== ")
        for part in parts:
            head, _, body = part.partition("\n")
            code, kind = head.split()
            assert kind in ("fires", "silent"), head
            for number, text in enumerate(body.split("\n---\n"), 1):
                found.append(Snippet(code, kind == "fires", number, f"{prelude}\n{text.strip()}\n"))
    return found


ALL = snippets()


def name(snippet: Snippet) -> str:
    return f"{snippet.code}-{'fires' if snippet.fires else 'silent'}-{snippet.number}"


@pytest.mark.parametrize("snippet", ALL, ids=name)
def test_a_snippet(snippet: Snippet, tmp_path: Path) -> None:
    found = lint(snippet.text, tmp_path, snippet.code)
    assert bool(found) == snippet.fires, [one.message for one in found]


@pytest.mark.parametrize(("shuffle", "sure"), [("True", "look"), ("False", "likely")])
def test_the_first_batch_of_a_loader_that_shuffles_is_another_each_time(
    shuffle: str, sure: str, tmp_path: Path
) -> None:
    text = f"""
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle={shuffle})
for step in range(1000):
    x, y = next(iter(loader))
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
"""
    assert [one.confidence for one in lint(text, tmp_path, "CLW515")] == [sure]


def test_every_rule_has_its_snippets() -> None:
    counts = Counter((snippet.code, snippet.fires) for snippet in ALL)
    short = [code for code in load() if counts[code, True] < 3 or counts[code, False] < 3]
    assert not short


@pytest.mark.parametrize("rule", load().values(), ids=lambda rule: rule.code)
def test_a_rule_documents_itself(rule: object) -> None:
    held = load()[rule.code]  # type: ignore[attr-defined]
    assert held.title.endswith(".")
    for heading in HEADINGS:
        assert len(held.section(heading)) >= 10, heading
    assert held.module.rsplit(".", 1)[-1].startswith(held.code.lower())
    assert held.cause in knowledge().causes


def test_codes_and_names_are_unique() -> None:
    rules = load()
    assert len({rule.name for rule in rules.values()}) == len(rules) >= 45


FOLLOWS = """import torch

class Learner:
    def track(self):
        for slow, fast in zip(self.{copy}.parameters(), self.q.parameters()):
            slow = 0.98 * slow + 0.02 * fast
{agent}
"""
AGENT = "    def aim(self, reward, later):\n        return reward + self.gamma * self.q_slow(later)"


@pytest.mark.parametrize(
    ("copy", "agent", "cause"),
    [
        ("target", "", "rl.target_network"),
        ("q_slow", AGENT, "rl.target_network"),
        ("q_ema", AGENT, "train.step_missing"),
        ("q_slow", "", "train.step_missing"),
    ],
)
def test_what_follows_a_network_of_an_agent_is_its_target(tmp_path: Path, copy: str, agent: str, cause: str) -> None:
    found = [one.cause for one in lint(FOLLOWS.format(copy=copy, agent=agent), tmp_path, "CLW223")]
    assert found == [cause]
