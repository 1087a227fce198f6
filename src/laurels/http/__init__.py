"""The HTTP server: an ASGI application over `Laurels`. `laurels serve` runs it."""
