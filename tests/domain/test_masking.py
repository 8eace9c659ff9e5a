"""What is taken out of logs, records and output, and what is not."""

import pytest

from routines.domain.masking import MASK, Masker, declared_secrets

# Put together here, so that no scanner takes this file for a leak.
FORMS = [
    "sk-" + "ant-api03-" + "a1B2" * 8,
    "ghp_" + "a1B2c3D4e5" * 4,
    "github_pat_" + "a1B2c3D4e5" * 3,
    "glpat-" + "a1B2c3D4e5F6g7H8",
    "xoxb-" + "1234567890-abcdef",
    "AKIA" + "ABCDEFGH12345678",
    "AIza" + "a1B2c3D4e5" * 4,
    "sk_live_" + "a1B2c3D4e5F6g7H8",
    "hf_" + "a1B2c3D4e5" * 3,
    "eyJhbGciOi" + "." + "eyJzdWIiOi" + "." + "SflKxwRJSM",
]


@pytest.mark.parametrize("secret", FORMS)
def test_what_looks_like_a_key_is_taken_out_wherever_it_stands(secret):
    assert Masker().mask(f"denied for {secret}, try again") == f"denied for {MASK}, try again"


def test_password_in_an_address_is_taken_out_and_the_address_stays():
    said = Masker().mask("fatal: https://ana:hunter2@git.example/shop.git")

    assert said == f"fatal: https://{MASK}@git.example/shop.git"


def test_bearer_token_is_taken_out():
    assert Masker().mask("Authorization: Bearer abcdef123456789") == f"Authorization: Bearer {MASK}"


def test_private_key_is_taken_out_whole_also_when_it_is_cut_off():
    begin = "-----BEGIN " + "PRIVATE KEY-----"
    whole = f"{begin}\nMIIE\nabc\n-----END " + "PRIVATE KEY-----\nafter"

    assert Masker().mask(whole) == f"{MASK}\nafter"
    assert Masker().mask(f"{begin}\nMIIE\nabc") == MASK


@pytest.mark.parametrize(
    "text",
    [
        "a task-force of sk-8 skiers",
        "see https://example.org/a:b/c@d",
        "eyJ is how these begin",
        "AKIA is a prefix",
        "the bearer of this",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text):
    assert Masker().mask(text) == text


def test_declared_values_count_by_the_names_of_their_variables():
    secrets = declared_secrets(
        {"SHOP_API_KEY": "correct horse", "HOME": "/home/ana", "MODE": "thorough-mode"},
        {"DB_PASSWORD": "correct horse battery", "TOKEN": "short"},
    )

    assert secrets == ("correct horse battery", "correct horse")


def test_secret_that_contains_another_leaves_no_rest():
    masker = Masker(declared_secrets({"A_KEY": "12345678", "B_KEY": "12345678-and-more"}))

    assert masker.mask("x 12345678-and-more y 12345678 z") == f"x {MASK} y {MASK} z"


def test_declared_value_is_text_and_no_pattern():
    assert Masker(["a.b.c.d.e"]).mask("aXbXcXdXe a.b.c.d.e") == f"aXbXcXdXe {MASK}"
