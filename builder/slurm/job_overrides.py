"""What the user says of jobs on the command line, checked, and as arguments of sbatch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.text import sanitize

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
