"""Which folder is the workspace, and what all of its files say together."""

import os
import unicodedata

import pytest

from routines.config.workspace import FoundBy, find_root, load_settings, read_definition
from routines.config.workspace_file import WorkspaceSettings
from routines.errors import WorkspaceNotFound

GOOD = "cron: '0 9 * * *'\nprompt: hello\n"


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """A user without a workspace of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home/state"))
    return tmp_path / "home"


def make(path, what="routines.yaml"):
    target = os.path.join(path, what)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if what.endswith("/"):
        os.makedirs(target, exist_ok=True)
    else:
        with open(target, "w") as file:
            file.write("# here\n")
    return os.path.realpath(path)


# --- which folder ---


@pytest.mark.parametrize(
    "what", ["routines.yaml", "routines/a.yaml", "routines/a.yml", ".routines/"]
)
def test_a_folder_with_any_of_these_is_a_workspace(tmp_path, nobody, what):
    path = make(tmp_path / "ws", what)
    below = tmp_path / "ws/src/deep"
    below.mkdir(parents=True)
    root = find_root(explicit=None, environ={}, cwd=str(below))
    assert (root.path, root.found_by) == (path, FoundBy.NEAREST)
    assert root.state == os.path.join(path, ".routines")


@pytest.mark.parametrize("what", ["routines/", "routines/notes.md", "routines/.a.yaml.swp"])
def test_a_folder_called_routines_without_one_is_no_workspace(tmp_path, nobody, what):
    make(tmp_path / "ws", what)
    with pytest.raises(WorkspaceNotFound) as caught:
        find_root(explicit=None, environ={}, cwd=str(tmp_path / "ws"))
    assert "`routines init`" in caught.value.hint


def test_the_option_is_before_the_environment_and_that_before_the_nearest(tmp_path, nobody):
    a, b, c = (make(tmp_path / name) for name in "abc")
    found = find_root(explicit="../a", environ={"ROUTINES_ROOT": b}, cwd=c)
    assert (found.path, found.found_by) == (a, FoundBy.OPTION)
    found = find_root(explicit=None, environ={"ROUTINES_ROOT": b}, cwd=c)
    assert (found.path, found.found_by) == (b, FoundBy.ENVIRONMENT)
    assert find_root(explicit=None, environ={}, cwd=c).path == c


def test_the_users_own_is_the_last_and_keeps_its_state_elsewhere(tmp_path, nobody, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    path = make(nobody / "config/routines")
    root = find_root(explicit=None, environ={}, cwd=str(tmp_path))
    assert (root.path, root.found_by) == (path, FoundBy.USER)
    assert root.state == str(nobody / "state/routines")


@pytest.mark.parametrize("named", ["nowhere", "empty"])
def test_a_named_folder_that_is_no_workspace_is_an_error_and_not_passed_over(
    tmp_path, nobody, named
):
    here = make(tmp_path / "here")
    os.mkdir(os.path.join(here, "empty"))
    with pytest.raises(WorkspaceNotFound, match=named):
        find_root(explicit=named, environ={}, cwd=here)
    with pytest.raises(WorkspaceNotFound, match="ROUTINES_ROOT"):
        find_root(explicit=None, environ={"ROUTINES_ROOT": named}, cwd=here)


def test_the_state_folder_is_what_routines_yaml_says(tmp_path, nobody):
    path = make(tmp_path / "ws")
    with open(os.path.join(path, "routines.yaml"), "w") as file:
        file.write("state: ~/var\n")
    root = find_root(explicit=path, environ={}, cwd=path)
    assert root.state == str(nobody / "var")


def test_within_a_turn_the_state_folder_comes_from_the_environment(tmp_path, nobody):
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    environ = {"ROUTINES_ROOT": a, "ROUTINES_STATE": "/var/state-of-a"}
    assert find_root(explicit=None, environ=environ, cwd=b).state == "/var/state-of-a"
    assert find_root(explicit=a, environ=environ, cwd=b).state == "/var/state-of-a"
    # Another workspace named by hand has a state of its own.
    assert find_root(explicit=b, environ=environ, cwd=b).state == os.path.join(b, ".routines")
    alone = {"ROUTINES_STATE": "/var/state-of-a"}
    assert find_root(explicit=None, environ=alone, cwd=b).state == os.path.join(b, ".routines")


def test_a_link_and_its_target_are_one_workspace(tmp_path, nobody):
    path = make(tmp_path / "ws")
    os.symlink(path, tmp_path / "link")
    assert find_root(explicit=str(tmp_path / "link"), environ={}, cwd="/").path == path


# --- what is a routine ---


def test_only_yaml_files_are_routines_and_what_editors_leave_is_not(folder):
    for name in ["a.yaml", "b.yml", "c.YAML"]:
        folder.write(f"routines/{name}", GOOD)
    for name in [
        ".a.yaml.swp", "a.yaml~", "#a.yaml#", ".#a.yaml", "a.yaml.tmp", ".hidden.yaml", ".yaml",
        "a.yaml.bak", "notes.md", "4913", ".goutputstream-X", "a.yaml.orig",
    ]:  # fmt: skip
        folder.write(f"routines/{name}", "not: [yaml")
    folder.write("routines/sub/d.yaml", GOOD)
    workspace = folder.load()
    assert (workspace.names, workspace.problems) == (("a", "b", "c"), ())


def test_a_link_to_a_file_counts(folder):
    folder.write("common/real.yaml", GOOD)
    os.symlink("../common/real.yaml", folder.file("routines/a.yaml"))
    assert folder.load().names == ("a",)


def test_a_folder_under_the_name_of_a_routine_is_a_problem(folder):
    os.mkdir(folder.file("routines/a.yaml"))
    assert "EISDIR" in folder.load().broken["a"][0].message


def test_a_broken_file_never_stops_the_others(folder):
    # BR-43, its whole case.
    folder.routine("a", "prompt: x\ncron: */5 * * * *\n")
    folder.routine("b", "prompt: x\ncron: @daily\n")
    folder.routine("c")
    folder.write("routines/d.yaml", "prompt: é\n".encode("utf-16"))
    workspace = folder.load()
    assert list(workspace.routines) == ["c"]
    assert list(workspace.broken) == ["a", "b", "d"]
    assert [problem.path for problem in workspace.problems] == [
        "routines/a.yaml",
        "routines/b.yaml",
        "routines/d.yaml",
    ]
    assert workspace.names == ("a", "b", "c", "d")


# --- BR-47: two files, one name ---


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.yaml", "a.yml"),
        ("Brief.yaml", "brief.yaml"),
        ("straße.yaml", "STRASSE.yaml"),
        (unicodedata.normalize("NFC", "é.yaml"), unicodedata.normalize("NFD", "é.yaml")),
        ("a.yaml", "a.YAML"),
    ],
)
def test_names_that_can_be_taken_for_each_other_clash_with_both_paths(folder, first, second):
    folder.write(f"routines/{first}", GOOD)
    folder.write(f"routines/{second}", GOOD)
    if len(os.listdir(folder.file("routines"))) == 1:
        pytest.skip("this file system takes them for one")
    folder.routine("other")
    workspace = folder.load()
    assert list(workspace.routines) == ["other"]
    told = {(p.path, p.message) for p in workspace.problems}
    one, two = sorted([f"routines/{first}", f"routines/{second}"])
    assert told == {
        (one, f"has the same name as {two}"),
        (two, f"has the same name as {one}"),
    }


def test_a_good_file_beside_a_broken_one_of_its_name_is_not_armed(folder):
    folder.write("routines/a.yaml", GOOD)
    folder.write("routines/a.yml", "prompt: [")
    workspace = folder.load()
    assert dict(workspace.routines) == {}
    assert len(workspace.broken["a"]) == 3


# --- routines.yaml is broken ---


def test_nothing_is_armed_while_routines_yaml_is_broken(folder):
    # Its zone and its agent are parts of every definition: with defaults in their place a
    # routine would run at another hour.
    folder.write("routines.yaml", "tz: Europe/Rigga\nagent: claude\n")
    folder.routine("a")
    folder.routine("b", "prompt: x\nagent: claude\ncron: '61 * * * *'\n")
    workspace = folder.load()
    assert dict(workspace.routines) == {}
    assert [problem.path for problem in workspace.settings_problems] == ["routines.yaml"] * 2
    assert workspace.broken["a"] == workspace.settings_problems
    # Its own problem is told too, and its agent can't be judged.
    assert [problem.key for problem in workspace.broken["b"]] == ["cron"]


def test_settings_alone_can_be_read(folder):
    folder.write("routines.yaml", "concurrency: 9\n")
    assert load_settings(folder.root)[0].concurrency == 9


# --- one definition ---


def test_one_definition_is_what_its_file_says_now(folder):
    folder.routine("a", "prompt: one\n")
    root, settings = folder.root, WorkspaceSettings()
    assert read_definition(root, settings, "a").routine.prompt == "one"
    folder.routine("a", "prompt: two\n")
    assert read_definition(root, settings, "a").routine.prompt == "two"
    folder.routine("a", "prompt: [")
    broken = read_definition(root, settings, "a")
    assert broken.routine is None
    assert broken.problems
    os.remove(folder.file("routines/a.yaml"))
    assert read_definition(root, settings, "a") is None


@pytest.mark.parametrize("name", ["../a", "a/b", "wake", "", ".a", "nowhere"])
def test_a_name_without_a_file_has_no_definition(folder, name):
    folder.write("a.yaml", GOOD)
    assert read_definition(folder.root, WorkspaceSettings(), name) is None


def test_one_definition_is_found_under_any_spelling_of_its_file(folder):
    folder.write(f"routines/{unicodedata.normalize('NFD', 'é')}.yml", GOOD)
    definition = read_definition(folder.root, WorkspaceSettings(), "é")
    assert definition.routine.name == unicodedata.normalize("NFC", "é")


def test_one_definition_with_two_files_is_broken(folder):
    folder.write("routines/a.yaml", GOOD)
    folder.write("routines/a.yml", GOOD)
    definition = read_definition(folder.root, WorkspaceSettings(), "a")
    assert definition.routine is None
    assert len(definition.problems) == 2


def test_one_definition_under_broken_settings_is_broken(folder):
    # Read with defaults it would be another routine: in UTC, with another agent.
    folder.write("routines.yaml", "tz: Europe/Rigga\n")
    folder.routine("a", GOOD)
    settings, _ = load_settings(folder.root)
    definition = read_definition(folder.root, settings, "a")
    assert definition.routine is None
    assert definition.problems[0].path == "routines.yaml"


def test_one_definition_is_the_same_as_in_the_workspace(folder):
    folder.write("routines.yaml", "tz: Europe/Berlin\nagent: echo\n")
    folder.write("p.md", "do it\n")
    folder.routine("a", "prompt_file: p.md\ncron: '@daily'\n")
    workspace = folder.load()
    alone = read_definition(workspace.root, workspace.settings, "a").routine
    assert alone == workspace.routines["a"]
    assert alone.digest() == workspace.routines["a"].digest()
