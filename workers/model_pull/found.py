"""Find the models that are on this machine: the built-in one, the chosen one, pulled ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ttsweb.commands.errors import StepError
from ttsweb.configuration.env import PROJECT_DIR
from ttsweb.pages.card import CardError, read_card
from workers.model_pull.declaration import read_declaration
from workers.model_pull.listing import read_listing

BUILT_IN = PROJECT_DIR / "synth" / "demo"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Hold what is known of a folder; `state` is whole, incomplete, or missing (no config.json)."""

    name: str
    folder: str
    state: str
    is_chosen: bool
    licence: str
    revision: str
    declared_use: str

    def as_dict(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return asdict(self)

    def line(self) -> str:
        """Return one line for a person; the chosen model has an asterisk."""
        facts = [self.state, self.licence]
        if self.revision:
            facts.append(f"at {self.revision[:12]}")
        if self.declared_use:
            facts.append(f"declared: {self.declared_use}")
        return f"{'*' if self.is_chosen else ' '} {self.name}  {', '.join(facts)}  {self.folder}"


def find_models(pulled: Path, checkpoint: Path) -> list[FoundModel]:
    """Return the built-in model, those in the folder `pulled`, and TTS_CHECKPOINT's."""
    folders = [BUILT_IN]
    if pulled.is_dir():
        folders += sorted(path for path in pulled.iterdir() if path.is_dir())
    chosen = checkpoint.resolve()
    if chosen not in [folder.resolve() for folder in folders]:
        folders.append(checkpoint)
    return [_found(folder, is_chosen=folder.resolve() == chosen) for folder in folders]


def _found(folder: Path, *, is_chosen: bool) -> FoundModel:
    try:
        card = read_card(folder)
        name, licence = card.name, card.licence
    except CardError:
        name, licence = folder.name, "card cannot be read"
    try:
        declaration = read_declaration(folder)
        declared = declaration.use if declaration else ""
    except StepError:
        declared = "cannot be read"
    listing = read_listing(folder)
    if listing is not None:
        state = "incomplete" if listing.missing(folder) else "whole"
    else:
        state = "whole" if (folder / "config.json").is_file() else "missing"
    revision = listing.revision if listing else ""
    return FoundModel(name, str(folder), state, is_chosen, licence, revision, declared)
