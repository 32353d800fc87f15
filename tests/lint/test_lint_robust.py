"""It never fails on a file: one line for that file, and the rest goes on."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint_cases import programs
from test_rules import ALL as SNIPPETS

from clew.lint.check import look
from clew.lint.project import Project
from clew.lint.registry import load
from clew.lint.script import Hit, Script
from conftest import Clew

RULES = load()
GOOD = "import torch\n\n\ndef f(model):\n    model.eval\n"
TEXTS = [text for program in programs() for text in program.faulty.values()] + [one.text for one in SNIPPETS]


@pytest.fixture
def lint(clew: Clew, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clew:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *words: clew("lint", *words)


NASTY = {
    "python2": b"import torch\nprint 'hello'\n",
    "template": b"import torch\n{% for x in y %}\nx = {{ x }}\n{% endfor %}\n",
    "null": b"import torch\nx = 1\0\n",
    "latin": b"import torch\nx = '\xe9'\n",
    "wrong_coding": b"# -*- coding: no-such-codec -*-\nimport torch\n",
    "deep": b"import torch\nx = " + b"(" * 3000 + b")" * 3000 + b"\n",
    "deep_blocks": b"import torch\n" + b"".join(b" " * n + b"if x:\n" for n in range(150)) + b" " * 150 + b"pass\n",
    "huge": b"import torch\n" + b"x = 1\n" * 800_000,
    "merge": b"import torch\n<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n",
    "surrogate": "import torch\nx = '\ud800'\n".encode("utf-8", errors="surrogatepass"),
}
FINE = {
    "empty": b"",
    "bom": b"\xef\xbb\xbfimport torch\nx = 1\n",
    "crlf": b"import torch\r\nx = 1\r\n",
    "declared": b"# -*- coding: latin-1 -*-\nimport torch\nx = '\xe9'\n",
    "long_sum": b"import torch\nx = " + b" + ".join([b"torch.ones(1)"] * 900) + b"\n",
    "long_chain": b"import torch\nx = torch.ones(1)" + b".squeeze()" * 400 + b"\nx.log()\n",
    "self_import": b"import torch\nfrom self_import import net\nloss = torch.nn.functional.cross_entropy(net(1), 2)\n",
    "recursive": b"import torch\ndef f(x):\n    return f(x)\ny = torch.nn.functional.nll_loss(f(1), 2)\n",
    "cyclic": b"import torch\nx = y = 1\nwhile x:\n    x = y\n    y = x\nloss = torch.nn.CrossEntropyLoss()(x, y)\n",
    "own_base": b"import torch\nclass A(A):\n    pass\nclass B(B, A):\n    def forward(self):\n        return self()\n",
}


FAULT = "import torch.nn.functional as F\nloss = F.cross_entropy(F.softmax(logits, 1), y)  # café\n"
UNREADABLE = {
    "no_library": (b"def f(:\n    pass\n", "line 1"),
    "library": (b"import torch\ndef f(:\n", "line 2"),
    "utf16": (FAULT.encode("utf-16"), "UTF-16"),
    "utf16_unmarked": (FAULT.encode("utf-16-le"), "null bytes"),
    "undeclared": (FAULT.encode("latin-1"), "not"),
    "late": (b"x = 1\ny = 2\n# coding: latin-1\n" + FAULT.encode("latin-1"), "line 5: not in utf-8"),
    "unknown": (b"# coding: klingon\n" + FAULT.encode(), "klingon"),
}
ENCODED = {
    "latin": ("# -*- coding: latin-1 -*-\n", "latin-1"),
    "second_line": ("#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\n", "cp1252"),
    "marked": ("", "utf-8-sig"),
}


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_a_file_that_python_would_not_run_is_named_and_gives_two(lint: Clew, name: str) -> None:
    data, part = UNREADABLE[name]
    Path("odd.py").write_bytes(data)
    said = lint("odd.py")
    assert said.status == 2
    assert part in said.err
    Path("fault.py").write_text(FAULT)
    assert lint("odd.py", "fault.py").status == 1


@pytest.mark.parametrize("name", sorted(ENCODED))
def test_a_declared_encoding_is_read_and_kept_by_fixes(lint: Clew, name: str) -> None:
    head, encoding = ENCODED[name]
    Path("a.py").write_bytes((head + "# café\n" + GOOD).encode(encoding))
    assert "CLW215" in lint("a.py").out
    assert lint("--fix", "a.py").status == 0
    again = Path("a.py").read_bytes().decode(encoding)
    assert "# café\n" in again
    assert "model.eval()" in again


@pytest.mark.parametrize(
    "deep",
    [
        "total = " + " + ".join(["x"] * 2000),
        "if x == 0:\n    pass\n" + "".join(f"elif x == {n}:\n    pass\n" for n in range(900)),
    ],
)
def test_deep_code_hides_no_finding(lint: Clew, deep: str) -> None:
    Path("a.py").write_text(FAULT + deep + "\n")
    said = lint("a.py")
    assert "CLW101" in said.out
    assert said.err == ""


def test_a_rule_that_fails_leaves_the_others_and_the_file() -> None:
    def fails(script: Script) -> Iterator[Hit]:
        yield from RULES["CLW101"].check(script)
        raise RecursionError("too deep")

    rules = {**RULES, "CLW101": RULES["CLW101"]._replace(check=fails)}
    looked = look("a.py", FAULT.encode(), Project(["a.py"]), rules)
    assert [one.rule for one in looked.findings] == ["CLW101"]
    assert str(looked.trouble) == "a.py was checked in part: CLW101 failed on it: RecursionError too deep"


@pytest.mark.parametrize("name", sorted(NASTY))
def test_a_file_that_cannot_be_read_gets_one_line(lint: Clew, name: str) -> None:
    Path(f"{name}.py").write_bytes(NASTY[name])
    Path("zz_good.py").write_text(GOOD)
    said = lint(".", "--format", "json")
    assert said.status == 1
    found, left = json.loads(said.out)
    assert found["path"] == "zz_good.py"
    assert (left["rule"], left["path"], left["fix"]) == ("CLW000", f"{name}.py", None)
    assert said.err == f"clew: {left['message']}\n"
    assert said.err.startswith(f"clew: {name}.py could not be checked: ")
    notes = lint(".", "--format", "github").out.split("\n")
    assert notes[1].startswith(f"::error file={name}.py,line={left['line']},")


@pytest.mark.parametrize("name", sorted(FINE))
def test_an_odd_file_that_is_python_is_looked_at(lint: Clew, name: str) -> None:
    Path(f"{name}.py").write_bytes(FINE[name])
    said = lint(f"{name}.py")
    assert said.err == ""
    assert said.status in (0, 1)


def test_odd_places(lint: Clew) -> None:
    Path("folder.py").mkdir()
    Path("gone.py").symlink_to("nowhere.py")
    Path("broken.ipynb").write_text("{torch")
    Path("other.ipynb").write_text('["torch"]')
    Path("zz_good.py").write_text(GOOD)
    said = lint(".", "--format", "json")
    rows = json.loads(said.out)
    assert [row["path"] for row in rows if row["rule"] != "CLW000"] == ["zz_good.py"]
    assert [row["path"] for row in rows[1:]] == ["broken.ipynb", "gone.py", "other.ipynb"]
    assert said.err.count("\n") == 3


def test_a_pipe_in_a_folder_is_not_waited_for(lint: Clew) -> None:
    os.mkfifo("pipe.py")
    Path("zz_good.py").write_text(GOOD)
    said = lint(".", "--format", "json")
    assert [row["path"] for row in json.loads(said.out)] == ["zz_good.py"]
    assert said.err == ""


def test_the_summary_counts_what_was_looked_at(lint: Clew) -> None:
    Path("old.py").write_text("import torch\nprint 'x'\n")
    assert lint("old.py").out.startswith("1 file could not be checked: line 2: Missing parentheses")
    Path("fine.py").write_text("import torch\n")
    assert lint(".").out.startswith("Nothing found in 1 file. 1 file could not be checked: line 2: ")
    Path("older.py").write_text("import torch\nprint 'x'\n")
    assert lint("old.py", "older.py").out.strip() == "2 files could not be checked."
    assert lint("old.py").err.endswith("Did you mean print(...).\n")
    Path("empty").mkdir()
    assert lint("empty").out.strip() == "There is no Python file and no notebook to check."


def test_two_files_that_import_each_other(lint: Clew) -> None:
    Path("a.py").write_text("import torch\nfrom b import g\ndef f(x):\n    return g(x)\n")
    Path("b.py").write_text(
        "import torch\nfrom a import f\ndef g(x):\n    return f(x)\nl = torch.nn.NLLLoss()(g(1), 2)\n"
    )
    said = lint(".")
    assert (said.status, said.err) == (0, "")


def clean(text: str, folder: Path) -> None:
    path = str(folder / "train.py")
    seen = look(path, text.encode("utf-8", errors="surrogatepass"), Project([path]), RULES)
    if seen.trouble is not None:
        assert "failed on it" not in seen.trouble.why, f"{seen.trouble.why}\n{text}"


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_programs_with_lines_moved_and_lost(data: st.DataObject, tmp_path: Path) -> None:
    lines = data.draw(st.sampled_from(TEXTS)).split("\n")
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(lines) - 1)))
        what = data.draw(st.sampled_from(["drop", "double", "swap", "indent", "graft"]))
        if what == "drop" and len(lines) > 1:
            del lines[at]
        elif what == "double":
            lines.insert(at, lines[at])
        elif what == "swap":
            lines[at], lines[-1] = lines[-1], lines[at]
        elif what == "indent":
            lines[at] = lines[at].lstrip() if lines[at].startswith(" ") else f"    {lines[at]}"
        else:
            other = data.draw(st.sampled_from(TEXTS)).split("\n")
            lines[at:at] = other[: data.draw(st.integers(1, len(other)))]
    clean("\n".join(lines), tmp_path)


WORDS = st.sampled_from(
    "loss backward() optimizer .step() .zero_grad() model ( ) [ ] : = + - * / , . x y in for if else return torch F nn "
    "softmax cross_entropy(x, y) lambda : yield await None 1 0.5 *args **kw @ self with torch.no_grad(): \n \n\t".split(
        " "
    )
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, max_size=40), head=st.sampled_from(TEXTS))
def test_words_in_any_order(words: list[str], head: str, tmp_path: Path) -> None:
    clean(f"{head}\n{' '.join(words)}\n", tmp_path)
    clean("import torch\n" + " ".join(words), tmp_path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200))
def test_any_text(text: str, tmp_path: Path) -> None:
    clean("import torch\n" + text, tmp_path)
