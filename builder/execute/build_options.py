"""How a plan is to be executed, how its jobs are to be submitted, and how an execution is stopped."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.report import Report
from builder.model.text import sanitize


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """What the user said; `environment` is what the steps start from, `step_seconds` the longest a step may take."""

    environment: Mapping[str, str]
    force: bool = False  # replace an output that exists
    tmpdir: Path | None = None  # default: TMPDIR, else /tmp
    start: str = ""  # name of the first step to run; those before it have left their products
    no_smoke: bool = False
    sign: bool = False
    reproduce: bool = False  # build again and compare
    step_seconds: float | None = None


class SignalInterrupt(KeyboardInterrupt):
    """The user or the batch system stops the build; `exit_code` is a shell's: 130 for SIGINT, 143 for SIGTERM.

    `report` says how far it came, once there is something to say; `message` is for the user, "" for the usual one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.report: Report | None = None
        self.message = ""

    @property
    def exit_code(self) -> int:
        """128 + the signal's number."""
        return 128 + self.number


class Signals:
    """SIGINT, SIGTERM, SIGHUP and SIGQUIT (Ctrl-\\) as SignalInterrupt, while the `with` block of `catch` lasts.

    With `once` only the first of them: what follows it is cleaning up.
    """

    def __init__(self, *, once: bool = False) -> None:
        self._held = False
        self._once = once

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Turn the signals into SignalInterrupt; one that is ignored (nohup) stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
        before = {number: signal.getsignal(number) for number in numbers}
        try:
            for number in numbers:
                if before[number] is not signal.SIG_IGN:
                    signal.signal(number, self._handle)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def ignore(self) -> None:
        """Ignore signals from now on: what is left is cleaning up."""
        self._held = True

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Let nothing interrupt what is short, and worse when half of it is done."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._held:
            self._held = self._once
            raise SignalInterrupt(number)


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")
_TIME = re.compile(r"\d+|\d+:[0-5]\d|\d+:[0-5]\d:[0-5]\d|\d+-\d+(?::[0-5]\d){0,2}")
_DEPENDENCY = re.compile(
    r"(?:singleton|after\w*:\d+(?:[+_]\d+)?(?::\d+(?:[+_]\d+)?)*)(?:[,?](?:singleton|after[\w:+]*))*"
)
_MEMORY = re.compile(r"\d+[KMGT]?")

FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "partition": (_NAME, "write a partition's name, or several with commas"),
    "qos": (_NAME, "write the name of a quality of service"),
    "time": (_TIME, "write minutes, or HH:MM:SS as in 02:00:00, or D-HH:MM:SS, minutes and seconds below 60"),
    "mem": (_MEMORY, "write a size such as 64G"),
    "dependency": (_DEPENDENCY, "write it as afterok:JOBID"),
}
EVERY = ""  # the key of a value for all steps


@dataclass(frozen=True, kw_only=True)
class JobOverrides:
    """Values by option and step; those of a step win over those for all."""

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    account: str = ""
    dependency: str = ""

    def find(self, option: str, *, step: str) -> str:
        """The value of an option for a step, "" when nothing was said."""
        given = self.values.get(option, {})
        return given.get(step, given.get(EVERY, ""))


def read_overrides(
    given: Mapping[str, Sequence[str]], *, steps: Iterable[str], account: str, dependency: str
) -> JobOverrides:
    """Read `VALUE` and `STEP=VALUE`; raises ConfigError with everything that is no value or no step."""
    known, findings = list(steps), []
    values: dict[str, dict[str, str]] = {}
    for option, words in given.items():
        for word in words:
            step, equals, value = word.partition("=")
            if not equals:
                step, value = EVERY, word
            elif step not in known:
                fix = suggest_name(step, known=known, noun="its jobs")
                findings.append(_make_option_finding(option, f"there is no job '{sanitize(step)}' for --{option}", fix))
            findings += _check_form(option, value)
            values.setdefault(option, {})[step] = value
    if dependency:
        findings += _check_form("dependency", dependency)
    if findings:
        raise ConfigError(*findings)
    return JobOverrides(values=values, account=account, dependency=dependency)


def find_wrong_values(given: Mapping[str, Sequence[str]], *, dependency: str) -> list[Finding]:
    """Find every `VALUE` and `STEP=VALUE` that cannot be one; the steps are not known yet."""
    findings = [
        found for option, words in given.items() for word in words for found in _check_form(option, _value(word))
    ]
    return findings + (_check_form("dependency", dependency) if dependency else [])


def _value(word: str) -> str:
    step, equals, value = word.partition("=")
    return value if equals else step


def _check_form(option: str, value: str) -> list[Finding]:
    form, fix = FORMS[option]
    if form.fullmatch(value):
        return []
    return [_make_option_finding(option, f"'{sanitize(value)}' cannot be the value of --{option}", fix)]


def _make_option_finding(option: str, message: str, fix: str) -> Finding:
    return Finding(code="option-value", message=message, at=Location(key=f"--{option}"), fix=fix)
