"""Properties are judged by what they say, and not by how long a busy machine takes for an example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without-deadlines", deadline=None)
settings.load_profile("without-deadlines")
