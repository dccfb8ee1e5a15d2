"""Remember what an import has written so far, to let go of it when the import fails."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from voices.objects import collect_clips, delete_objects
from voices.portable.adopt import StoredCodes


@dataclass
class Kept:
    """The clips and the objects of codes that were written before there is a voice."""

    clips: list[uuid.UUID] = field(default_factory=list)
    codes: list[StoredCodes] = field(default_factory=list)

    def let_go(self) -> None:
        """Remove what no voice uses."""
        delete_objects(one.key for one in self.codes)
        collect_clips(self.clips)
