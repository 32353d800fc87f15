"""What of a text counts when a quote is compared with its source: words, numbers and the signs that carry meaning.

The docstring of `quotes` states the rule; this module applies it, to quotes and sources alike. Every step keeps the
line breaks where they are, so that each word still knows its line.
"""

import re
from typing import NamedTuple


class Words(NamedTuple):
    """A text as the comparison sees it. Word `i` is `clean[begins[i]:ends[i]]` and stands on line `lines[i]`."""

    clean: str
    words: list[str]
    begins: list[int]
    ends: list[int]
    lines: list[int]
    numerals: frozenset[int]  # indices of list numbers ("3." at the head of an item), which a quote may leave out

    def raw(self, first: int, last: int) -> str:
        """Words `first` to `last` (not included) as they are written, on one line."""
        if first >= last:
            return ""
        begin, end = self.begins[first], self.ends[last - 1]
        while begin > 0 and self.clean[begin - 1] in "([{\"'*_":
            begin -= 1
        while end < len(self.clean) and self.clean[end] in ".,;:!?)]}%\"'*_":
            end += 1
        return " ".join(_EMPHASIS.sub("", self.clean[begin:end]).replace("|", " ").split())


_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        **dict.fromkeys("\u2022\u2023\u2043\u25aa\u25cf\u25cb\u25e6\u25a0\uf0b7", "\u2022"),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
        "\u2026": "...",
        "\x0b": " ",
        "\x0c": " ",
        "\x85": " ",
        "\u2028": " ",
        "\u2029": " ",
    }
)
# A PDF conversion may leave an accent standing before its letter.
_LOOSE_ACCENT = re.compile(r"(?<=[^\W\d_])([ \n]?)[\u00b4\u00a8\u00b8](?=[^\W\d_]{2})")
_CID = re.compile(r"\(cid:\d+\)")
_TARGET = r"\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)"
_IMAGE = re.compile(r"!\[[^\[\]]*\]" + _TARGET)
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]|\[\d{1,3}\]\(#[^()\s]*\)|\[\[\d{1,3}\]\]\([^()\s]*\)|<sup>[\d,*\s]*</sup>")
_LINK = re.compile(r"\[([^\[\]]*)\]" + _TARGET)
_REFERENCE = re.compile(r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]")
_ADDRESS = re.compile(r"<(https?://[^<>\s]*)>")
_HTML = re.compile(
    r"</?(?:a|b|i|u|s|em|strong|sub|sup|br|hr|p|div|span|img|code|pre|kbd|mark|small|font|ul|ol|li"
    r"|table|thead|tbody|tr|td|th|h[1-6]|blockquote|figure|figcaption)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(?m)^[ \t]*(?:```+|~~~+)[ \t]*[\w+#.-]*[ \t]*$")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&(?:#\w{1,8}|[A-Za-z]\w{1,30});")

_TOKEN = re.compile(
    r"\n"
    r"|\d+(?:[ \n]?\.\d+)*[^\W_]*"
    r"|(?<!\w)\.\d+[^\W_]*"
    r"|[^\W\d_][^\W_]*(?:(?:'|_+)[^\W_]+|(?<=[^\W\d_]{2})-(?:[ \t]*\n[ \t]*)?(?=[^\W\d_]{2})[^\W_]+)*"
    r"|\*+|-+|=+|[^\w\s]"
)
_EMPHASIS = re.compile(r"(?<!\w)[*_`]+|[*_`]+(?!\w)|\u2022")
_LIST_HEAD = re.compile(r"[*_#>\s]*(?:\d{1,3}[.)]|[-*+\u2022])\s")
_JOINTS = re.compile(r"[-\s]+")
_BRACKET = re.compile(r"[()\[\]{}]")
_NAMES = re.compile(r"\b(?:min|max|inf|infty|log|ln|exp|sqrt|sin|cos|pi|mu|sigma|alpha|beta|gamma|epsilon|theta)\b")
_PROSE = re.compile(r"[^\W\d_]{2}|\n[ \t]*\n")

_ALWAYS = frozenset("+<>^%&")
_NEVER = frozenset(".,;!?'\"`#@\\_\u2022\u2020\u2021\u00a7\u00b6\u00a9\u00ae\u2122")
_LONGEST_FORMULA = 120
_NEAR = 8
"""How far from a sign its operand is looked for."""


def read(text: str) -> Words:
    """Take a text apart."""
    clean = _clean(text)
    brackets = _formula_brackets(clean)
    words: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    lines: list[int] = []
    numerals: list[int] = []
    line = 1
    fresh = True  # nothing but marks so far on this line
    in_table: bool | None = None  # whether this line is a table's row, once a pipe at its head raised the question
    for match in _TOKEN.finditer(clean):
        token, at = match.group(), match.start()
        first = token[0]
        if first == "\n":
            line += 1
            fresh, in_table = True, None
            continue
        if first.isalnum() or (first == "." and len(token) > 1):
            if fresh and len(token) <= 3 and token.isdigit() and _heads_item(clean, at, match.end()):
                numerals.append(len(words))
            token = _letters(token) or token
        else:
            if fresh and first == "|" and in_table is None:
                in_table = _is_row(clean, at)
            if (first == "|" and in_table) or (fresh and _is_line_mark(clean, token, at, match.end(), brackets)):
                continue
            token = token if at in brackets else _sign(clean, token, at, match.end(), brackets)
            if not token:
                continue
        fresh = False
        words.append(token)
        begins.append(at)
        ends.append(match.end())
        lines.append(line)
        line += clean.count("\n", at, match.end())
    return Words(clean, words, begins, ends, lines, frozenset(numerals))


def _is_line_mark(clean: str, token: str, at: int, end: int, brackets: set[int]) -> bool:
    """Whether the sign at the head of a line is a bullet or a block quote's, and not a formula wrapped there."""
    if token == ">":
        return True
    if token not in "-*+\u00b7" or not _open(clean, end):
        return False
    return not (_operand_before(clean, at, brackets) and _operand_after(clean, end))


def _is_row(clean: str, at: int) -> bool:
    """Whether a line that begins with a pipe is a table's row, and not |x| in a formula."""
    line_end = clean.find("\n", at)
    line = clean[at : line_end if line_end >= 0 else len(clean)].rstrip()
    return len(line) > 1 and line.endswith("|")


def _clean(text: str) -> str:
    """The text without Markdown's, HTML's and PDF conversion's marks; `...` and the bullets stay for the sentences."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "&" in text and _ENTITY.search(text):
        import html

        text = _ENTITY.sub(lambda match: html.unescape(match.group()).replace("\n", " ").replace("\r", " "), text)
    if not text.isascii():
        import unicodedata

        text = unicodedata.normalize("NFKC", _LOOSE_ACCENT.sub(r"\1", text.translate(_SAME)))
    text = text.replace("\x0b", " ").replace("\x0c", " ")
    text = _CID.sub("\u2022", text)
    if "](" in text or "[^" in text or "][" in text:
        text = _FOOTNOTE.sub("", _IMAGE.sub(_breaks, text))
        text = _REFERENCE.sub(_label, _LINK.sub(r"\1", text))
    if "<" in text:
        text = _without_comments(text)
        text = _HTML.sub(_breaks, _ADDRESS.sub(r"\1", _FOOTNOTE.sub("", text)))
    if "\\" in text:
        text = _ESCAPED.sub(r"\1", text)
    return _FENCE.sub("", text)


def _breaks(match: re.Match[str]) -> str:
    return " " + "\n" * match.group().count("\n")


def _without_comments(text: str) -> str:
    parts: list[str] = []
    at = 0
    while True:
        begin = text.find("<!--", at)
        end = text.find("-->", begin + 4) if begin >= 0 else -1
        if end < 0:
            return "".join([*parts, text[at:]])
        parts += [text[at:begin], "\n" * text.count("\n", begin, end)]
        at = end + 3


def _label(match: re.Match[str]) -> str:
    """`[text][key]` is a link, `[0, 1][2]` is not."""
    label: str = match[1]
    return label if any(character.isalpha() for character in label) else match.group()


def _letters(token: str) -> str:
    """A word without its hyphens, line breaks and accents. Accents stay in short words: they may be symbols."""
    if not token.isalnum():
        token = _JOINTS.sub("", token)
    if not token.isascii() and len(token) > 2:
        import unicodedata

        token = "".join(one for one in unicodedata.normalize("NFD", token) if not unicodedata.combining(one))
    return token


def _formula_brackets(clean: str) -> set[int]:
    """Where brackets enclose numbers and symbols only, as in `[0, 1)`: there their kind carries meaning."""
    kept: set[int] = set()
    opened: list[int] = []
    for match in _BRACKET.finditer(clean):
        at = match.start()
        if match.group() in "([{":
            opened.append(at)
        elif opened:
            start = opened.pop()
            if _is_formula(clean, start + 1, at):
                kept.update((start, at))
    return kept


def _is_formula(clean: str, begin: int, end: int) -> bool:
    if end - begin > _LONGEST_FORMULA:
        return False
    inside = clean[begin:end]
    return any(one.isalnum() for one in inside) and not _PROSE.search(_NAMES.sub("", inside))


def _sign(clean: str, token: str, at: int, end: int, brackets: set[int]) -> str:
    """A punctuation mark as it counts: "" where it only punctuates."""
    first = token[0]
    if first in _NEVER or first in "()[]{}":
        return ""
    if first in _ALWAYS:
        return first
    spaced_left = at == 0 or clean[at - 1].isspace()
    spaced_right = _open(clean, end)
    before, after = _operand_before(clean, at, brackets), _operand_after(clean, end)
    if first == "-":
        listed = clean[max(0, at - 2) : at].rstrip()[-1:] in tuple("([{,=<>+*/^")
        return "-" if after and (before or listed or (spaced_left and not spaced_right)) else ""
    if first == "*":
        emphasis = at >= 2 and clean[at - 2] in "*_"
        tight = not spaced_left and not spaced_right and (clean[end].isalnum() or clean[end] == "(")
        return token if before and not emphasis and (tight or (spaced_left and spaced_right)) else ""
    if first == "=":
        return "" if len(token) > 2 else token
    if first in "/:":
        near = before and after
        return first if near and (first == "/" or not (spaced_left or spaced_right)) else ""
    if first in "~$":
        return first if end < len(clean) and clean[end].isdigit() else ""
    if first == "|":
        return "" if spaced_left or spaced_right else first
    return token


def _open(clean: str, end: int) -> bool:
    return end >= len(clean) or clean[end].isspace()


def _operand_before(clean: str, at: int, brackets: set[int]) -> bool:
    """Whether a number, a formula's bracket or a single letter stands to the left: what an operator works on."""
    lowest = max(0, at - _NEAR)
    if "\n\n" in clean[lowest:at]:
        return False
    at -= 1
    while at >= lowest and clean[at] in " \n*_`":
        at -= 1
    if at < lowest:
        return False
    one = clean[at]
    if one.isdigit() or one == "%" or at in brackets:
        return True
    return one.isalpha() and not (at > 0 and clean[at - 1].isalpha()) and one not in "aAI"


def _operand_after(clean: str, at: int) -> bool:
    highest = min(len(clean), at + _NEAR)
    while at < highest and clean[at] in " \n*_`([{+-":
        at += 1
    if at >= highest:
        return False
    one, two = clean[at], clean[at + 1 : at + 2]
    if one.isdigit() or (one == "." and two.isdigit()):
        return True
    return one.isalpha() and not (two.isalpha() or two == "'") and one not in "aAI"


def _heads_item(clean: str, at: int, end: int) -> bool:
    """Whether a number at the head of a line numbers a list item, and is not the end of a sentence wrapped there."""
    if clean[end : end + 1] not in (".", ")") or not _open(clean, end + 1):
        return False
    line_start = clean.rfind("\n", 0, at)
    above = clean[clean.rfind("\n", 0, max(0, line_start)) + 1 : max(0, line_start)].strip()
    return not above or above[-1] in ".!?:;" or _LIST_HEAD.match(above) is not None
