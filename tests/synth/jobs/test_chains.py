"""Chains: one speaker, a bound, and places that text put in elsewhere soon leaves alone."""

from __future__ import annotations

from collections import defaultdict

from synth.jobs.planning import LONGEST, Link, links_of
from synth.jobs.submit import segment_seed

TEXTS = [f"Sentence number {number} of this chapter." for number in range(400)]


def chains_of(texts: list[str], speakers: list[int] | None = None) -> list[list[int]]:
    """Return the places of segments by chain."""
    who = speakers or [0] * len(texts)
    seeds = [segment_seed(0, text, one) for text, one in zip(texts, who, strict=True)]
    chains: dict[int, list[int]] = defaultdict(list)
    for index, link in enumerate(links_of(who, seeds)):
        chains[link.chain].append(index)
        assert link.place == len(chains[link.chain]) - 1
        assert link.chain == chains[link.chain][0]
    return list(chains.values())


def test_chain_has_one_speaker_and_a_bound_and_says_what_follows() -> None:
    speakers = [(number // 3) % 2 for number in range(len(TEXTS))]
    chains = chains_of(TEXTS, speakers)

    assert sorted(index for chain in chains for index in chain) == list(range(len(TEXTS)))
    assert all(len({speakers[index] for index in chain}) == 1 for chain in chains)
    assert max(map(len, chains)) == LONGEST
    assert sum(map(len, chains)) / len(chains) > LONGEST / 2, "most segments have some before them"
    assert links_of([1, 2, 1], [1, 1, 1]) == [Link(0, 0, 1), Link(1, 0, 0), Link(0, 1, 0)]
    assert links_of([1, 1, 1], [1, LONGEST, 1]) == [Link(0, 0, 0), Link(1, 0, 1), Link(1, 1, 0)]


def test_later_chains_are_the_same_soon_after_a_sentence_was_put_in() -> None:
    before = [[TEXTS[index] for index in chain] for chain in chains_of(TEXTS)]
    for place in range(0, 200, 7):
        changed = [*TEXTS[:place], "Another sentence.", *TEXTS[place:]]
        after = [[changed[index] for index in chain] for chain in chains_of(changed)]
        other = [chain for chain in after if chain not in before]
        assert sum(map(len, other)) <= 6 * LONGEST, place
