"""What an agent program around the scheduler sets, and what a turn therefore does not see.

An agent that typed `routines run` or `routines start`, a terminal inside an IDE: the program in
our turn would take the outer one's conversation, sockets and marks for its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

OWN_PREFIX = "ROUTINES_"

# Known by name, and never wanted in a turn, whether or not a program is around.
SURROUNDING: Mapping[str, str] = {
    "CLAUDECODE": "a nested claude refuses to start, or acts as a child",
    "CLAUDE_CODE_ENTRYPOINT": "says that it was started from an SDK or an IDE",
    "CLAUDE_CODE_SSE_PORT": "would join the IDE window of the outer one",
    "CLAUDE_CODE_SESSION_ID": "tools would write into the outer conversation",
    "CLAUDE_SESSION_ID": "the same, under its older name",
    "CLAUDE_CODE_CHILD_SESSION": "marks it as a sub-agent of the outer one",
    "CLAUDE_CODE_PARENT_SESSION_ID": "the same, by id",
    "CLAUDE_CODE_MESSAGING_SOCKET": "messages would reach the outer conversation",
    "CLAUDE_CODE_MESSAGING_TOKEN": "the key to that",
    "CLAUDE_CODE_CHILD_NOTES_DIR": "notes would land in the outer conversation",
    "CLAUDE_CODE_SESSION_ATTENDED": "says that somebody watches",
    "CLAUDE_EFFORT": "how hard the outer one thinks",
    "CLAUDE_PID": "the outer process",
    "CLAUDE_CODE_EXECPATH": "the outer one's binary, not the one on PATH",
    "CLAUDE_CODE_TMPDIR": "the outer one cleans it up while the turn runs",
    "CLAUDE_AGENT_SDK_VERSION": "says that a program drives the outer one",
    "CLAUDE_ENV_FILE": "a hook's file: exports would land in the outer session",
    "CLAUDE_PROJECT_DIR": "a hook's project, not the turn's",
    "CLAUDE_PLUGIN_ROOT": "a hook's plug-in, not the turn's",
    "ENABLE_IDE_INTEGRATION": "set with the IDE's port, useless without it",
    "CODEX_THREAD_ID": "tools would take the outer thread for their own",
    "CODEX_SANDBOX": "tests and tools would believe they are inside the outer sandbox",
    "CODEX_SANDBOX_NETWORK_DISABLED": "tools would not even try the network",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE": "requests would be counted as the outer program's",
    "CODEX_CI": "marks the outer program's own commands",
    "CODEX_MANAGED_BY_NPM": "how the outer one was installed",
    "CODEX_MANAGED_BY_BUN": "how the outer one was installed",
    "GEMINI_CLI": "marks the outer program's own commands",
    "GEMINI_CLI_IDE_SERVER_PORT": "would join the IDE window of the outer one",
    "GEMINI_CLI_IDE_WORKSPACE_PATH": "the IDE's folder, not the turn's",
    "GEMINI_CLI_IDE_AUTH_TOKEN": "belongs to the IDE's port",
    "GEMINI_CLI_NO_RELAUNCH": "the outer one's own restart",
    "QWEN_CODE": "marks the outer program's own commands",
    "QWEN_CODE_IDE_SERVER_PORT": "would join the IDE window of the outer one",
    "QWEN_CODE_IDE_WORKSPACE_PATH": "the IDE's folder, not the turn's",
    "OPENCODE": "marks the outer program's own commands",
    "OPENCODE_PID": "the outer process",
    "OPENCODE_RUN_ID": "the outer run",
    "OPENCODE_CALLER": "the extension that started the outer one",
    "OPENCODE_CLIENT": "how the outer one is shown",
    "OPENCODE_SESSION_ID": "tools would write into the outer conversation",
    "PI_CODING_AGENT": "marks the outer program's own commands",
    "CURSOR_AGENT": "marks the outer program's own commands",
    "CURSOR_TRACE_ID": "the outer conversation",
    "COPILOT_CLI": "marks the outer program's own commands",
    "AUGMENT_AGENT": "marks the outer program's own commands",
    "GOOSE_TERMINAL": "marks the outer program's own commands",
    "AI_AGENT": "names the outer program, whichever it is",
    "AGENT": "the same, under an older name",
}


@dataclass(frozen=True, slots=True)
class _Program:
    """A program that marks what it starts, and how its own variables are told from settings.

    Attributes:
        signs: One of these is there, and not empty, in everything that it starts.
        prefix: Of its variables.
        settings: What of those a person sets to configure it, less the prefix.
        marks: Variables without the prefix that it sets, with the value that it gives them.
    """

    signs: tuple[str, ...]
    prefix: str
    settings: re.Pattern[str]
    marks: Mapping[str, str]


# Its next version has variables that no list of ours knows. Where its signs are there, what is
# neither known as its own nor as a setting goes: a setting that is missing shows itself (no key,
# another model) and can be said in `env`, while a token or a folder of the outer conversation
# that stays is written to in silence. Without the signs all but `SURROUNDING` stays, so that a
# scheduler in a service or a shell loses no setting to a guess. opencode and pi are not here:
# nearly all that begins with their names is a setting.
_PROGRAMS = (
    _Program(
        signs=(
            "CLAUDECODE",
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SESSION_ID",
            "CLAUDE_CODE_CHILD_SESSION",
            "CLAUDE_PID",
        ),
        prefix="CLAUDE_",
        settings=re.compile(
            r"CONFIG_DIR|SECURESTORAGE_CONFIG_DIR|API_KEY|ENABLE_.+|BASH_.+|.+_TIMEOUT_MS"
            r"|AUTOCOMPACT_PCT_OVERRIDE|CODE_(?:"
            r"(?:USE|DISABLE|ENABLE|SKIP|MAX|EXTRA|OTEL|PLUGIN|PROXY|RETRY|GLOB)_.+"
            r"|OAUTH_(?:TOKEN|REFRESH_TOKEN|SCOPES|CLIENT_ID)|CUSTOM_OAUTH_URL"
            r"|API_BASE_URL|API_KEY_HELPER_TTL_MS|CLIENT_(?:CERT|KEY|KEY_PASSPHRASE)|CERT_STORE"
            r"|HTTPS?_PROXY|GIT_BASH_PATH|SHELL|SHELL_PREFIX|EFFORT_LEVEL|SUBAGENT_(?:MODEL|EFFORT)"
            r"|AUTO_COMPACT_WINDOW|FILE_READ_MAX_OUTPUT_TOKENS|ATTRIBUTION_HEADER|DEBUG_LOG.+)"
        ),
        marks={
            "GIT_EDITOR": "true",
            "NoDefaultCurrentDirectoryInExePath": "1",
            "COREPACK_ENABLE_AUTO_PIN": "0",
        },
    ),
    _Program(
        signs=("CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_CI"),
        prefix="CODEX_",
        settings=re.compile(
            r"HOME|SQLITE_HOME|API_KEY|ACCESS_TOKEN|CA_CERTIFICATE|(?:OSS|DISABLE|ENABLE)_.+"
        ),
        marks={},
    ),
    _Program(
        signs=("GEMINI_CLI",),
        prefix="GEMINI_CLI_",
        settings=re.compile(
            r"HOME|SYSTEM_.+_PATH|TRUST_WORKSPACE|TRUSTED_FOLDERS_PATH|CUSTOM_HEADERS"
            r"|(?:USE|DISABLE|ENABLE)_.+"
        ),
        marks={},
    ),
    _Program(
        signs=("QWEN_CODE", "QWEN_CODE_SESSION_ID"),
        prefix="QWEN_CODE_",
        settings=re.compile(
            r"(?:SYSTEM|TRUSTED|MCP_APPROVALS)_.*PATH|MODEL|LANG|API_TIMEOUT_MS"
            r"|(?:MAX|DISABLE|ENABLE|MEMORY|FORCE)_.+|.+_TIMEOUT_MS|SAFE_MODE|UNATTENDED_RETRY"
        ),
        marks={},
    ),
)


def without_surroundings(base: Mapping[str, str]) -> dict[str, str]:
    """Return *base* less our own variables and those of an agent program around us."""
    around = [program for program in _PROGRAMS if any(base.get(sign) for sign in program.signs)]
    return {
        key: value
        for key, value in base.items()
        if not key.startswith(OWN_PREFIX)
        and key not in SURROUNDING
        and not any(_is_of(program, key, value) for program in around)
    }


def _is_of(program: _Program, key: str, value: str) -> bool:
    """Return whether *program* has set this for what it starts."""
    if key.startswith(program.prefix):
        return program.settings.fullmatch(key.removeprefix(program.prefix)) is None
    # Another value is a person's.
    return program.marks.get(key) == value
