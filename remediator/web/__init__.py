"""The HTTP side: the webhook, the API, health and metrics, behind a door that slow clients cannot block."""
