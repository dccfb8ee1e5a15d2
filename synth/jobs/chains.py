"""Chain the segments of a chapter: which earlier ones each is rendered after, where that ends.

A chain has one speaker and at most `LONGEST` segments, so that another text of one changes no take
behind that. One segment in `LONGEST` begins a chain by its own words: where a sentence is put in,
later chains of the new text soon begin where they began in the old one, and have its takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 8


class Link(NamedTuple):
    """Hold the index of the first segment of a chain, a place in it, and how many follow there."""

    chain: int
    place: int
    left: int


def links_of(speakers: Sequence[int], seeds: Sequence[int]) -> list[Link]:
    """Return where each segment of a chapter stands.

    Args:
        speakers: of the segments, in order.
        seeds: those that follow from the segments' words, see `segment_seed`.
    """
    chains: list[list[int]] = []
    open_chains: dict[int, list[int]] = {}
    for index, (speaker, seed) in enumerate(zip(speakers, seeds, strict=True)):
        chain = open_chains.get(speaker)
        if chain is None or len(chain) == LONGEST or seed % LONGEST == 0:
            chain = open_chains[speaker] = []
            chains.append(chain)
        chain.append(index)
    links = {
        index: Link(chain[0], place, len(chain) - 1 - place)
        for chain in chains
        for place, index in enumerate(chain)
    }
    return [links[index] for index in range(len(seeds))]
