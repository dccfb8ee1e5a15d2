"""Store when each lane last had its turn at the workers."""

from __future__ import annotations

from django.db import models


class LaneTurn(models.Model):
    """When a worker last took segments of a lane in a class of priority; orders equal lanes."""

    priority = models.PositiveSmallIntegerField()
    lane = models.CharField(max_length=40, blank=True)
    turn_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("priority", "lane"), name="lane_turn_unique"),
        )

    def __str__(self) -> str:
        return f"{self.lane} in {self.priority}"
