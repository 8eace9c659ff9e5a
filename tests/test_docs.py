"""What the pages say is so: tests that they name exist, links lead somewhere, output is real."""

import functools
import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from routines.cli.main import COMMANDS
from routines.config.workspace_file import parse_settings
from routines.domain.outcome import REASONS, Outcome
from routines.domain.record import Event
from tests.test_readme import REPOSITORY, Reader, blocks, by_kind, stop

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in [
        REPOSITORY / "README.md",
        REPOSITORY / "CHANGELOG.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
)


@functools.cache
def text_of(page):
    return (REPOSITORY / page).read_text()


# Names of tests ---------------------------------------------------------------------------------


@functools.cache
def names_in(path):
    """The functions called test_... in a file of tests."""
    text = (REPOSITORY / path).read_text()
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


@functools.cache
def all_tests():
    files = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "tests").rglob("test_*.py")]
    return frozenset(
        {path.name for path in files}.union({p.stem for p in files}, *(names_in(p) for p in files))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page):
    text = text_of(page)
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", text):
        assert name in names_in(path), f"{path}::{name}"
    for name in re.findall(r"`(?:[\w/]+::)?(test_\w+(?:\.py)?)`", text):
        assert name in all_tests(), name
    for path in re.findall(r"\btests/[\w/]+\.py\b", text):
        assert (REPOSITORY / path).is_file(), path


# Links ------------------------------------------------------------------------------------------


def anchors(text):
    """The names by which the headings of a page can be linked to."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_inside_the_project_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (REPOSITORY / page).parent / name if name else REPOSITORY / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), target


def test_every_page_can_be_found_from_the_index():
    index = text_of("docs/README.md")
    for page in PAGES:
        if page.startswith("docs/") and page != "docs/README.md":
            assert f"]({page.removeprefix('docs/')})" in index, page


# Words ------------------------------------------------------------------------------------------


def glossary():
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| [^|]*\|$", text_of("docs/glossary.md"), re.MULTILINE
    )
    return [word for word in rows if word not in {"word", "---"}]


@pytest.mark.parametrize("word", glossary())
def test_every_word_of_the_glossary_is_used(word):
    code = "\n".join(path.read_text() for path in (REPOSITORY / "routines").rglob("*.py"))
    pages = "\n".join(text_of(page) for page in PAGES if page != "docs/glossary.md")
    found = re.compile(rf"\b{word.replace(' ', '[ _-]?')}", re.IGNORECASE)

    assert found.search(code) or "policy" in word, f"{word} is not in the code"
    assert found.search(pages), f"{word} is on no page"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_no_command_that_is_not_there(page):
    text = text_of(page)
    code = [
        *re.findall(r"`([^`\n]+)`", text),
        *re.findall(r"^(?:\$| {4}) *(.+)$", text, re.MULTILINE),
    ]
    for piece in code:
        for word in re.findall(r"(?:^|[;&|] |/bin/)routines ([a-z][a-z-]+)\b", piece):
            assert word in COMMANDS, piece


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_runs_is_there(page):
    for name in re.findall(r"python3? -m ((?:tests|benchmarks|routines)[\w.]*)", text_of(page)):
        path = REPOSITORY / name.replace(".", "/")
        assert (path / "__main__.py").is_file() or path.with_suffix(".py").is_file(), name


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/reference/yaml.md"])
def test_the_yaml_on_a_page_is_read_without_a_problem(page):
    for _, kind, text in blocks(text_of(page)):
        if kind == "yaml" and text.startswith("# routines.yaml"):
            assert parse_settings(text.encode(), root="/ws")[1] == (), text


# Output -----------------------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path / "home")


def outcomes(folder, name):
    claims = (folder / ".routines" / "claims" / name).rglob("*Z.jsonl")
    return [path for path in claims if '"event":"outcome"' in path.read_text()]


class Quickstart:
    """The page as it is read, but that nobody waits for the next whole minute."""

    def __init__(self, reader):
        self.reader = reader
        self.file = reader.folder / "routines" / "hello.yaml"

    def play(self, page):
        for mark, kind, text in blocks(page):
            if mark == "the scheduler":
                self.schedule(text)
                continue
            if mark == "a failing agent":
                # Of two runs by hand within one second it can't be told which was the newer.
                time.sleep(1)
                (self.reader.folder / "agent.sh").write_text(
                    "#!/bin/sh\necho no credit left >&2\nexit 1\n"
                )
            fence = f"<!-- {mark} -->\n" if mark else ""
            self.reader.play(f"{fence}```{kind}\n{text}```\n")

    def schedule(self, shown):
        """Run the scheduler over one slot that is three seconds ahead instead of a minute."""
        written = self.file.read_text()
        self.file.write_text(
            re.sub(r"^cron:.*$", "at: 2099-01-01 00:00", written, flags=re.MULTILINE)
        )
        scheduler = self.reader.start()
        limit = time.monotonic() + 60
        again = 0.0
        while not outcomes(self.reader.folder, "hello"):
            assert time.monotonic() < limit
            if time.monotonic() > again:
                # Seen within two seconds; on a machine that is slower than that, once more.
                slot = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
                soon = f"at: {slot:%Y-%m-%dT%H:%M:%SZ}"
                self.file.write_text(re.sub(r"^cron:.*$", soon, written, flags=re.MULTILINE))
                again = time.monotonic() + 15
            time.sleep(0.05)
        # The file is on disk a moment before the line is in the log.
        time.sleep(0.5)
        said = self.reader.at_home(stop(scheduler))
        # The reader of the page edits nothing meanwhile.
        said = re.sub(
            r"^.*event=routine-(?:changed|added|edited|removed).*\n", "", said, flags=re.MULTILINE
        )
        self.file.write_text(written)
        assert by_kind(said) == by_kind(shown.partition("\n")[2]), said


def test_the_quickstart_does_what_it_shows(reader):
    Quickstart(reader).play(text_of("docs/quickstart.md"))


PLAYED = [
    page
    for page in PAGES
    if page not in {"README.md", "docs/quickstart.md"} and "```console" in text_of(page)
]


@pytest.mark.parametrize("page", PLAYED)
def test_what_a_page_shows_is_what_happens(page, reader):
    reader.play(text_of(page))


# The state folder -------------------------------------------------------------------------------


def keys_on_the_page(section):
    page = text_of("docs/reference/state-files.md")
    part = page.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", part, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([\w-]+)`", cell)}


def keys_of_files(folder, pattern):
    return {key for path in folder.glob(pattern) for key in json.loads(path.read_text())}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory):
    """A state folder in which a bit of everything has happened."""
    someone = Reader(tmp_path_factory.mktemp("lived") / "home")
    for command in [
        "routines init --yes --agent echo --tz UTC",
        'routines new daily --cron "0 9 * * *" Hello.',
        "routines run daily",
        "routines wake --session daily --in 1h Again.",
        "routines jobs add --id one Once.",
        "routines fire daily --slot 2026-06-02T09:00:00Z",
        "routines fire daily --slot 2026-06-01T09:00:00Z",
    ]:
        said = someone.run(command)
        assert "[exit" not in said, said
    stop(someone.start())
    return someone.folder / ".routines"


@pytest.mark.parametrize(
    ("section", "pattern"),
    [
        ("format", "format"),
        ("missed", "missed/daily/*/*.json"),
        ("cursors", "cursors/*.json"),
        ("sessions", "sessions/*/*.json"),
        ("wakeups", "wakeups/routine*/*.json"),
        ("schedulers", "schedulers/past/*/*.json"),
        ("jobs", "jobs/ids/*/*.json"),
    ],
)
def test_the_keys_of_a_file_are_those_on_the_page(lived_in, section, pattern):
    assert keys_on_the_page(section) == keys_of_files(lived_in, pattern)


def test_the_keys_of_a_claims_lines_are_on_the_page(lived_in):
    known = keys_on_the_page("claims")
    lines = [
        json.loads(line)
        for path in lived_in.glob("claims/daily/*/*.jsonl")
        for line in path.read_text().splitlines()
    ]

    assert {line["event"] for line in lines} == {"claim", "started", "outcome"}
    assert {key for line in lines for key in line} - {"event", "at"} <= known
    assert {event.value for event in Event} <= known


def test_every_folder_of_the_state_folder_is_on_the_page(lived_in):
    page = text_of("docs/reference/state-files.md")
    named = set(re.findall(r"^      ([\w.]+)", page, re.MULTILINE)) | set(
        re.findall(r"^      [^ ]+  ([\w.]+)", page, re.MULTILINE)
    )
    for path in lived_in.iterdir():
        assert path.name in named or f"  {path.name}" in page, path.name


def test_every_output_file_of_a_turn_is_on_the_page(lived_in):
    page = text_of("docs/reference/state-files.md")
    for path in lived_in.glob("output/daily/*/*/*"):
        assert path.name in page


def test_every_reason_on_the_page_of_policies_belongs_to_its_outcome():
    page = text_of("docs/concepts/policies.md")
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([^|]*) ?\|$", page, re.MULTILINE)

    assert {outcome for outcome, _ in rows} == set(Outcome)
    for outcome, reasons in rows:
        known = {reason.value for reason in REASONS[Outcome(outcome)]}
        assert set(re.findall(r"`([\w-]+)`", reasons)) <= known, outcome
