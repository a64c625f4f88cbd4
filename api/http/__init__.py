"""The HTTP server below the routes: connections, requests, bodies, pages."""
