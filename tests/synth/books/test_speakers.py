"""Plays are heard with their persons, in whatever way their markup sets the names."""

from __future__ import annotations

import pytest

from tests.synth.books.made_blocks import blocks_of, said, spoken_by

ACT = "<h2>ACT I</h2>"
SAYS = "Good morrow to you, my lord, and to all of your house."


@pytest.mark.parametrize(
    "name",
    [
        "<b>{}.</b> ",
        "<strong>{}</strong>. ",
        "<b>{}:</b> ",
        '<span class="smcap">{}.</span> ',
        "<i>{}.</i> ",
        "<b>{}</b> (<i>aside</i>). ",
        "{}. ",
        "{}: ",
        '<span class="speaker">{}</span> ',
    ],
)
def test_names_at_the_start_of_paragraphs_speak_in_a_play(name: str) -> None:
    plain = "span class=" not in name and "<i>{}" not in name
    names = ("ANNE", "BEN") if plain else ("Anne", "Ben")
    if "speaker" in name:
        names = ("ANNE", "BEN")

    found = spoken_by(ACT + "".join(f"<p>{name.format(one)}{SAYS}</p>" for one in names * 3))

    assert [speaker for speaker, _ in found] == ["", *names * 3]
    assert all(text.endswith(SAYS) and names[0] not in text for _, text in found[1:])


@pytest.mark.parametrize("tag", ["p", "div", "h4", "dt"])
def test_a_block_that_only_names_somebody_speaks_what_follows(tag: str) -> None:
    found = spoken_by(
        f'{ACT}<{tag} class="speaker">HAMLET.</{tag}><p>To be.</p><p>Or not.</p>'
        f'<{tag} class="speaker">OPHELIA</{tag}><p>My lord.</p><h2>ACT II</h2><p>A room.</p>'
    )

    assert found == [
        ("", "ACT I"),
        ("HAMLET", "To be."),
        ("HAMLET", "Or not."),
        ("OPHELIA", "My lord."),
        ("", "ACT II"),
        ("", "A room."),
    ]


def test_a_direction_is_nobodys_and_the_speech_goes_on_behind_it() -> None:
    found = spoken_by(
        '<p class="speaker">HAMLET</p><p>To be.</p><p class="stage-direction">He sits.</p>'
        "<p>Or not.</p><hr/><p>The curtain falls.</p>"
    )

    assert found == [
        ("HAMLET", "To be."),
        ("", "He sits."),
        ("HAMLET", "Or not."),
        ("", ""),
        ("", "The curtain falls."),
    ]


def test_a_name_that_nobody_speaks_under_is_not_lost() -> None:
    found = spoken_by('<p class="speaker">ANNE</p><p class="speaker">BEN</p><p>Yes!</p>')

    assert [text for _, text in found] == ["ANNE", "Yes!"]


def test_speeches_end_with_the_element_that_holds_them() -> None:
    found = spoken_by(
        '<div class="sp"><p class="speaker">ANNE</p><p>Yes!</p></div><p>It grew dark.</p>'
    )

    assert found == [("ANNE", "Yes!"), ("", "It grew dark.")]


def test_lines_of_verse_that_are_spoken_keep_who_speaks() -> None:
    found = spoken_by(
        f'{ACT}<p class="speaker">ANNE</p><div class="poem"><p>One line<br/>and one</p></div>'
    )

    assert found == [("", "ACT I"), ("ANNE", "One line"), ("ANNE", "and one")]


def test_an_interview_is_known_by_its_letters() -> None:
    found = spoken_by("".join(f"<p><b>{one}:</b> {SAYS}</p>" for one in "QAQAQA"))

    assert [speaker for speaker, _ in found] == list("QAQAQA")


@pytest.mark.parametrize(
    "inner",
    [
        "".join(f"<p><b>{one}.</b> {SAYS}</p>" for one in ("Theorem", "Proof") * 4),
        "".join(f"<p><b>NOTE:</b> {SAYS}</p>" + f"<p>{SAYS}</p>" * 3 for _ in range(5)),
        f"<p>HE WENT OUT. {SAYS}</p><p>I. {SAYS}</p>" + f"<p>{SAYS}</p>" * 9,
        f"<h2>ACT I</h2><p>A ROOM. {SAYS}</p><p>{SAYS}</p>",
    ],
    ids=["textbook", "manual", "prose", "scene"],
)
def test_what_is_no_play_names_nobody(inner: str) -> None:
    assert {block.speaker for block in blocks_of(inner)} == {""}


def test_a_large_initial_stays_in_its_word_though_a_blank_follows_it() -> None:
    assert said('<p><span class="dropcap">T</span> <small>HE</small> house</p>') == [
        ("paragraph", "THE house")
    ]
    assert said('<p><span class="dropcap">I</span> was</p>') == [("paragraph", "I was")]


def test_a_play_as_transcribers_set_it_is_heard_with_its_persons() -> None:
    found = spoken_by(
        '<h3>THE FIRST ACT</h3><p class="scenedesc">A room.</p><p class="stagedir">'
        '<span class="smallcaps">Ann</span> is seated.</p><p class="speaker">Ben.</p>\n'
        '<p><span class="stagedir">To <span class="smallcaps">Ann</span>.</span> Hullo!</p>\n'
        '<span class="pagenum">4</span>\n<p class="speaker">Ann.</p>\n<p>Yes?</p>'
    )

    assert [pair for pair in found if pair != ("", "4")] == [
        ("", "THE FIRST ACT"),
        ("", "A room."),
        ("", "Ann is seated."),
        ("Ben", "[To Ann.] Hullo!"),
        ("Ann", "Yes?"),
    ]


def test_persons_that_a_list_tells_of_do_not_speak() -> None:
    persons = "".join(
        f'<p><b epub:type="z3998:persona">{name}</b>.\u2014{SAYS}</p>'
        for name in ("Ann", "Ben") * 3
    )

    found = blocks_of(f'<section epub:type="z3998:dramatis-personae">{persons}</section>')

    assert {block.speaker for block in found} == {""}
    assert found[0].text == f"Ann.\u2014{SAYS}"


def test_a_name_that_spans_rows_speaks_in_all_of_them() -> None:
    inner = (
        '<table><tr><td epub:type="z3998:persona" rowspan="2">Ann</td><td>One.</td></tr>'
        "<tr><td>Two.</td></tr><tr><td/><td>They go.</td></tr>"
        '<tr><td epub:type="z3998:persona">Bob</td><td>Three.</td></tr></table>'
    )

    assert spoken_by(inner) == [
        ("Ann", "One."),
        ("Ann", "Two."),
        ("", "They go."),
        ("Bob", "Three."),
    ]


def test_directions_in_a_speech_are_set_apart_in_its_text() -> None:
    direction = '<i epub:type="z3998:stage-direction">To <b epub:type="z3998:persona">Bob</b>.</i>'
    row = f'<td epub:type="z3998:persona">Ann</td><td>{direction} Go! <i>Now.</i></td>'

    assert spoken_by(f"<table><tr>{row}</tr></table>") == [("Ann", "[To Bob.] Go! Now.")]
