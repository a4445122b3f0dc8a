"""Writes the contents of messages of the Chat Completions protocol: text, images, files, results."""

from __future__ import annotations

from agentkit.core.contracts import FilePart, ImagePart, JsonObject, JsonValue, Part, TextPart, text_of
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import data_url

__all__ = ["written_content", "written_result"]


def written_content(content: str | tuple[Part, ...], profile: Profile) -> JsonValue:
    """Return what a user said; raises ConfigurationError for an image by URL where the server takes only its data."""
    return content if isinstance(content, str) else [_part(part, profile) for part in content]


def written_result(content: str | tuple[Part, ...]) -> str:
    """Return a result as text, which is all that the protocol takes there; other parts are named, not hidden."""
    if isinstance(content, str):
        return content
    others = sum(not isinstance(part, TextPart) for part in content)
    note = f"[{others} images or files of this result are left out: results are text here]" if others else ""
    return "\n".join(filter(None, (text_of(content), note)))


def _part(part: Part, profile: Profile) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return _image(part, profile) if isinstance(part, ImagePart) else _file(part)


def _image(part: ImagePart, profile: Profile) -> JsonObject:
    if profile.images == "data" and part.url and not part.url.startswith("data:"):
        raise ConfigurationError(
            f"{profile.name} loads no images from addresses; pass ImagePart(data=..., media_type=...) with the bytes."
        )
    image: JsonObject = {"url": part.url or data_url(part.data, part.media_type or "image/png")}
    if part.detail:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _file(part: FilePart) -> JsonObject:
    if part.file_id:
        return {"type": "file", "file": {"file_id": part.file_id}}
    if part.url:
        return {"type": "file", "file": {"file_url": part.url}}
    data = data_url(part.data, part.media_type or "application/octet-stream")
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": data}}
