"""Hashes, and which passwords are taken."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_box.gate import passwords, policy
from agent_box.gate.errors import BusyError, PolicyError


def test_the_hash_is_what_caddy_reads():
    hashed = passwords.make("lantern orbit velvet mango")
    assert passwords.scheme(hashed) == passwords.OURS
    assert hashed.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert passwords.matches(hashed, "lantern orbit velvet mango")
    assert not passwords.matches(hashed, "lantern orbit velvet mangO")


def test_composed_and_decomposed_signs_are_the_same():
    hashed = passwords.make("zu\u0308rich is a nice city")
    assert passwords.matches(hashed, "z\u00fcrich is a nice city")


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "plain",
        "$argon2i$v=19$m=19456,t=2,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=9999999,t=2,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=19456,t=99,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=1,t=1,p=1$GbS0kI5kqWTRDaw6qSbHuA$" + "A" * 43,
        "$argon2id$v=19$m=19456,t=2,p=1$GbS0kI5kqWTRDaw6qSbHu$" + "A" * 45,
        "$2b$31$" + "." * 53,
        "$2x$10$" + "." * 53,
        "$6$salt$hash",
    ],
)
def test_hashes_that_the_gate_does_not_take(hashed):
    with pytest.raises(ValueError, match=r"."):
        passwords.scheme(hashed)


@pytest.mark.parametrize("algorithm", ["argon2id", "bcrypt"])
def test_a_decoy_is_like_a_real_hash_and_nobody_has_its_password(algorithm):
    like = passwords.OURS if algorithm == "argon2id" else passwords.Scheme("bcrypt", (8,))
    decoy = passwords.decoy(like)
    assert passwords.scheme(decoy) == like
    assert not passwords.matches(decoy, "")
    assert not passwords.matches(decoy, "impossible")


def test_impossible_passwords_match_nothing():
    hashed = passwords.make("impossible")
    assert not passwords.matches(hashed, "x" * 1000)
    assert not passwords.matches(hashed, "a\0b")
    assert not passwords.matches(hashed, "\ud800")


async def test_one_check_at_a_time_and_few_waiting():
    worker = passwords.Worker(queue=2)
    running, most = 0, 0
    gate = threading.Event()

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(5)
        running -= 1

    tasks = [asyncio.create_task(worker.run(work)) for _ in range(3)]
    await asyncio.sleep(0.01)
    with pytest.raises(BusyError):
        await worker.run(work)
    gate.set()
    await asyncio.gather(*tasks)
    assert (most, worker.waiting) == (1, 0)
    worker.close()


# -- policy


@pytest.mark.parametrize(
    "common",
    [
        "passwordpassword",
        "Password12345678!",
        "P@ssw0rd12345678",
        "1234567890123456",
        "qwertyuiopasdfgh",
        "3edc4rfv5tgb6yhn7ujm",
        "correct horse battery staple",
        "alice-box-example-2026",
        "abcabcabcabcabcabc",
        "Summer2026Summer2026",
        "p-a-s-s-w-o-r-d-1-2-3-4",
        "letmeinletmein!!",
    ],
)
def test_common_passwords(common):
    with pytest.raises(PolicyError, match="guessers"):
        policy.check(common, ("alice", "box.example"))


@pytest.mark.parametrize(
    "good",
    [
        "lantern orbit velvet mango",
        "kX9#vLq2!mZ7pTw4",
        "пароль-зима-дерево-лист",
        "四季の風が窓を叩く静かな夜明け前",
        "password manager ate my lunch",
        "7f3c9a01e5b24d68",
    ],
)
def test_good_passwords(good):
    assert policy.check(good, ("alice", "box.example")) == good


@given(st.text(max_size=80))
def test_the_policy_answers_everything(text):
    try:
        assert 16 <= len(policy.check(text)) <= 64
    except PolicyError as error:
        assert str(error)
