"""What YAML means here, and what is said about YAML that means nothing."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from routines.config import reader
from routines.config.tree import Mapping, Scalar, Sequence


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def parser(request, monkeypatch):
    """Everything holds with both parsers: a wheel without libyaml must not read differently."""
    if request.param == "libyaml" and not yaml.__with_libyaml__:
        pytest.skip("this PyYAML has no libyaml")
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "libyaml")
    return request.param


def read(text):
    return reader.read(text if isinstance(text, bytes) else text.encode(), "f.yaml")


def values(node):
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [values(item) for item in node.items]
    assert isinstance(node, Mapping)
    return {key: values(value) for key, (_, value) in node.entries.items()}


def problem(text):
    document = read(text)
    assert len(document.problems) == 1, document.problems
    return document.problems[0]


# BR-44: YAML guesses types.
@pytest.mark.parametrize(
    "word",
    [
        "12:30",
        "08:30",
        "1:30",
        "no",
        "on",
        "off",
        "yes",
        "010",
        "08",
        "2026-11-01T01:30:00",
        "2026-11-01",
        "1e3",
        "0x10",
        "1_000",
        ".inf",
        "5",
        "true",
        "=",
    ],
)
def test_a_word_stays_the_word_that_was_written(word):
    assert values(read(f"key: {word}\n").root) == {"key": word}
    assert values(read(f"- {word}\n{word}: x\n".replace("- ", "a: ")).root)[word] == "x"


def test_a_value_knows_its_line_and_column():
    root = read("a: 1\nlist:\n  - x\n  - {b: c}\n").root
    key, items = root.entries["list"]
    assert (key.line, key.column) == (2, 1)
    assert (items.items[0].line, items.items[0].column) == (3, 5)
    inner_key, inner = items.items[1].entries["b"]
    assert (inner_key.line, inner_key.column, inner.column) == (4, 6, 9)


def test_quotes_and_blocks_are_told_from_plain_words():
    root = read('a: x\nb: "x"\nc: |\n  x\nd: \ne: ~\nf: "~"\n').root
    assert [root.entries[key][1].plain for key in "abcd"] == [True, False, False, True]
    assert [root.entries[key][1].nothing for key in "abdef"] == [False, False, True, True, False]


# BR-43: unquoted * or @.
@pytest.mark.parametrize(
    ("text", "place", "message", "cure"),
    [
        (
            "prompt: x\ncron: */5 * * * *\n",
            "f.yaml:2:7",
            "cron: */5 * * * *   a value can't begin with '*' here: put it in quotes",
            'cron: "*/5 * * * *"',
        ),
        ("cron: * * * * *\n", "f.yaml:1:7", "cron: * * * * *   a value can't", 'cron: "* * * * *"'),
        ("cron: *daily\n", "f.yaml:1:7", "cron: *daily   a value can't", 'cron: "*daily"'),
        ("cron: @daily\n", "f.yaml:1:7", "cron: @daily   a value can't", 'cron: "@daily"'),
        (
            "cron: @daily  # each day\n",
            "f.yaml:1:7",
            "cron: @daily   a value can't",
            'cron: "@daily"',
        ),
        ("cron:\n  - */5 * * * *\n", "f.yaml:2:5", "a value can't", '- "*/5 * * * *"'),
        ("cron: ['0 9 * * *', */5 * * * *]\n", "f.yaml:1:21", "*/5", '"*/5 * * * *"'),
        ("prompt: `date` is it\n", "f.yaml:1:9", "prompt: `date` is it   a value can't", '"`date`'),
        ("prompt: %d files\n", "f.yaml:1:9", "a value can't begin with '%'", 'prompt: "%d files"'),
        ("prompt: !important\n", "f.yaml:1:9", "begin with '!'", 'prompt: "!important"'),
        ("prompt: &x do\n", "f.yaml:1:9", "begin with '&'", 'prompt: "&x do"'),
        ("prompt: *bold* it\n", "f.yaml:1:9", "begin with '*'", 'prompt: "*bold* it"'),
        ('prompt: *say "no"\n', "f.yaml:1:9", "begin with '*'", "prompt: '*say \"no\"'"),
        ("prompt: - do it\n", "f.yaml:1:9", "begin with '- '", 'prompt: "- do it"'),
        ("prompt: ? what\n", "f.yaml:1:9", "begin with '? '", 'prompt: "? what"'),
        # A colon, a bracket or a quote that was meant as text.
        (
            "prompt: Fix: the build\n",
            "f.yaml:1:9",
            "prompt: Fix: the build   ': ' inside an unquoted value: put it in quotes",
            'prompt: "Fix: the build"',
        ),
        ("prompt: [urgent] do\n", "f.yaml:1:9", "after the closing sign", '"[urgent] do"'),
        ("prompt: [urgent do\n", "f.yaml:1:9", "a text can't begin with '['", '"[urgent do"'),
        ('prompt: "a" b\n', "f.yaml:1:9", "after the closing sign", "'\"a\" b'"),
        ("prompt: {{x}}\n", "f.yaml:1:10", "a key must be a word", 'prompt: "{{x}}"'),
    ],
)
def test_a_value_that_needs_quotes_is_shown_in_quotes(text, place, message, cure):
    found = problem(text)
    assert found.place() == place
    assert message in found.message
    assert cure in found.cure
    if found.cure.startswith(("cron", "prompt")):
        assert read(found.cure).problems == ()


# Layout.
@pytest.mark.parametrize(
    ("text", "place", "message", "cure"),
    [
        ("a:\n\tb: c\n", "f.yaml:2:1", "a tab", "spaces"),
        ("\ta: b\n", "f.yaml:1:1", "a tab", "spaces"),
        ("a: |\n\tb\n", "f.yaml:2:1", "a tab", "spaces"),
        ("a: b\n  c: d\n", "f.yaml:2:4", "indented more than", "same column"),
        ("hello\nb: c\n", "f.yaml:1:1", "'hello' is no `key: value`", None),
        ("b: c\nhello\n", "f.yaml:2:1", "'hello' is no `key: value`", None),
        ("a:b\nc: d\n", "f.yaml:1:2", "a space is missing after the colon", "a: b"),
        ("a: |\n  x\n y\n", "f.yaml:3:2", "neither the keys nor the text", "indent a text"),
        ("a: | text\n", "f.yaml:1:4", "in the line below `|`", "two spaces"),
        ("a: 'x\nb: y\n", "f.yaml:1:4", "quote that opens here is never closed", None),
        ("a: [x, y\nb: z\n", "f.yaml:1:4", "list that opens here is never closed", None),
        ("\n\na: {b\n", "f.yaml:3:4", "mapping that opens here is never closed", None),
        ("a: [\n  x,\n", "f.yaml:1:4", "list that opens here is never closed", None),
        ('a: "C:\\dir"\n', "f.yaml:1:", "an unknown escape", "single quotes"),
        ("- a\nb: c\n", "f.yaml:2:1", "neither the keys nor", "one column"),
        ("%YAML 1.2\n---\na: b\n", "f.yaml:1:1", "begin with '%'", "remove"),
    ],
)
def test_a_mistake_in_the_layout_is_named_with_its_place(text, place, message, cure):
    found = problem(text)
    assert found.place().startswith(place)
    assert message in found.message
    assert (found.cure is None) if cure is None else (cure in found.cure)


# BR-45: duplicate keys.
def test_a_second_key_of_the_same_name_is_refused_with_both_lines():
    text = "cron: '0 9 * * 1-5'\n" + "# filler\n" * 40 + "cron: '* * * * *'\nprompt: a\nprompt: b\n"
    first, second = read(text).problems
    assert (first.line, first.key) == (42, "cron")
    assert "the first is in line 1" in first.message
    assert (second.line, second.key) == (44, "prompt")
    assert "the first is in line 43" in second.message


def test_a_second_key_is_found_at_any_depth():
    assert problem("a:\n  b: {c: 1, c: 2}\n").place() == "f.yaml:2:13"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: &x b\nc: *x\n", 1, "'&'"),
        ("a:\n  <<: {x: y}\n", 2, "merge keys"),
        ("a: !!python/object:os.system x\n", 1, "'!'"),
        ("a: !!str 5\n", 1, "'!'"),
        ("? [a, b]\n: c\n", 1, "a key must be a word"),
        ("a: b\n---\nc: d\n", 2, "a second document"),
        ("a: b\n...\n---\nc: d\n", 3, "a second document"),
        ("a: b\n...\nc: d\n", 3, "a second document"),
        ("- a\n- b\n", 1, "the file is a list"),
        ("just a text\n", 1, "the file is a single value"),
    ],
)
def test_what_yaml_allows_and_nobody_means_is_refused(text, line, message):
    found = read(text).problems[0]
    assert found.line == line
    assert message in found.message


def test_the_rest_of_a_file_is_still_checked_after_an_alias():
    document = read("a: *x\nb: c\nb: d\n")
    assert [found.line for found in document.problems] == [1, 3]
    assert values(document.root.entries["b"][1]) == "c"


# BR-46: encodings and line ends.
def test_a_byte_order_mark_and_windows_line_ends_change_nothing():
    plain = "a: b\nc: |\n  one\n  two\n"
    windows = b"\xef\xbb\xbf" + plain.replace("\n", "\r\n").encode()
    assert values(read(windows).root) == values(read(plain).root)
    assert "c" in read(windows).root.entries


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-16-be-sig"])
def test_utf_16_is_refused_by_name(encoding):
    text = "prompt: héllo\n"
    data = (
        "\ufeff".encode("utf-16-be") + text.encode("utf-16-be")
        if encoding.endswith("sig")
        else text.encode(encoding)
    )
    found = problem(data)
    assert "UTF-16" in found.message
    assert found.cure == "save the file as UTF-8"


def test_latin_1_is_refused_with_the_place_of_the_letter():
    found = problem("a: b\nprompt: café\n".encode("latin-1"))
    assert found.place() == "f.yaml:2:12"
    assert "0xE9" in found.message
    assert "UTF-8" in found.cure


@pytest.mark.parametrize("empty", [b"", b"\n", b"# only a comment\n", b"---\n", b"\xef\xbb\xbf"])
def test_an_empty_file_says_so(empty):
    assert problem(empty).message == "the file is empty"


@pytest.mark.parametrize(
    ("sign", "code"),
    [("\x1b", "001B"), ("\x7f", "007F"), ("\u2028", "2028"), ("\x85", "0085"), ("\ufffe", "FFFE")],
)
def test_a_sign_that_yaml_would_refuse_or_fold_is_named_with_its_place(sign, code):
    found = problem(f"a: b\nprompt: |\n  x{sign}y\n")
    assert f"U+{code}" in found.message
    assert found.place() == "f.yaml:3:4"
    assert read(f'prompt: "x\\u{code.lower()}y"').root.entries["prompt"][1].text == f"x{sign}y"


def test_a_nul_is_refused():
    assert "NUL" in problem(b"a: b\nc: d\x00\n").message


# Size and depth.
def test_twenty_thousand_brackets_are_refused_at_once():
    found = problem("a: " + "[" * 20_000)
    assert "nested more than 20 levels" in found.message


def test_a_billion_laughs_are_refused_as_aliases():
    text = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
    )
    assert all("quotes" in found.message for found in read(text).problems)


def test_a_file_beyond_the_bound_is_refused_unread(parser):
    largest = reader.LARGEST_FILE if parser == "libyaml" else reader.LARGEST_FILE_SLOWLY
    assert "larger than" in problem(b"# " + b"x" * largest).message


def test_a_comment_after_a_plain_value_is_known():
    document = read("a: do it #now\nb: 'do it' # x\nc: do it\nd: do#it\n")
    nodes = {key: node for key, (_, node) in document.root.entries.items()}
    assert document.comment_after(nodes["a"]) == "#now"
    assert [document.comment_after(nodes[key]) for key in "bcd"] == [None, None, None]


# Whatever a file holds: a tree or a problem, never an exception.
PIECES = st.lists(
    st.sampled_from(
        ["prompt", ": ", ":", " ", "\n", "\n  ", "- ", "[", "]", "{", "}", ",", "*", "&a", "!b", "@",
         "'", '"', "#", " #x", "|", ">", "%", "---\n", "...\n", "<<", "? ", "\t", "\\", "\r", "\x85",
         "\0", "\x1b", "\ufeff", "é", "🙂", "5", "null", "~"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


def told(data, *, fast):
    before = yaml.__with_libyaml__
    yaml.__with_libyaml__ = fast
    try:
        document = reader.read(data, "f.yaml")
    finally:
        yaml.__with_libyaml__ = before
    assert (document.root is None) <= bool(document.problems)
    for found in document.problems:
        assert found.message
        assert "\n" not in found.message + (found.cure or "")
    return document


@settings(deadline=None)
@given(
    st.binary(max_size=60)
    | (PIECES | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)).map(str.encode)
)
def test_any_bytes_are_a_tree_or_a_problem(data):
    for fast in (True, False):
        told(data, fast=fast)
