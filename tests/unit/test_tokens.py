"""Tokens: what a file may hold, what a caller gets for one, and that none is ever shown."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_bed import SECRETS, STRANGER, TOKENS, known_tokens

from grpc_ps.client.shared import tokens as module
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.tokens import Role, Token, read_token, read_tokens

LONG = "0123456789abcdef"
OTHER = "fedcba9876543210"


def written(folder: Path, text: str) -> Path:
    path = folder / "file"
    path.write_bytes(text.encode("utf-8"))
    return path


def test_roles_of_a_servers_file(tmp_path: Path) -> None:
    text = f"# who may what\n\nworker {LONG}  # the cluster's\n  admin\t{OTHER}\n"
    assert read_tokens(written(tmp_path, text)) == {Token(LONG): Role.WORKER, Token(OTHER): Role.ADMIN}


def test_one_token_alone_may_do_everything(tmp_path: Path) -> None:
    assert read_tokens(written(tmp_path, f"{LONG}\n")) == {Token(LONG): Role.ADMIN}
    assert read_token(written(tmp_path, f"# mine\n{LONG}\n")) == Token(LONG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no token"),
        ("# nothing\n", "holds no token"),
        (f"{LONG}\n{OTHER}\n", "line 1 must be `role token`, with a role of reader, worker, admin"),
        (f"worker {LONG}\nroot {OTHER}\n", "line 2 must be `role token`, with a role of reader, worker, admin"),
        (f"worker {LONG} more\n", "line 1 must be `role token`, with a role of reader, worker, admin"),
        (f"worker {LONG}\n\nadmin {LONG}\n", "line 3 has the token of a line before"),
        ("admin 0123456789abcde\n", "the token of line 1 must be 16 to 1024 printable characters"),
        ("admin 0123456789abcde\x01\n", "the token of line 1 must be 16 to 1024 printable characters"),
        (f"admin {LONG}é\n", "holds other characters than plain ASCII"),
    ],
)
def test_a_servers_file_that_is_none(tmp_path: Path, text: str, why: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_tokens(path)
    assert str(caught.value) == f"--token-file {path}: {why}"


@pytest.mark.parametrize("text", ["", f"worker {LONG}\n", f"{LONG}\n{OTHER}\n"])
def test_a_clients_file_holds_one_token(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_token(path)
    assert str(caught.value) == f"--token-file {path}: must hold one token alone (`role token` lines are for psserver)"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for read in (read_token, read_tokens):
        with pytest.raises(UsageError) as caught:
            read(tmp_path / "none")
        assert str(caught.value) == f"--token-file {tmp_path / 'none'}: No such file or directory"


def test_each_token_has_its_role_and_others_have_none() -> None:
    known = known_tokens()
    assert [known.role(secret) for secret in SECRETS] == list(Role)
    for secret in (*(secret[:-1] for secret in SECRETS), SECRETS[0].upper(), f"{SECRETS[0]} ", "", "\udcff"):
        assert known.role(secret) is None, secret


@given(st.text(max_size=40))
def test_nothing_but_the_tokens_has_a_role(presented: str) -> None:
    assert known_tokens().role(presented) is None


def test_comparing_takes_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    real = hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    for presented in (SECRETS[0], SECRETS[-1], "x", "y" * 5000):
        compared.clear()
        known_tokens().role(presented)
        assert compared == [(32, 32)] * len(Role), presented


def test_a_token_is_never_shown() -> None:
    for secret, token in zip(SECRETS, TOKENS.values(), strict=True):
        shown = (repr(token), str(token), f"{token}", repr([token]), repr({token: 1}), repr(known_tokens()))
        assert not any(secret in text for text in shown)
    assert repr(known_tokens()) == "Tokens(reader, worker, admin)"
    assert STRANGER.metadata() == (("authorization", "Bearer a-token-of-nobody-here"),)
