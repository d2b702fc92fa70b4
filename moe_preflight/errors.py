"""Every way moe-preflight refuses to go on, and the exit code each one stands for.

::

    PreflightError                 exit 2   base; never raised itself
    ├── UsageError                 exit 2   a flag, key or combination that makes no sense
    ├── SettingsError              exit 2   a TOML file or environment variable we cannot accept
    ├── InputError                 exit 2   an input exists but is malformed
    │   ├── ConfigError            exit 2   a model config: names field, value, what was expected
    │   ├── TableError             exit 2   a CSV named by the user that cannot be read
    │   ├── FileUnreadable         exit 2   one file of an AITER tree; callers turn it into a finding and go on
    │   └── KeyFieldError          exit 2   one dispatch key: names field and what is allowed
    ├── OutputError                exit 2   a report could not be written
    └── Unavailable                exit 3   something asked for could not be looked at
        ├── ModelUnavailable       exit 3   hub unreachable, gated, not found, no card
        ├── TreeUnavailable        exit 3   no AITER tree where one was asked for
        └── DeviceUnavailable      exit 3   no GPU, no ROCm, no torch

``message`` is one line: what, where. ``hint`` is the next step for the reader.
"""

from __future__ import annotations


class PreflightError(Exception):
    """Base of the tree. ``exit_code`` is what the process ends with when this is the worst that happened."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip() if self.hint else self.message


class UsageError(PreflightError):
    """A flag, key or combination of them that makes no sense."""


class SettingsError(PreflightError):
    """A TOML file or an environment variable that cannot be accepted."""


class InputError(PreflightError):
    """An input that exists but is malformed."""


class ConfigError(InputError):
    """A model config that cannot be read as one: the message names field, value and expectation."""


class TableError(InputError):
    """A CSV table the user named that cannot be read."""


class FileUnreadable(InputError):
    """One file that cannot be read: absent, not regular, too large, or a link out of its tree.

    ``name`` is the file, ``reason`` why, in words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class KeyFieldError(InputError):
    """A dispatch key with a missing, unknown or impossible field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class OutputError(PreflightError):
    """A report that could not be written where it was asked for."""


class Unavailable(PreflightError):
    """Something asked for could not be looked at. Never green: exit 3."""

    exit_code = 3


class ModelUnavailable(Unavailable):
    """The hub could not be reached, refused, or does not have it, and no card stands in."""


class TreeUnavailable(Unavailable):
    """No AITER tree where one was asked for."""


class DeviceUnavailable(Unavailable):
    """No GPU, no ROCm or no torch, where a real launch was asked for."""
