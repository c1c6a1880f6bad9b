"""Where shell commands end, and whether one is complete: what is open at its end would take in the command after it."""

from __future__ import annotations

import re
from dataclasses import dataclass

HERE = re.compile(r"<<(?P<tabs>-?)[ \t]*(?P<word>(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|()<>'\"\\])+)")
OPENERS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}"}
BEFORE_COMMANDS = frozenset(("then", "else", "elif", "do", "!", "time", *OPENERS)) - {"for", "select", "case"}
OPERATORS = ("&&", "||", "|")
QUOTES = {"'": "a single quote", '"': "a double quote", "`": "a backquote"}


class _Open(Exception):  # noqa: N818  # not an error: it ends the reading
    """What is open where the text ends."""


def find_open_part(text: str) -> str:
    """Return what is open at the end of a command, in words; "" for a complete one.

    The shell itself has the last word while the image is built: what this does not see fails there.
    """
    try:
        _Reader(text.rstrip()).read_commands(end="")  # as it is written into the script
    except _Open as found:
        return str(found)
    except RecursionError:
        return ""
    return ""


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """One of the commands of a text: what `;`, `&&` or a line end separates. A block and a pipeline are one."""

    text: str  # without comments
    start: int  # in the text


def split_commands(text: str) -> tuple[ShellCommand, ...]:
    """Split a text at the ends of its commands; what is not complete is one command."""
    reader = _Reader(text)
    try:
        reader.read_commands(end="")
    except (_Open, RecursionError):
        reader.cuts, reader.comments = [], []
    found, start = [], 0
    for end, after in [*reader.cuts, (len(text), len(text))]:
        piece, begin, at = "", -1, start
        for first, last in [*(pair for pair in reader.comments if start <= pair[0] < end), (end, end)]:
            part = text[at:first]
            if begin < 0 and part.strip():
                begin = at + len(part) - len(part.lstrip())
            piece, at = piece + part, last
        if begin >= 0:
            found.append(ShellCommand(text=piece.strip(), start=begin))
        start = after
    return tuple(found)


class _Place:
    """What a reader of commands knows where it is."""

    def __init__(self, *, top: bool = False) -> None:
        self.top = top  # not in a sub-shell or a substitution
        self.blocks: list[str] = []  # the words that open what is open
        self.first = True  # a command begins here
        self.pattern = False  # a pattern of a case begins here, or its end
        self.waits = False  # for the `in` of a case
        self.joins = ""  # the operator before

    def add_word(self, word: str) -> None:
        """Note a word of a command."""
        if self.blocks and word == OPENERS[self.blocks[-1]] and (self.first or self.pattern):
            self.blocks.pop()
            self.pattern, self.first = False, True
        elif self.first and not self.pattern and word in OPENERS:
            self.blocks.append(word)
            self.waits, self.first = word == "case", word in BEFORE_COMMANDS
        elif self.waits and word == "in":
            self.waits, self.pattern = False, True
        else:
            self.first = self.first and word in BEFORE_COMMANDS

    def check_closed(self) -> None:
        """Raise _Open where something is open."""
        if self.blocks:
            raise _Open(f"'{self.blocks[-1]}'")
        if self.joins in OPERATORS:
            raise _Open(f"'{self.joins}'")


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.here: list[tuple[str, bool]] = []  # the words that end here-documents, and whether tabs are taken away
        self.in_backquotes = False
        self.cuts: list[tuple[int, int]] = []  # what separates commands: where it begins, and where it ends
        self.comments: list[tuple[int, int]] = []

    def read_commands(self, *, end: str) -> None:
        """Read up to a closing ')' or '`' or, with `end` "", to the end of the text. Raises _Open."""
        state = _Place(top=end == "")
        while self._skip_blanks(state):
            start, char = self.at, self.text[self.at]
            state.joins = ""
            if char == end and not (char == ")" and state.pattern):
                self.at += 1
                state.check_closed()
                return
            if char in ";&|":
                state.joins = self._read_operator()
                if state.top and not state.blocks and not self.here and state.joins in (";", "&&"):
                    self.cuts.append((start, self.at))
                state.pattern = state.pattern or state.joins.startswith(";;")
                state.first = True
            elif char in "()":
                self._read_parenthesis(state)
            elif char in "<>":
                self._read_redirection()
            else:
                self._read_word()
                state.add_word(self.text[start : self.at])
            if self.at == start:  # the backquote around it
                raise _Open("a parenthesis")
        if end:
            raise _Open(f"{QUOTES['`'] if end == '`' else 'a parenthesis'}")
        if self.here:
            raise _Open(f"a here-document '{self.here[0][0]}'")
        state.check_closed()

    def _skip_blanks(self, state: _Place) -> bool:
        """Skip blanks, comments and here-documents; whether anything follows."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "#":
                start, end = self.at, self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
                self.comments.append((start, self.at))
            elif char == "\n":
                start, documents = self.at, bool(self.here)
                self.at += 1
                self._skip_documents()
                if state.top and not state.blocks and state.joins not in OPERATORS:
                    self.cuts.append((self.at, self.at) if documents else (start, self.at))
                state.first = True
            elif char in " \t\r":
                self.at += 1
            else:
                return True
        return False

    def _read_operator(self) -> str:
        found = re.compile(r";;&|;;|;&|;|&&|\|\||\|&|&|\|").match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]

    def _read_parenthesis(self, state: _Place) -> None:
        """Read a sub-shell, arithmetic in two parentheses, or one around or after the pattern of a case."""
        if self.text[self.at] == ")" or state.pattern:
            state.pattern = state.pattern and self.text[self.at] == "("
            self.at += 1
        elif state.first and self.text.startswith("((", self.at):
            self._skip_arithmetic()
        else:
            self.at += 1
            self.read_commands(end=")")
        state.first = True

    def _skip_arithmetic(self) -> None:
        depth = 0
        for match in re.compile(r"[()]").finditer(self.text, self.at):
            depth += 1 if match[0] == "(" else -1
            if depth == 0:
                self.at = match.end()
                return
        raise _Open("a parenthesis")

    def _read_redirection(self) -> None:
        found = HERE.match(self.text, self.at)
        if self.text.startswith("<<<", self.at) or found is None:
            self.at += 3 if self.text.startswith("<<<", self.at) else 1
            return
        self.here.append((re.sub(r"['\"\\]", "", found["word"]), bool(found["tabs"])))
        self.at = found.end()

    def _skip_documents(self) -> None:
        """Skip the here-documents that begin after this line."""
        while self.here:
            word, tabs = self.here[0]
            while True:
                if self.at >= len(self.text):
                    raise _Open(f"a here-document '{word}'")
                end = self.text.find("\n", self.at)
                line = self.text[self.at :] if end < 0 else self.text[self.at : end]
                self.at += len(line) + 1
                if (line.lstrip("\t") if tabs else line) == word:
                    break
            self.here.pop(0)

    def _read_word(self) -> None:
        """Read a word with its quotes and substitutions."""
        while self.at < len(self.text) and (char := self.text[self.at]) not in " \t\r\n;&|()<>":
            if char == "\\":
                self._skip_escape()
            elif char in "'\"":
                self._skip_quote(char)
            elif char == "`" and not self.in_backquotes:
                self.at += 1
                self.in_backquotes = True
                self.read_commands(end="`")
                self.in_backquotes = False
            elif char == "`":
                return
            elif char == "$":
                self._skip_substitution(quoted=False)
            else:
                self.at += 1

    def _skip_escape(self) -> None:
        if self.at + 1 >= len(self.text):
            raise _Open("a backslash")
        self.at += 2

    def _skip_quote(self, quote: str) -> None:
        self.at += 1
        while self.at < len(self.text) and (char := self.text[self.at]) != quote:
            if quote == '"' and char == "\\":
                self.at += 2
            elif quote == '"' and char == "$":
                self._skip_substitution(quoted=True)
            else:
                self.at += 1
        if self.at >= len(self.text):
            raise _Open(f"{QUOTES[quote]}")
        self.at += 1

    def _skip_substitution(self, *, quoted: bool) -> None:
        """Skip $(commands), $((numbers)), ${variable} or a dollar sign."""
        self.at += 1
        if self.text.startswith("((", self.at):
            self._skip_arithmetic()
        elif self.text.startswith("(", self.at):
            self.at += 1
            self.read_commands(end=")")
        elif self.text.startswith("{", self.at):
            self._skip_variable(quoted=quoted)
        elif self.text.startswith("'", self.at) and not quoted:  # bash's $'...', in which \' is a character
            end = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.text, self.at)
            self.at = end.end() if end else self.at

    def _skip_variable(self, *, quoted: bool) -> None:
        while self.at < len(self.text) and (char := self.text[self.at]) != "}":
            if char == "\\":
                self._skip_escape()
            elif char == '"' or (char == "'" and not quoted):
                self._skip_quote(char)
            elif char == "$":
                self._skip_substitution(quoted=quoted)
            else:
                self.at += 1
        if self.at >= len(self.text):
            raise _Open("'${'")
        self.at += 1
