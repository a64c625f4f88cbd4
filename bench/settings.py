"""Settings of Workron for a measurement: defaults, whatever this user's environment says."""

from workron.settings import Settings


def settings_for(url: str, slots: int = 200) -> Settings:
    return Settings.model_validate({"redis": url, "slots": slots})
