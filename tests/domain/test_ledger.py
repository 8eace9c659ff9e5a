"""When a conversation goes on, and when it begins anew."""

import pytest

from routines.domain.agent import ECHO, AgentKind, AgentSpec
from routines.domain.ledger import Known, chooses_id, keeps_own_sessions, why_new_epoch

WORDS = ("prog", "--resume", "{native_session}")
OURS = AgentSpec(
    name="prog", kind=AgentKind.COMMAND, command=WORDS, first=("prog", "--id", "{session_uuid}")
)
THEIRS = AgentSpec(name="prog", kind=AgentKind.COMMAND, command=WORDS, first=("prog",))
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
        (CUT_SHORT, OURS, None, "the first turn of epoch 1 did not finish"),
        (CUT_SHORT, THEIRS, None, "the first turn of epoch 1 did not finish"),
        # But its id is known by now: it can be resumed.
        (RESUMABLE, OURS, None, None),
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
