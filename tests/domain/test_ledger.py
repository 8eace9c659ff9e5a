"""When a conversation goes on, and when it begins anew."""

from dataclasses import replace

import pytest

from routines.domain.agent import ECHO, AgentKind, AgentSpec, Unfinished
from routines.domain.ledger import (
    Known,
    Totals,
    chooses_id,
    keeps_own_sessions,
    this_turn,
    why_new_epoch,
)

WORDS = ("prog", "--resume", "{native_session}")
OURS = AgentSpec(
    name="prog", kind=AgentKind.COMMAND, command=WORDS, first=("prog", "--id", "{session_uuid}")
)
THEIRS = AgentSpec(name="prog", kind=AgentKind.COMMAND, command=WORDS, first=("prog",))
RESUMING = replace(OURS, unfinished=Unfinished.RESUME)
PLAIN = AgentSpec(name="prog", kind=AgentKind.COMMAND, command=("prog",))
PYTHON = AgentSpec(name="prog", kind=AgentKind.PYTHON, python="m:f")


def known(**changes):
    before = {
        "agent": "prog",
        "epoch": 1,
        "native_session": None,
        "first_turn_begun": False,
        "epoch_turns": 0,
    }
    return Known(**before | changes)


UNFINISHED = "the first turn of epoch 1 did not finish"
NEW = known(agent=None)
CUT_SHORT = known(first_turn_begun=True)
RESUMABLE = known(first_turn_begun=True, native_session="n-1")
UNDER_WAY = known(first_turn_begun=True, native_session="n-1", epoch_turns=3)


@pytest.mark.parametrize(
    ("before", "spec", "session_turns", "why"),
    [
        # It has not begun, or goes on.
        (NEW, OURS, None, None),
        (known(), OURS, None, None),
        (UNDER_WAY, OURS, None, None),
        (UNDER_WAY, THEIRS, 4, None),
        # The first turn was launched and never finished.
        (CUT_SHORT, OURS, None, UNFINISHED),
        (CUT_SHORT, THEIRS, None, UNFINISHED),
        # But its id is known by now: it can be resumed.
        (RESUMABLE, OURS, None, None),
        # Or the program keeps what it had under the id that we chose; of its own it must say it.
        (CUT_SHORT, RESUMING, None, None),
        (CUT_SHORT, replace(THEIRS, unfinished=Unfinished.RESUME), None, UNFINISHED),
        # It finished, and never said by which id it can be resumed.
        (
            known(first_turn_begun=True, epoch_turns=1),
            THEIRS,
            None,
            "prog named no id that can be used",
        ),
        (known(first_turn_begun=True, epoch_turns=1), OURS, None, None),
        (known(first_turn_begun=True, epoch_turns=1), PLAIN, None, None),
        # Or there is no conversation that could be half begun.
        (CUT_SHORT, PLAIN, None, None),
        (CUT_SHORT, PYTHON, None, None),
        (CUT_SHORT, ECHO, None, None),
        (CUT_SHORT, None, None, None),
        # It has had its turns.
        (UNDER_WAY, OURS, 3, "it had 3 turns, and session_turns is 3"),
        (UNDER_WAY, OURS, 2, "it had 3 turns, and session_turns is 2"),
        (NEW, OURS, 1, None),
        # Another agent.
        (known(agent="other", epoch_turns=1), OURS, None, "the agent changed from other to prog"),
        (known(agent="other"), None, None, "the agent changed from other to prog"),
    ],
)
def test_conversation_begins_anew_only_for_a_reason(before, spec, session_turns, why):
    assert why_new_epoch(before, agent="prog", spec=spec, session_turns=session_turns) == why


@pytest.mark.parametrize(
    ("spec", "own", "by_us"),
    [(OURS, True, True), (THEIRS, True, False), (PLAIN, False, False), (PYTHON, False, False)],
)
def test_program_that_keeps_conversations_says_so_in_its_words(spec, own, by_us):
    assert (keeps_own_sessions(spec), chooses_id(spec)) == (own, by_us)


# What a turn cost --------------------------------------------------------------------------------


def cost(reported, before=None, *, running=True, alone=None):
    turn, totals = this_turn(
        alone=Totals(usd=alone),
        reported=Totals(usd=reported),
        before=Totals(usd=before),
        running=running,
    )
    return turn.usd, totals.usd


@pytest.mark.parametrize(
    ("reported", "before", "turn", "total"),
    [
        # The first turn, and later ones: what the total rose by.
        (0.14, None, 0.14, 0.14),
        (0.28, 0.14, 0.14, 0.28),
        (0.28, 0.28, 0.0, 0.28),
        # It fell: the program counts anew, and no turn costs less than nothing.
        (0.05, 0.28, 0.05, 0.05),
        # It says nothing this time.
        (None, 0.28, None, 0.28),
        (None, None, None, None),
    ],
)
def test_of_a_running_total_a_turn_cost_what_it_rose_by(reported, before, turn, total):
    assert cost(reported, before) == (turn, total)


def test_an_old_program_reports_the_turn_alone_and_its_total_is_kept_by_us():
    assert cost(0.14, None, running=False) == (0.14, 0.14)
    assert cost(0.14, 0.14, running=False) == (0.14, 0.28)
    # Brought up to date in the middle of a conversation: the first difference is right at once.
    assert cost(0.42, 0.28) == (0.14, 0.42)


def test_what_is_said_of_the_turn_alone_goes_before_a_difference():
    assert cost(0.5, 0.2, alone=0.1) == (0.1, 0.5)
    assert cost(None, 0.2, alone=0.1) == (0.1, 0.2)


def test_tokens_stay_whole_numbers():
    turn, totals = this_turn(
        alone=Totals(), reported=Totals(tokens=30), before=Totals(tokens=15), running=True
    )
    assert (turn.tokens, totals.tokens) == (15, 30)
    assert isinstance(turn.tokens, int)
