"""Tokens: who a caller is, and which role that gives it."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from grpc_ps.client.shared.errors import UsageError

MIN_TOKEN = 16
"""Characters of the shortest token: what can be guessed is no secret."""
MAX_TOKEN = 1024
"""Characters of the longest one: it travels as metadata of every call, of which gRPC takes 8 KiB."""

FLAG = "--token-file"


class Role(IntEnum):
    """What a token allows; each role may do what those before it may."""

    READER = 1
    WORKER = 2
    ADMIN = 3


@dataclass(frozen=True)
class Token:
    """A secret. `repr`, `str` and errors do not show it; `metadata` alone gives it away."""

    _text: str = field(repr=False)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns what a call carries to show it."""
        return (("authorization", f"Bearer {self._text}"),)

    def digest(self) -> bytes:
        """Returns what a server keeps of it."""
        return _digest(self._text)


class Tokens:
    """The tokens that a server knows, with their roles.

    Kept as SHA-256 digests, so that comparing takes the same time whatever a caller presents, its length included.
    """

    def __init__(self, roles: dict[Token, Role]) -> None:
        self._roles = tuple((token.digest(), role) for token, role in roles.items())

    def role(self, presented: str) -> Role | None:
        """Returns the role of what a caller presents, None for no token of ours. Looks at all of them, always."""
        digest, found = _digest(presented), None
        for known, role in self._roles:
            if hmac.compare_digest(known, digest):
                found = role
        return found

    def __repr__(self) -> str:
        return f"Tokens({', '.join(role.name.lower() for _, role in self._roles)})"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def read_token(path: Path) -> Token:
    """Reads a client's file: one token, and nothing else but comments behind `#`.

    Raises UsageError, which never quotes the file.
    """
    lines = _lines(path)
    if len(lines) != 1 or len(lines[0][1]) != 1:
        raise UsageError(f"{FLAG} {path}: must hold one token alone (`role token` lines are for psserver)")
    return _token(path, *lines[0][1], line=lines[0][0])


def read_tokens(path: Path) -> dict[Token, Role]:
    """Reads a server's file: lines `role token`, or one token alone, which may do everything.

    Raises UsageError, which never quotes the file.
    """
    lines = _lines(path)
    if not lines:
        raise UsageError(f"{FLAG} {path}: holds no token")
    if len(lines) == 1 and len(lines[0][1]) == 1:
        return {_token(path, *lines[0][1], line=lines[0][0]): Role.ADMIN}
    roles: dict[Token, Role] = {}
    names = {role.name.lower(): role for role in Role}
    for line, words in lines:
        if len(words) != 2 or words[0] not in names:
            raise UsageError(f"{FLAG} {path}: line {line} must be `role token`, with a role of {', '.join(names)}")
        token = _token(path, words[1], line=line)
        if token in roles:
            raise UsageError(f"{FLAG} {path}: line {line} has the token of a line before")
        roles[token] = names[words[0]]
    return roles


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """The words of each line that has any, with its number."""
    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise UsageError(f"{FLAG} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{FLAG} {path}: holds other characters than plain ASCII") from None
    split = ((number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, words) for number, words in split if words]


def _token(path: Path, text: str, *, line: int) -> Token:
    # Control characters are no part of a gRPC header.
    if not MIN_TOKEN <= len(text) <= MAX_TOKEN or not text.isprintable():
        allowed = f"{MIN_TOKEN} to {MAX_TOKEN} printable characters"
        raise UsageError(f"{FLAG} {path}: the token of line {line} must be {allowed}")
    return Token(text)
