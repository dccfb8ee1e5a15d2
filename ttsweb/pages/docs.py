"""Serve the API's description as a page to read and try, without a request to another host."""

from __future__ import annotations

from drf_spectacular.views import SpectacularSwaggerSplitView


class DocsView(SpectacularSwaggerSplitView):
    """Swagger UI from the installed package; script and style in files, for the strict policy."""

    template_name = "ttsweb/docs.html"
    title = "ttsweb API"
