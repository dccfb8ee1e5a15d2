"""The admin's pages of voices; Django looks here."""

from voices.admin import voices as voices
